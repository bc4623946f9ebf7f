"""Results in memory until their replies are made, which may wait for a thread: how much accounts may have of them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

_COUNTED_BYTES = 16 * 1024
"""Smaller results are not counted; their replies are made at once."""
_BYTES_PER_ACCOUNT = 8 * 1024 * 1024
"""The results of one account beyond which its next call waits; each is there in three forms for a while."""
_BYTES = 64 * 1024 * 1024
"""The results of all accounts beyond which every account has one at a time."""
_ACCOUNTS_AT_ONCE = 8
"""Other accounts whose turn may come when a result is gone."""


class _Queue:
    """The calls of one account that wait."""

    __slots__ = ("is_scheduled", "new", "returned")

    def __init__(self) -> None:
        self.returned: deque[asyncio.Future[None]] = deque()
        """Calls whose functions have returned; they come first, because their values are in memory."""
        self.new: deque[asyncio.Future[None]] = deque()
        self.is_scheduled = False

    def pop(self) -> "asyncio.Future[None] | None":
        """Returns the next call that was not cancelled; None if none waits."""
        for turns in (self.returned, self.new):
            while turns:
                turn = turns.popleft()
                if not turn.done():
                    return turn
        return None


class HeldResults:
    """Counts results from the time that they are encoded until their replies are made.

    Whether a result is large shows only when it is there. So a call whose account holds a large result waits before its
    function runs, and once more before what that returned is encoded: until the account holds less than its bound, and
    one call in each iteration of the event loop. Calls of an account that holds no large result do not wait.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._in_all = 0
        self._waiting: dict[str, _Queue] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the calls that wait."""

    @property
    def bytes(self) -> int:
        """The size of the results that all accounts hold."""
        return self._in_all

    def must_wait(self, account: str) -> bool:
        """Whether a call of the account has to wait for its turn."""
        return account in self._bytes or account in self._waiting

    async def take_turn(self, account: str, *, returned: bool) -> None:
        """Waits for the turn of a call; `returned` is whether its function has. Cancelling ends the wait."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._waiting = loop, {}
        turn = loop.create_future()
        queue = self._waiting.setdefault(account, _Queue())
        (queue.returned if returned else queue.new).append(turn)
        self._schedule(account, queue)
        await turn

    @contextlib.contextmanager
    def hold(self, account: str, size: int) -> Iterator[None]:
        """Counts a result of this size for the account inside the `with` block."""
        if size < _COUNTED_BYTES:
            yield
            return
        self._bytes[account] = self._bytes.get(account, 0) + size
        self._in_all += size
        try:
            yield
        finally:
            self._in_all -= size
            left = self._bytes[account] - size
            if left:
                self._bytes[account] = left
            else:
                del self._bytes[account]
            self._pass_on(account)

    def _pass_on(self, account: str) -> None:
        """Has calls that wait begin, those of this account first."""
        others = [other for other, _ in zip(self._waiting, range(_ACCOUNTS_AT_ONCE), strict=False)]
        for other in (account, *others):
            queue = self._waiting.get(other)
            if queue is not None:
                self._schedule(other, queue)

    def _schedule(self, account: str, queue: _Queue) -> None:
        if not queue.is_scheduled and self._loop is not None and not self._loop.is_closed():
            queue.is_scheduled = True
            self._loop.call_soon(self._admit, account, queue)

    def _admit(self, account: str, queue: _Queue) -> None:
        """Lets one call begin. The next one follows after it has, because it may then hold a result."""
        queue.is_scheduled = False
        held = self._bytes.get(account, 0)
        if held >= _BYTES_PER_ACCOUNT or (held and self._in_all >= _BYTES):
            return
        turn = queue.pop()
        if turn is None:
            del self._waiting[account]
            return
        turn.set_result(None)
        self._schedule(account, queue)
