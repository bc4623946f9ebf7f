"""Runs the command line as users do: with its output piped, or on a terminal."""

import errno
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import PROGRAM


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run(*words: str, cwd: Path, stdin: bytes = b"", **environment: str) -> Done:
    """Runs the command line as a process whose output is piped."""
    done = subprocess.run(
        [str(PROGRAM), *words],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=HANG_SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_bytes(*words: str, cwd: Path, **environment: str) -> bytes:
    """Runs the command line as a process and returns the bytes that it wrote to stdout."""
    return subprocess.run(
        [str(PROGRAM), *words], stdout=subprocess.PIPE, cwd=cwd, env={**os.environ, **environment}, check=True
    ).stdout


class Seen(NamedTuple):
    code: int
    text: str


BAR_AFTER = """
import sys
from deltamcp.cli import main, progress
progress._DELAY_SECONDS = float(sys.argv.pop(1))
main.main(sys.argv[1:])
"""
"""Runs the command line with a progress bar after the given number of seconds."""
NO_BAR, BAR_AT_ONCE = "3600", "0"


def watched(*words: str, cwd: Path, typed: bytes = b"", bar: str = NO_BAR, **environment: str) -> Seen:
    """Runs the command line on a pseudo-terminal and returns everything that it wrote there."""
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    heard = b""
    command = [sys.executable, "-c", BAR_AFTER, bar, *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=surroundings) as process:
        os.close(theirs)
        os.write(ours, typed)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError as error:
                assert error.errno == errno.EIO
                break
            if not piece:
                break
            heard += piece
        os.close(ours)
        code = process.wait(HANG_SECONDS)
    return Seen(code, heard.decode())
