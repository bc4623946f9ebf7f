"""The server's lifespan: background tasks run while a transport is open, and end with it."""

import asyncio

from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.runtime.watchdog import Watchdog


async def test_a_background_task_runs_whenever_the_server_is_open():
    events: list[str] = []
    started = asyncio.Event()

    async def work() -> None:
        events.append("started")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ended")

    lifespan = ServerLifespan(None, lambda: Watchdog(60, lambda code: None))
    lifespan.add_task(work)
    for _ in range(2):
        async with lifespan.running():
            await started.wait()
            started.clear()
    assert events == ["started", "ended", "started", "ended"]


async def test_a_background_task_that_fails_is_logged_and_the_server_stays_open(caplog):
    failed = asyncio.Event()

    async def fails() -> None:
        try:
            raise RuntimeError("no disk")
        finally:
            failed.set()

    lifespan = ServerLifespan(None, lambda: Watchdog(60, lambda code: None))
    lifespan.add_task(fails)
    async with lifespan.running():
        await failed.wait()
        await asyncio.sleep(0)
        assert lifespan.started
    assert "a background task failed" in caplog.text
