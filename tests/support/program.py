"""A program that a test runs beside itself, with what it writes."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.conditions import HANG_SECONDS, without_stalls

PAUSE_SECONDS = 0.02


class RunningProgram:
    """A process whose stdout and stderr go to one file."""

    def __init__(self, command: list[str], output: Path, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._output = output
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=cwd, env=env
            )

    def text(self) -> str:
        return without_stalls(self._output.read_text(errors="replace"))

    def wait_for(self, pattern: str, start: int = 0) -> "re.Match[str]":
        """Waits until the program has written what a pattern matches, from a place in its text on."""
        until = time.monotonic() + HANG_SECONDS
        compiled = re.compile(pattern)
        while True:
            has_ended = self.process.poll() is not None
            if found := compiled.search(self.text(), start):
                return found
            assert not has_ended, f"it ended with {self.process.returncode}:\n{self.text()}"
            assert time.monotonic() < until, f"it never wrote {pattern}:\n{self.text()}"
            time.sleep(PAUSE_SECONDS)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_SECONDS)


@contextlib.contextmanager
def running_program(
    command: list[str], folder: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[RunningProgram]:
    """Runs a command with a mark in its environment; fails if a process with the mark is left at the end."""
    mark = f"{folder}/running-{time.monotonic_ns()}"
    marked = {**(os.environ if env is None else env), "DELTA_MCP_TEST_MARK": mark}
    program = RunningProgram(command, folder / "output.txt", cwd or folder, marked)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.end()
        left = marked_processes(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert left == [], f"processes were left:\n{program.text()}"


def marked_processes(mark: str) -> list[int]:
    """The processes that still run and have inherited the mark; asks again while some may be about to end."""
    until = time.monotonic() + HANG_SECONDS
    while True:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state = (place / "stat").read_text().rpartition(") ")[2][:1]
                if state != "Z" and mark.encode() in (place / "environ").read_bytes():
                    found.append(int(place.name))
        if not found or time.monotonic() > until:
            return found
        time.sleep(PAUSE_SECONDS)
