"""Notices when something blocks the event loop, and says what."""

import asyncio
import logging
import sys
import threading
import types
from collections.abc import Callable, Iterator

logger = logging.getLogger("deltamcp")


class Watchdog:
    """A thread that asks the loop for a sign of life; when none comes in time, it names the function at fault.

    An async function that computes or sleeps without awaiting stops every other call. It cannot be
    interrupted from outside, but its author can be told: make it a plain function, which runs in a thread.
    """

    def __init__(self, seconds: float, name: Callable[[types.CodeType], str | None]) -> None:
        """`name` tells what is registered under a function's code."""
        self._seconds = seconds
        self._name = name
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watches the loop this is called from."""
        watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=(loop, watched), name="deltamcp-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        while not self._stopped.wait(self._seconds):
            alive = threading.Event()
            try:
                loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop has closed
                return
            if not alive.wait(self._seconds):
                logger.warning(
                    "%s has blocked the event loop for more than %.1f s; nothing else is served meanwhile",
                    self._culprit(watched),
                    self._seconds,
                )
                while not alive.wait(self._seconds):
                    if self._stopped.is_set():
                        return

    def _culprit(self, watched: int) -> str:
        innermost = sys._current_frames().get(watched)  # noqa: SLF001 - the documented way to see another thread
        for frame in _outwards(innermost):
            name = self._name(frame.f_code)
            if name is not None:
                return name
        return "Something" if innermost is None else f"The function {innermost.f_code.co_qualname}"


def _outwards(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
