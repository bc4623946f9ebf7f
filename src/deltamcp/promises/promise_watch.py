"""Waiting for changes of the record of a promise, without polling for it."""

import asyncio
from collections.abc import Awaitable, Callable

from deltamcp.promises.record import PromiseRecord

_BACKSTOP_SECONDS = 5.0
"""How often a watch looks at its record although nothing was heard of it."""


class PromiseWatch:
    """Waits for changes of one record. It misses none from its beginning on."""

    def __init__(self, key: str, read: Callable[[str], Awaitable[PromiseRecord | None]]) -> None:
        self._key = key
        self._read = read
        self._known: PromiseRecord | None = None
        self._is_stale = True
        self._woken = asyncio.Event()
        self.is_stopped = False
        """Whether nobody should wait any longer."""

    def stop(self) -> None:
        """Ends the wait for a change."""
        self.is_stopped = True
        self._woken.set()

    def wake(self, changed: PromiseRecord | None) -> None:
        """Says that the record has changed, and to what; None if only the store knows."""
        if changed is None:
            self._is_stale = True
        elif self._known is None or changed.revision > self._known.revision:
            self._known, self._is_stale = changed, False
        self._woken.set()

    @property
    def known(self) -> PromiseRecord | None:
        """The record as far as this process knows; None if it may be outdated."""
        return None if self._is_stale else self._known

    def is_behind(self, revision: int) -> bool:
        """Whether it has yet to hear of a revision."""
        return self._known is None or self._known.revision < revision

    async def read(self) -> PromiseRecord | None:
        """Returns the record as it is now; None if there is none."""
        if self._is_stale:
            self._is_stale = False
            try:
                found = await self._read(self._key)
            except BaseException:
                self._is_stale = True
                raise
            if found is None or self.is_behind(found.revision):
                self._known = found
        return self._known

    async def next(self, revision: int, seconds: float) -> PromiseRecord | None:
        """Returns the record once it is newer than `revision`, or, after so many seconds or a stop, as it is then.

        Raises:
            StoreError: the store cannot be read.
        """
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        while True:
            self._woken.clear()
            found = await self.read()
            left = ends - clock()
            if found is None or found.revision > revision or left <= 0 or self.is_stopped:
                return found
            try:
                async with asyncio.timeout(min(left, _BACKSTOP_SECONDS)):
                    await self._woken.wait()
            except TimeoutError:
                self._is_stale = True
