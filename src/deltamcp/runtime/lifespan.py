"""A server's lifespan, and the tasks that end with it: in the background, and of calls.

The first transport that opens enters the lifespan; it ends when the last one closes.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import Any, TypeVar

from deltamcp.runtime.deadline import Watchdog

logger: logging.Logger = logging.getLogger("deltamcp")

T = TypeVar("T")

_END_SECONDS = 1.0
"""How long what cancelled calls still do may go on when the server closes; then the server cancels it once more."""

LifespanFactory = Callable[[], contextlib.AbstractAsyncContextManager[Any]]


class ServerLifespan:
    """Keeps a server open: its lifespan context (`DeltaServer` gives it), background tasks, and the watchdog."""

    def __init__(self, lifespan: LifespanFactory | None, watchdog: Callable[[], Watchdog]) -> None:
        self.started: bool = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state: Any = None
        """The value that the author's lifespan yielded."""
        self._lifespan = lifespan
        self._watchdog = watchdog
        self.first_modules: set[str] = set()
        """Modules that the first calls import, unless the process has loaded them before it takes connections."""
        self._openers: list[Callable[[], None]] = []
        self._background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._drainers: list[Callable[[float], None]] = []
        self._tasks: list[asyncio.Task[None]] | None = None
        self._call_tasks: set[asyncio.Task[Any]] = set()
        self._transports = 0
        self._start_lock: asyncio.Lock | None = None
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.Event | None = None

    def add_task(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine beside the requests, now if the server is open and whenever it opens, until it closes.

        It is cancelled when the server closes. If it fails, the log says so, and the server stays open.
        """
        self._background.append(make)
        if self.started and self.loop is not None:
            self.loop.call_soon_threadsafe(self._start_task, make)

    def _start_task(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is not None:
            self._tasks.append(asyncio.get_running_loop().create_task(_log_failure(make)))

    def load_first(self, modules: Collection[str]) -> None:
        """Has a process load these modules, which the first calls import, before it takes connections."""
        self.first_modules.update(modules)

    def add_opener(self, open_: Callable[[], None]) -> None:
        """Calls a function whenever the server opens, after the author's lifespan and before any transport serves."""
        self._openers.append(open_)

    def add_closer(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Calls an async function whenever the server closes. If it fails, the log says so."""
        self._closers.append(close)

    def add_drainer(self, drain: Callable[[float], None]) -> None:
        """Calls a function with a number of seconds when the server is about to close after them."""
        self._drainers.append(drain)

    def drain(self, seconds: float) -> None:
        """Tells the server's parts that it will close; what they have begun has `seconds` to end.

        A transport calls it when it takes no more requests.
        """
        for drain in self._drainers:
            drain(seconds)

    async def run_in_task(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of a call in a task of its own, and returns its value.

        If the call is cancelled, so is the task, but the call does not wait for it: what the task still does, it does
        beside the requests, until the server closes.
        """
        task = asyncio.get_running_loop().create_task(_value_or_error(make))
        self._call_tasks.add(task)
        task.add_done_callback(self._call_tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        value, error = task.result()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the lifespan open for a transport, until the transport closes."""
        self._transports += 1
        try:
            await self.start()
            yield
        finally:
            self._transports -= 1
            if not self._transports:
                await self._stop()

    async def start(self) -> None:
        """Opens the lifespan for a transport that has no close event, such as an application mounted in another.

        Raises:
            Exception: the author's lifespan raised it at its start.
        """
        if self._start_lock is None:
            self._start_lock = asyncio.Lock()
        async with self._start_lock:
            if self.started:
                return
            self.loop = asyncio.get_running_loop()
            self._end = asyncio.Event()
            ready = self.loop.create_future()
            # In a task of its own, because the task that enters a context must also leave it.
            self._task = self.loop.create_task(self._run(ready, self._end))
            self.state = await ready
            self.started = True

    async def _stop(self) -> None:
        if self._end is not None and self._task is not None:
            self._end.set()
            await self._task
        self._end = self._task = self._start_lock = self.loop = None
        self.started = False

    async def _run(self, ready: "asyncio.Future[Any]", end: asyncio.Event) -> None:
        watchdog = self._watchdog()
        try:
            async with self._lifespan() if self._lifespan is not None else contextlib.nullcontext() as state:
                for open_ in self._openers:
                    open_()
                async with self._running_tasks(), self._ending_call_tasks():
                    watchdog.start(asyncio.get_running_loop())
                    if not ready.cancelled():  # as the transport was, which then ends the lifespan
                        ready.set_result(state)
                    await end.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            watchdog.stop()
            for close in self._closers:
                await _log_failure(close)

    @contextlib.asynccontextmanager
    async def _running_tasks(self) -> AsyncIterator[None]:
        tasks = self._tasks = []
        for make in self._background:
            self._start_task(make)
        try:
            yield
        finally:
            self._tasks = None
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    @contextlib.asynccontextmanager
    async def _ending_call_tasks(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._call_tasks:
                await asyncio.wait(self._call_tasks, timeout=_END_SECONDS)
            for task in self._call_tasks:
                task.cancel()
            if self._call_tasks:
                await asyncio.wait(self._call_tasks, timeout=_END_SECONDS)


async def _value_or_error(make: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T | None, BaseException | None]:
    """The error comes as a value: a task that raises SystemExit or KeyboardInterrupt would stop the loop."""
    try:
        return await make(), None
    except BaseException as error:
        return None, error


async def _log_failure(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """What fails in the background does not end the server."""
    try:
        await make()
    except Exception:
        logger.exception("a background task failed")
