"""A page that takes long to make: made at most once a second, in a thread, and shared by all who ask for it."""

import asyncio
import time
from collections.abc import Callable, Hashable

from deltamcp.runtime.turns import LoopTurns

PAGE_SECONDS = 1.0
"""How old a page may be before the next one is made for whoever asks."""
_PAGES_AT_ONCE = 4
"""The pages that begin to be sent in one iteration of the event loop; to copy a megabyte to a socket takes 1 ms."""


class SharedPage:
    """One page, for anybody."""

    def __init__(self, begin: Callable[[], Callable[[], bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            begin: Reads what the page shows, on the event loop; what it returns writes the page, in a thread.
        """
        self._begin = begin
        self._clock = clock
        self._turns = LoopTurns(_PAGES_AT_ONCE)
        self._begun_at = 0.0
        self._page: asyncio.Task[bytes] | None = None

    async def read(self, account: Hashable) -> bytes:
        """Returns the page; accounts that wait for it get it in turn."""
        page = self._page
        if page is None or (page.done() and self._is_old(page)):
            self._begun_at = self._clock()
            page = self._page = asyncio.get_running_loop().create_task(self._make())
        body = await asyncio.shield(page)
        await self._turns.take(account)
        return body

    def _is_old(self, page: "asyncio.Task[bytes]") -> bool:
        return page.cancelled() or page.exception() is not None or self._clock() >= self._begun_at + PAGE_SECONDS

    async def _make(self) -> bytes:
        return await asyncio.to_thread(self._begin())
