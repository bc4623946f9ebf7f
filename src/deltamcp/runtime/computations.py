"""Computations of the library's own whose size peers decide, such as a search in a stored result."""

import asyncio
from collections.abc import Callable, Hashable
from typing import TypeVar

from deltamcp.runtime.threads import Threads
from deltamcp.runtime.turns import LoopTurns
from deltamcp.work import Work, WorkLimitError

_STEPS_WITHOUT_TURN = 500
"""The steps of a computation that runs at once, whatever others do; most need fewer."""
_STEPS_ON_LOOP = 20_000
"""The steps of a computation on the event loop, some 10 ms; other callers wait so long."""
_THREADS = 2
"""Further threads would only divide the interpreter's lock among more computations, and delay the event loop."""

T = TypeVar("T")


class Computations:
    """Runs a short computation on the event loop, and a long one in a thread; in both, callers take turns."""

    def __init__(self, steps: int) -> None:
        """`steps` is the number of steps that one computation may take."""
        self._steps = steps
        self._threads = Threads(_THREADS)
        self._turns = LoopTurns(1)

    async def take_turn(self, caller: Hashable) -> None:
        """Returns when the caller may make one short computation on the event loop: at once, unless others do."""
        await self._turns.take(caller)

    async def run(self, caller: Hashable, compute: Callable[[Work], T]) -> T:
        """Returns what a computation returns. It has no side effects, because a long one begins again.

        If the caller is cancelled, the computation ends at its next step.

        Raises:
            WorkLimitError: the computation would take more steps than the limit allows.
        """
        try:
            return compute(Work(min(self._steps, _STEPS_WITHOUT_TURN)))
        except WorkLimitError:
            await self._turns.take(caller)
        try:
            return compute(Work(min(self._steps, _STEPS_ON_LOOP)))
        except WorkLimitError:
            if self._steps <= _STEPS_ON_LOOP:
                raise
        work = Work(self._steps)
        try:
            result: T = await self._threads.run(caller, lambda: compute(work), {})
        except asyncio.CancelledError:
            work.stop()
            raise
        return result
