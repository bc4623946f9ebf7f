"""What accounts share: how much of something each may hold at once, and whose turn it is.

An account is a caller's principal, if the caller authenticated, else its address.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Hashable

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import Failure

_ACCOUNTS_AT_ONCE = 8
"""Other accounts whose turn may come when one gives back an amount; together they may hold the whole."""


class Quota:
    """Counts what accounts hold. One account may hold only a share, so that the rest stays free for others."""

    __slots__ = ("_held", "_in_all", "_limit", "_waiting", "share")

    def __init__(self, limit: int, account_share: float) -> None:
        self._limit = limit
        self.share: int = max(1, int(limit * account_share))
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

    def has_room(self, account: str) -> bool:
        """Whether the account could take one more."""
        return self._held.get(account, 0) < self.share and self._in_all < self._limit

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
        self.waiting_count: int = 0

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


TOO_MANY_CALLS = Failure(Fault.OVERLOADED, "Too many calls are in progress; try again later.")
"""The outcome of a call that exceeds `calls`."""
UNREAD = Failure(
    Fault.OVERLOADED, "Too many large responses to this client are unread, so this one was dropped; read them first."
)
"""The outcome of a call whose response exceeds `response_bytes`."""
UNREAD_PARTS = "Too many large parts of results are unread by this client; read them first."
"""Why a call fails whose parts exceed `response_bytes`."""

SHUTTING_DOWN = Failure(Fault.SHUTTING_DOWN, "The server is shutting down.")
"""The outcome of a call that the end of the server cancels."""

REQUESTS_AT_ONCE = 32
"""The requests that begin in one iteration of the event loop, in some 3 ms; a thousand connections may send theirs at
once, which would take 100 ms."""
_BATCHES = 512
"""The batches that are served at once, in all."""
_WATCHED_BYTES = 32 * 1024 * 1024
"""The URIs that clients subscribe to, in all; no operator has so many."""


class HttpQuotas:
    """What accounts hold in one HTTP application."""

    __slots__ = ("batches", "bodies", "calls", "decoded", "replays", "responses", "streams", "watched")

    def __init__(self, limits: Limits) -> None:
        share = limits.account_share
        self.batches: Quota = Quota(_BATCHES, share)
        """Batches that are served, whose responses wait for each other; further ones wait."""
        self.bodies: Quota = Quota(limits.body_bytes, share)
        """Bytes of the bodies that are read, or wait to be decoded."""
        self.decoded: Quota = Quota(limits.body_bytes // 2, share)
        """Memory of the requests that are served; they wait for it."""
        self.calls: Quota = Quota(limits.calls, share)
        """Requests that are served."""
        self.responses: Quota = Quota(limits.response_bytes, share)
        """Bytes of responses and events that clients have yet to read."""
        self.replays: Quota = Quota(limits.replay_bytes, share)
        """Bytes of events stored for clients that reconnect."""
        self.streams: Quota = Quota(limits.connections, share)
        """Event streams that stay open until the client leaves."""
        self.watched: Quota = Quota(_WATCHED_BYTES, share)
        """Characters of the URIs that clients subscribe to."""
