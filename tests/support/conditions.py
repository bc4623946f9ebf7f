"""Waiting for conditions, and moving the clock on, so that no test depends on how fast the machine is."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.values import Kind

HANG_SECONDS = 120.0
"""After this long something hangs. It bounds a failing test; no test that passes comes near it."""


_STALL = re.compile(
    r"^(?:WARNING deltamcp: )?The function \S+ has blocked the event loop for more than 1\.0 s;.*\n", re.MULTILINE
)


def without_stalls(text: str) -> str:
    """What a program wrote, without the warnings of a machine so busy that an import takes more than a second."""
    return _STALL.sub("", text)


async def wait_until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Looks again and again whether something has happened; fails where it does not."""
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while not condition():  # noqa: ASYNC110 - what happens elsewhere sets no event here
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None


def advance_clock(seconds: float) -> None:
    """Moves the clock of the running loop forward: every timer that is due by then runs next."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]


def is_listened_to(server: DeltaServer, change: Kind | str) -> bool:
    """Whether a client of a server in this process is told of a changed list, or of a changed resource by its URI."""
    return any(listener.wants(change) for listener in server.engine.hub._listeners)


def advance_store_clock(server: DeltaServer, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Moves the clocks of this process and of a server's store forward: what is kept for less than that expires."""
    store: Any = getattr(server._store, "_store", server._store)  # behind a circuit breaker, or not
    in_store, in_process = store._clock, time.monotonic
    monkeypatch.setattr(store, "_clock", lambda: in_store() + seconds)
    monkeypatch.setattr(time, "monotonic", lambda: in_process() + seconds)
