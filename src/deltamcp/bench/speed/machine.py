"""Processes under measurement: which core they run on, what they use, and that none is left behind."""

import contextlib
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from deltamcp.bench.speed.sides import FOLDER, Side

_ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PINNED = len(_ALLOWED) > 1
SERVER_CORE, CLIENT_CORE = _ALLOWED[:2] if PINNED else (0, 0)
CPU_NOTES = [] if sys.platform == "linux" else ["CPU time is measured on Linux only"]

_PACKAGES = ("delta-mcp", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")
_running: set["Child"] = set()


def describe() -> dict[str, str]:
    """What the numbers depend on, but for the peers."""
    where = (
        "servers on one core, clients on another" if PINNED else "none of them anybody's own, which blurs the ratios"
    )
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    found = {"python": platform.python_version(), "cpu": cpu, "cores": f"{os.cpu_count()}, {where}"}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """This process, which is the client, on its core; SIGTERM as orderly as Ctrl-C; at the end no server is left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with on_core(CLIENT_CORE):
            yield
    finally:
        for child in list(_running):
            child.__exit__()
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside inherits the core. Nothing is pinned where there is one core or no way to."""
    if not PINNED:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Child:
    """One process of one side. Leaving the `with` block kills it."""

    def __init__(self, side: Side, *arguments: str, piped: bool) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with on_core(SERVER_CORE):
            self.process = subprocess.Popen(
                [side.python, "-E", "-m", f"sides.{side.name}", *arguments],
                cwd=FOLDER,
                env={**os.environ, "FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"},
                stdin=pipe,
                stdout=pipe,
                stderr=self._errors,
                bufsize=0,
            )
        _running.add(self)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                stream.close()
        _running.discard(self)

    def cpu_seconds(self) -> float:
        """User and system time so far; NaN where it is not to be had."""
        # What clock_getcpuclockid(3) makes of a pid, which Python does not offer; /proc tells hundredths of a second.
        return time.clock_gettime(~self.process.pid << 3 | 2) if sys.platform == "linux" else math.nan

    def last_words(self) -> str:
        """The end of its stderr, to say why it failed."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        return self._errors.read().decode(errors="replace")


@contextlib.contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Bounds a stretch of blocking reads, where the system has alarms: Windows has none.

    Raises:
        TimeoutError: it took longer.
    """
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def expire(*_: object) -> None:
        raise TimeoutError(f"{what} took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
