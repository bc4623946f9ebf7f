"""Quotas: how much of something accounts may hold, each of them and all together.

An account is a caller's principal, if the caller authenticated, else its address.
"""

import asyncio
import itertools
from collections import deque

_ACCOUNTS_AT_ONCE = 8
"""Other accounts whose turn may come when one gives back an amount; together they may hold the whole."""


class Quota:
    """Counts what accounts hold. One account may hold only a share, so that the rest stays free for others."""

    __slots__ = ("_held", "_in_all", "_limit", "_waiting", "share")

    def __init__(self, limit: int, account_share: float) -> None:
        self._limit = limit
        self.share = max(1, int(limit * account_share))
        """The most that one account may hold."""
        self._held: dict[str, int] = {}
        self._in_all = 0
        self._waiting: dict[str, deque[tuple[asyncio.Future[bool], int]]] = {}
        """The amounts that accounts wait for, each account's in their order."""

    @property
    def held(self) -> int:
        """What all accounts hold."""
        return self._in_all

    def take(self, account: str, amount: int = 1) -> bool:
        """Counts an amount for an account; returns False, and counts nothing, if that exceeds a limit."""
        held = self._held.get(account, 0) + amount
        if held > self.share or self._in_all + amount > self._limit:
            return False
        self._held[account] = held
        self._in_all += amount
        return True

    async def take_in_turn(self, account: str, amount: int, seconds: float) -> bool:
        """Counts an amount for an account in its turn; returns False if that comes not within `seconds`."""
        if account not in self._waiting and self.take(account, amount):
            return True
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(account, deque()).append((turn, amount))
        timer = loop.call_later(seconds, _refuse, turn)
        try:
            is_taken = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():
                self.give_back(account, amount)
            self._pass_on(account)  # smaller amounts may have waited behind this one
            raise
        finally:
            timer.cancel()
        if not is_taken:
            self._pass_on(account)
        return is_taken

    def _pass_on(self, account: str) -> None:
        """Gives accounts that wait what they may hold now, this account first."""
        for other in [account, *itertools.islice(self._waiting, _ACCOUNTS_AT_ONCE)]:
            turns = self._waiting.pop(other, None)
            if turns is None:
                continue
            while turns:
                turn, amount = turns[0]
                if not turn.done():
                    if not self.take(other, amount):
                        self._waiting[other] = turns  # now behind other accounts
                        break
                    turn.set_result(True)
                turns.popleft()

    def give_back(self, account: str, amount: int = 1) -> None:
        """Ends the count of an amount that the account took."""
        held = self._held[account] - amount
        if held:
            self._held[account] = held
        else:
            del self._held[account]
        self._in_all -= amount
        if self._waiting:
            self._pass_on(account)


def _refuse(turn: "asyncio.Future[bool]") -> None:
    if not turn.done():
        turn.set_result(False)
