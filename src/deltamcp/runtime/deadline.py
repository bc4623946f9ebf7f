"""Deadlines of calls, hooks that start when a call first waits, and the watch over the event loop.

Most calls end without waiting; a timer or a watcher for each of them would cost more than the call.
"""

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class WaitHook(Protocol):
    """Starts a service when a call first waits, and stops it when the call ends."""

    def on_wait(self) -> None: ...
    def on_end(self) -> None: ...


@types.coroutine
def run_with_hook(coroutine: Coroutine[Any, Any, T], hook: WaitHook) -> Generator[Any, Any, T]:
    """Awaits a coroutine in the current task; starts the hook at the coroutine's first suspension."""
    try:
        waiting = coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    hook.on_wait()
    try:
        while True:
            try:
                sent = yield waiting
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:
                waiting = coroutine.throw(thrown)
            else:
                waiting = coroutine.send(sent)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        hook.on_end()


class Deadline:
    """Cancels the task of a call that waits longer than its time, once."""

    __slots__ = ("_handle", "_paused", "_seconds", "_task", "expired")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._paused = 0
        self.expired: bool = False

    def on_wait(self) -> None:
        self._task = asyncio.current_task()
        self._start()

    def on_end(self) -> None:
        self._stop()
        self._paused += 1

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the clock inside the `with` block; afterwards the call has its whole time again."""
        self._stop()
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            self._start()

    def _start(self) -> None:
        if self._task is not None and not self._paused and not self.expired:
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _expire(self) -> None:
        assert self._task is not None, "only a started deadline has a timer"
        self.expired = True
        self._task.cancel()

    def undo_cancel(self) -> bool:
        """Revokes the cancellation; returns False if the task was cancelled for another reason as well."""
        assert self._task is not None, "only a started deadline expires"
        return self._task.uncancel() == 0


logger: logging.Logger = logging.getLogger("deltamcp")
_COLLECTOR_LOCK = threading.Lock()


class Watchdog:
    """Calls the event loop from a thread; if the loop does not respond in time, logs which function blocks it.

    An async function that computes or sleeps without awaiting stops every other call. The server cannot interrupt it,
    but the author can make it a plain function, which runs in a thread.
    """

    def __init__(self, seconds: float, name: Callable[[types.CodeType], str | None]) -> None:
        """
        Args:
            seconds: How long the loop may take to respond.
            name: Returns the name under which the function with this code is registered; None if it is not.
        """
        self._seconds = seconds
        self._name = name
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to watch the loop of the calling thread."""
        ident = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=(loop, ident), name="deltamcp-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._stopped.wait(self._seconds):
            alive = threading.Event()
            try:
                loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop has closed
                return
            if not alive.wait(self._seconds):
                logger.warning(
                    "%s has blocked the event loop for more than %.1f s; nothing else is served meanwhile",
                    self._blocking_function(ident),
                    self._seconds,
                )
                while not alive.wait(self._seconds):
                    if self._stopped.is_set():
                        return

    def _blocking_function(self, ident: int) -> str:
        innermost = _innermost_frame(ident)
        for frame in _frames_outwards(innermost):
            name = self._name(frame.f_code)
            if name is not None:
                return name
        return "Something" if innermost is None else f"The function {innermost.f_code.co_qualname}"


def _innermost_frame(ident: int) -> types.FrameType | None:
    """Returns the frame that a thread runs at present.

    CPython 3.11 allocates frames while it holds the lock on its list of threads. A garbage collection at that moment
    can want the same lock, for instance to clear a `threading.local`, and the whole process stops (CPython gh-106883).
    """
    with _COLLECTOR_LOCK:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to see another thread
        finally:
            if was_enabled:
                gc.enable()


def _frames_outwards(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
