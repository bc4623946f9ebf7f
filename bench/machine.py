"""The machine the figures depend on: its cores, which of them run what, and its clocks."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

_ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PINNED = len(_ALLOWED) > 1
SERVER_CORE, CLIENT_CORE = _ALLOWED[:2] if PINNED else (0, 0)
CPU_NOTES = [] if sys.platform == "linux" else ["CPU time is measured on Linux only"]

_FOLDER = Path(__file__).parent
_PACKAGES = ("delta-mcp", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")


def describe() -> dict[str, str]:
    """Names what the figures depend on, but for the peers."""
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


def commit() -> str:
    """The commit whose files are measured; with a plus sign if some were changed since."""
    found = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=_FOLDER, capture_output=True, text=True)
    return found.stdout.strip()


def raise_descriptor_limit() -> None:
    """Lets this process, and those that it starts, open as many descriptors as the system allows."""
    import resource  # not on Windows

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def run_on_core(core: int) -> Iterator[None]:
    """Runs this process on one core; what it starts meanwhile inherits the core.

    Nothing is pinned where there is one core or no way to.
    """
    if not PINNED:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


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
