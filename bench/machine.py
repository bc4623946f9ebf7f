"""Processes under measurement: which core they run on, what they use, and that none is left behind."""

import contextlib
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped,import-not-found,unused-ignore]

_ALLOWED = sorted(os.sched_getaffinity(0))
PINNED = len(_ALLOWED) > 1
SERVER_CORE, CLIENT_CORE = _ALLOWED[0], _ALLOWED[-1] if not PINNED else _ALLOWED[1]

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("delta-mcp", "mcp", "fastmcp", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")


def describe() -> dict[str, str]:
    """What the numbers depend on."""
    where = "servers on one core, clients on another" if PINNED else "one core for all, which blurs the ratios"
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    found = {"python": platform.python_version(), "cpu": cpu, "cores": f"{os.cpu_count()}, {where}"}
    return found | {name: metadata.version(name) for name in _PACKAGES}


def prepare() -> None:
    """This process, which is the client, on its core; enough file descriptors; SIGTERM as orderly as Ctrl-C."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def reap() -> None:
    """Ends what this process started and an interruption left running."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside inherits the core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Child:
    """One process of one side. Leaving the `with` block kills it."""

    def __init__(self, side: str, *arguments: str, piped: bool) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with on_core(SERVER_CORE):
            self.process = subprocess.Popen(
                [sys.executable, "-E", "-m", f"bench.sides.{side}", *arguments],
                cwd=_ROOT,
                env={**os.environ, "FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"},
                stdin=pipe,
                stdout=pipe,
                stderr=self._errors,
                bufsize=0,
            )
        self._watched: Any = psutil.Process(self.process.pid)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def cpu_seconds(self) -> float:
        times = self._watched.cpu_times()
        return float(times.user + times.system)

    def pss_bytes(self) -> int:
        """Its own memory and its share of what it shares."""
        return int(self._watched.memory_full_info().pss)

    def last_words(self) -> str:
        """The end of its stderr, to say why it failed."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        return self._errors.read().decode(errors="replace")


@contextlib.contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Bounds a stretch of blocking reads.

    Raises:
        TimeoutError: it took longer.
    """

    def expire(*_: object) -> None:
        raise TimeoutError(f"{what} took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
