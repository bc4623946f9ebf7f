"""Turns: so many at once, or in one iteration of the event loop; who waits is served in turn with all others."""

import asyncio
from collections import deque
from collections.abc import Hashable


class AccountQueue:
    """A queue whose next turn is that of the account that was served longest ago."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def put(self, account: Hashable, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        """Returns a turn, which whoever takes it from the queue sets."""
        turn = loop.create_future()
        self._waiting.setdefault(account, deque()).append(turn)
        return turn

    def pop(self) -> "asyncio.Future[None] | None":
        """Takes the next turn that was not cancelled from the queue; returns None if nobody waits."""
        while self._waiting:
            account, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[account]
            if turns:
                self._waiting[account] = turns  # now behind other accounts
            if not turn.done():
                return turn
        return None

    def discard(self, account: Hashable, turn: "asyncio.Future[None]") -> None:
        """Forgets a turn that was cancelled, if it still waits."""
        turns = self._waiting.get(account)
        if turns is None or turn not in turns:
            return
        turns.remove(turn)
        if not turns:
            del self._waiting[account]


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


class LoopTurns:
    """Lets at most `size` begin in one iteration of the event loop, which serves others between two iterations.

    Accounts take turns, however many requests each of them has waiting. Whoever comes first in an iteration begins at
    once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._queue = AccountQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that will renew the turns, because all of them are taken."""

    def take_free(self) -> bool:
        """Takes a turn if more than the last one is left in this iteration; else `take` may have to wait for one."""
        if self._left > 1:
            self._left -= 1
            return True
        return False

    async def take(self, account: Hashable) -> None:
        """Returns when it is the account's turn to begin. Cancelling ends the wait."""
        if self.take_free():
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # this is the last one, or a loop that has closed was to renew them
            self._loop, self._left, self._queue = loop, 0, AccountQueue()
            loop.call_soon(self._renew)
            return
        await self._queue.put(account, loop)

    def _renew(self) -> None:
        """Lets those who wait begin, each account one at a time, in another iteration than who began before."""
        self._left = self._size
        while self._left > 0 and (turn := self._queue.pop()) is not None:
            turn.set_result(None)
            self._left -= 1
        if self._left > 0:
            self._loop = None
        else:
            asyncio.get_running_loop().call_soon(self._renew)


class LoopShares:
    """What each account may do in one iteration of the event loop without waiting for a turn."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: dict[Hashable, int] = {}

    def left(self, account: Hashable) -> int:
        return self._size - self._taken.get(account, 0)

    def take(self, account: Hashable, amount: int) -> None:
        """Takes of an account's share until the next iteration, more than is left if need be."""
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._taken.clear)
        self._taken[account] = self._taken.get(account, 0) + amount
