"""Those who wait for a turn, by account: accounts are served in turn, however many each of them has waiting."""

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
