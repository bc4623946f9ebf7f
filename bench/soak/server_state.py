"""What a server process holds at a time, as the system and its own debug tool tell."""

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PAGE_BYTES = 4096
SESSION_CLASSES = ("HttpSession", "HandshakeSession", "Subscription", "EventStream")


class ServerState(NamedTuple):
    at: float
    memory_mb: float
    threads: int
    descriptors: int
    tasks: int
    stored: int
    classes: dict[str, int] | None
    """Instances of the library's classes by name; None if they were not counted."""

    @property
    def sessions(self) -> int | None:
        """Sessions, subscriptions and event streams."""
        return None if self.classes is None else sum(self.classes.get(name, 0) for name in SESSION_CLASSES)


def read_state(pid: int, told: dict[str, Any], stored: int | None) -> ServerState:
    """Reads a process's state. `told` is the result of its debug tool, `stored` the entries of a store elsewhere."""
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    found = told.get("structuredContent") or json.loads(told["content"][0]["text"])
    return ServerState(
        time.monotonic(),
        pages * PAGE_BYTES / 1e6,
        len(list((process / "task").iterdir())),
        len(list((process / "fd").iterdir())),
        found["tasks"],
        found["stored"] if stored is None else stored,
        found["classes"],
    )


def median_memory(states: Sequence[ServerState]) -> float:
    return statistics.median(state.memory_mb for state in states)
