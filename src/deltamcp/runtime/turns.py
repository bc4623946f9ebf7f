"""Turns: at most so many at once, and who waits is served in turn with all others who wait."""

import asyncio
from collections.abc import Hashable

from deltamcp.runtime.account_queue import AccountQueue


class Turns:
    """Lets at most `size` go on at once. Callers take turns, however many requests each of them has waiting."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue = AccountQueue()
        self.waiting_count = 0

    async def take(self, caller: Hashable) -> None:
        """Waits for the caller's turn; who has taken one calls `release`. Cancelling ends the wait."""
        if self._free:
            self._free -= 1
            return
        turn = self._queue.put(caller, asyncio.get_running_loop())
        self.waiting_count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                self._queue.discard(caller, turn)
            raise
        finally:
            self.waiting_count -= 1

    def release(self) -> None:
        turn = self._queue.pop()
        if turn is None:
            self._free += 1
        else:
            turn.set_result(None)
