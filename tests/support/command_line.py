"""Runs the command line as users do: with its output piped, or on a terminal."""

import contextlib
import errno
import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.conditions import HANG_SECONDS, without_stalls
from tests.support.fork_request import interpreter_variables
from tests.support.fork_server import Start, fork, run_forked
from tests.support.paths import FORKED_PROGRAM, PROGRAM


class PipedRun(NamedTuple):
    code: int
    out: str
    err: str


def run(*words: str, cwd: Path, stdin: bytes = b"", **environment: str) -> PipedRun:
    """Runs the command line as a process whose output is piped."""
    done = _run_piped(words, cwd, stdin, environment)
    return PipedRun(done.returncode, done.stdout.decode(), without_stalls(done.stderr.decode()))


def _run_piped(
    words: tuple[str, ...], cwd: Path, stdin: bytes, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes]":
    variables = {**os.environ, **environment}
    if not interpreter_variables(dict(environment)):
        return run_forked(Start(words, str(cwd), variables), stdin)
    return subprocess.run(
        [str(PROGRAM), *words],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=variables,
        timeout=HANG_SECONDS,
        check=False,
    )


def assert_one_sentence(done: PipedRun, code: int) -> None:
    """Checks that a run failed with this code, and that all it wrote is one line on stderr."""
    assert (done.code, done.out) == (code, "")
    assert re.fullmatch(r"delta-mcp: [^\n]+\n", done.err), done.err


def run_bytes(*words: str, cwd: Path, **environment: str) -> bytes:
    """Runs the command line as a process and returns the bytes that it wrote to stdout."""
    done = _run_piped(words, cwd, b"", environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TerminalRun(NamedTuple):
    code: int
    text: str


NO_BAR, BAR_AT_ONCE = "3600", "0"
"""After how many seconds a progress bar appears."""


def run_on_terminal(*words: str, cwd: Path, typed: bytes = b"", bar: str = NO_BAR, **environment: str) -> TerminalRun:
    """Runs the command line on a pseudo-terminal and returns everything that it wrote there."""
    master, terminal = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    output = b""
    process = fork(Start(words, str(cwd), variables, bar_seconds=float(bar)), terminal, terminal, terminal)
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
    return TerminalRun(process.wait(), output.decode())


def run_all_on_terminal(commands: list[list[str]], *, cwd: Path, typed: bytes = b"", **environment: str) -> str:
    """Runs several command lines, one after another, on pseudo-terminals; returns everything that they wrote there."""
    runs = [run_on_terminal(*words, cwd=cwd, typed=typed, **environment) for words in commands]
    return "".join(f"{run.text}\n" for run in runs)


class TerminalServer:
    """A server of the command line whose stderr is a pseudo-terminal; its stdin and stdout are pipes."""

    def __init__(self, words: tuple[str, ...], cwd: Path, environment: dict[str, str]) -> None:
        self._master, terminal = pty.openpty()
        self._written = b""
        variables = {**os.environ, "TERM": "xterm-256color", **environment}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [str(FORKED_PROGRAM), *words], stdin=pipe, stdout=pipe, stderr=terminal, cwd=cwd, env=variables
        )
        os.close(terminal)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone
            while piece := os.read(self._master, 65536):
                self._written += piece

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def text(self) -> str:
        """What it wrote to the terminal so far."""
        return self._written.decode()

    def wait_for(self, pattern: str) -> "re.Match[str]":
        until = time.monotonic() + HANG_SECONDS
        while not (found := re.search(pattern, self.text())):
            assert self.process.poll() is None and time.monotonic() < until, self.text()
            time.sleep(0.02)
        return found

    def end(self) -> TerminalRun:
        """Closes its stdin and tells it to end; returns everything that it wrote to the terminal."""
        self.stdin.close()
        self.process.terminate()
        code = self.process.wait(HANG_SECONDS)
        self.stdout.close()
        self._reading.join(HANG_SECONDS)
        os.close(self._master)
        return TerminalRun(code, self.text())


@contextlib.contextmanager
def serving_on_terminal(*words: str, cwd: Path, **environment: str) -> Iterator[TerminalServer]:
    server = TerminalServer(words, cwd, environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
