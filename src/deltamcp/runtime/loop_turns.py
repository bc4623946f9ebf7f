"""Turns on the event loop: what is cheap once, and not when a thousand connections ask for it at once."""

import asyncio
from collections.abc import Hashable

from deltamcp.runtime.account_queue import AccountQueue


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

    async def take(self, account: Hashable) -> None:
        """Returns when it is the account's turn to begin. Cancelling ends the wait."""
        if self._left > 1:
            self._left -= 1
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
