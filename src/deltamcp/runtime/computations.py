"""Computations of the library's own whose size peers decide, such as a search in a stored result."""

import asyncio
from collections.abc import Callable, Hashable
from typing import TypeVar

from deltamcp.runtime.threads import Threads
from deltamcp.work import Work, WorkLimitError

_STEPS_AT_ONCE = 20_000
"""The steps of a computation on the event loop, some 10 ms; other callers wait so long."""
_THREADS = 2
"""Further threads would only divide the interpreter's lock among more computations, and delay the event loop."""

T = TypeVar("T")


class Computations:
    """Runs a short computation at once, and a long one in a thread, where callers take turns."""

    def __init__(self, steps: int) -> None:
        """`steps` is the number of steps that one computation may take."""
        self._steps = steps
        self._threads = Threads(_THREADS)

    async def run(self, caller: Hashable, compute: Callable[[Work], T]) -> T:
        """Returns what a computation returns. It has no side effects, because a long one begins twice.

        If the caller is cancelled, the computation ends at its next step.

        Raises:
            WorkLimitError: the computation would take more steps than the limit allows.
        """
        try:
            return compute(Work(min(self._steps, _STEPS_AT_ONCE)))
        except WorkLimitError:
            if self._steps <= _STEPS_AT_ONCE:
                raise
        work = Work(self._steps)
        try:
            result: T = await self._threads.run(caller, lambda: compute(work), {})
        except asyncio.CancelledError:
            work.stop()
            raise
        return result
