"""Deadlines of calls, and hooks that start when a call first waits.

Most calls end without waiting; a timer or a watcher for each of them would cost more than the call.
"""

import asyncio
import contextlib
import types
from collections.abc import Coroutine, Generator, Iterator
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
        self.expired = False

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
