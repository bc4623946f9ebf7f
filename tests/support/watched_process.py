"""A server process, watched from outside."""

import os
from pathlib import Path

from tests.support.fork_server import ForkedProcess


class WatchedProcess:
    """What its tools traced, what it logged, how much memory it takes."""

    process: ForkedProcess
    trace: Path
    log: Path

    def trace_lines(self) -> list[str]:
        return self.trace.read_text().splitlines() if self.trace.exists() else []

    def release(self, tag: str) -> None:
        """Ends a call that waits."""
        Path(f"{self.trace}.{tag}").touch()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        """The most resident bytes there were since `forget_peak`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel tells no peak")
