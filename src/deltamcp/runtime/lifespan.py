"""A server's life: entered by the first door that opens, left when the last one closes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from deltamcp.runtime.watchdog import Watchdog

Lifespan = Callable[[], contextlib.AbstractAsyncContextManager[Any]]


class Life:
    """Holds an author's lifespan open, and has the loop watched meanwhile."""

    def __init__(self, lifespan: Lifespan | None, watchdog: Callable[[], Watchdog]) -> None:
        self.started = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state: Any = None
        """What the lifespan yielded."""
        self._lifespan = lifespan
        self._watchdog = watchdog
        self._doors = 0
        self._starting: asyncio.Lock | None = None
        self._living: asyncio.Task[None] | None = None
        self._ending: asyncio.Event | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For a door that knows when it closes."""
        self._doors += 1
        try:
            await self.start()
            yield
        finally:
            self._doors -= 1
            if not self._doors:
                await self._stop()

    async def start(self) -> None:
        """For a door that nobody tells when to close, such as an application mounted in another.

        Raises:
            Exception: whatever the lifespan raised on its way in.
        """
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self.started:
                return
            self.loop = asyncio.get_running_loop()
            self._ending = asyncio.Event()
            ready = self.loop.create_future()
            # In a task of its own, because a context must be left by the task that entered it.
            self._living = self.loop.create_task(self._live(ready, self._ending))
            self.state = await ready
            self.started = True

    async def _stop(self) -> None:
        if self._ending is not None and self._living is not None:
            self._ending.set()
            await self._living
        self._ending = self._living = self._starting = self.loop = None
        self.started = False

    async def _live(self, ready: "asyncio.Future[Any]", ending: asyncio.Event) -> None:
        watchdog = self._watchdog()
        try:
            async with self._lifespan() if self._lifespan is not None else contextlib.nullcontext() as state:
                watchdog.start(asyncio.get_running_loop())
                ready.set_result(state)
                await ending.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            watchdog.stop()
