"""How many steps a computation takes."""

from collections.abc import Callable
from typing import Any

from deltamcp.work import Work


class _CountedWork(Work):
    def __init__(self) -> None:
        super().__init__(0)
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        self.steps += steps


def steps_of(compute: Callable[[Work], Any]) -> int:
    """The steps of a computation that has no limit."""
    work = _CountedWork()
    compute(work)
    return work.steps
