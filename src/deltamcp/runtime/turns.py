"""Turns: at most so many at once, and who waits is served in turn with all others who wait."""

import asyncio
from collections import deque
from collections.abc import Hashable


class Turns:
    """Lets at most `size` go on at once. Callers take turns, however many requests each of them has waiting."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self.waiting_count = 0

    async def take(self, caller: Hashable) -> None:
        """Waits for the caller's turn; who has taken one calls `release`. Cancelling ends the wait."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self.waiting_count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                self._forget(caller, turn)
            raise
        finally:
            self.waiting_count -= 1

    def release(self) -> None:
        while self._waiting:
            caller, waiting = next(iter(self._waiting.items()))
            turn = waiting.popleft()
            del self._waiting[caller]
            if waiting:
                self._waiting[caller] = waiting
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, caller: Hashable, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(caller)
        if waiting is None or turn not in waiting:  # `release` has passed over it
            return
        waiting.remove(turn)
        if not waiting:
            del self._waiting[caller]
