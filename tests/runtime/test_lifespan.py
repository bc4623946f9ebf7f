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
