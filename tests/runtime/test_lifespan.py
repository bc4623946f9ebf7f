"""The server's lifespan: background tasks run while a transport is open, and end with it."""

import asyncio
import contextlib
import gc

from deltamcp.runtime.deadline import Watchdog
from deltamcp.runtime.lifespan import ServerLifespan
from tests.support.conditions import wait_until


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


async def test_what_a_process_prepares_is_ready_before_a_transport_serves_and_any_task_begins():
    lifespan = ServerLifespan(None, lambda: Watchdog(60, lambda code: None))
    seen: list[str] = []

    async def task() -> None:
        seen.append("task")

    lifespan.add_task(task)
    lifespan.add_opener(lambda: seen.append("opener"))
    for _ in range(2):
        async with lifespan.running():
            assert seen[0] == "opener"
            await wait_until(lambda: seen == ["opener", "task"])
        seen.clear()


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


async def test_a_cancelled_call_does_not_wait_for_its_task_which_ends_with_the_server(monkeypatch):
    monkeypatch.setattr("deltamcp.runtime.lifespan._END_SECONDS", 0.01)
    events: list[str] = []
    started = asyncio.Event()

    async def work() -> None:
        for event in ("cancelled with its call", "cancelled with the server"):
            try:
                started.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                events.append(event)

    lifespan = ServerLifespan(None, lambda: Watchdog(60, lambda code: None))
    async with lifespan.running():
        call = asyncio.create_task(lifespan.run_in_task(work))
        await started.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await asyncio.sleep(0)
        assert events == ["cancelled with its call"]
    assert events == ["cancelled with its call", "cancelled with the server"]


async def test_a_call_cancelled_before_its_task_starts_leaves_nothing_behind(recwarn):
    async def work() -> None:
        raise AssertionError("never runs")

    lifespan = ServerLifespan(None, lambda: Watchdog(60, lambda code: None))
    async with lifespan.running():
        call = asyncio.create_task(lifespan.run_in_task(work))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_a_transport_that_gives_up_while_the_server_starts_ends_it():
    ended, go_on = [], asyncio.Event()

    @contextlib.asynccontextmanager
    async def author_lifespan():
        await go_on.wait()
        yield
        ended.append(True)

    lifespan = ServerLifespan(author_lifespan, lambda: Watchdog(60, lambda code: None))

    async def serve():
        async with lifespan.running():
            pass

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled() and ended
