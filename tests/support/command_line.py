"""Runs the command line as users do: with its output piped, or on a terminal."""

import errno
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import PROGRAM


class PipedRun(NamedTuple):
    code: int
    out: str
    err: str


def run(*words: str, cwd: Path, stdin: bytes = b"", **environment: str) -> PipedRun:
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
    return PipedRun(done.returncode, done.stdout.decode(), done.stderr.decode())


def assert_one_sentence(done: PipedRun, code: int) -> None:
    """Checks that a run failed with this code, and that all it wrote is one line on stderr."""
    assert (done.code, done.out) == (code, "")
    assert re.fullmatch(r"delta-mcp: [^\n]+\n", done.err), done.err


def run_bytes(*words: str, cwd: Path, **environment: str) -> bytes:
    """Runs the command line as a process and returns the bytes that it wrote to stdout."""
    return subprocess.run(
        [str(PROGRAM), *words], stdout=subprocess.PIPE, cwd=cwd, env={**os.environ, **environment}, check=True
    ).stdout


class TerminalRun(NamedTuple):
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


def run_on_terminal(*words: str, cwd: Path, typed: bytes = b"", bar: str = NO_BAR, **environment: str) -> TerminalRun:
    """Runs the command line on a pseudo-terminal and returns everything that it wrote there."""
    master, terminal = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    output = b""
    command = [sys.executable, "-c", BAR_AFTER, bar, *words]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=cwd, env=variables) as process:
        os.close(terminal)
        os.write(master, typed)
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError as error:
                assert error.errno == errno.EIO
                break
            if not piece:
                break
            output += piece
        os.close(master)
        code = process.wait(HANG_SECONDS)
    return TerminalRun(code, output.decode())
