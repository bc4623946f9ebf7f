"""The queue and the worker of promises: keys reach one worker, survive its death, and are given back at the end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deltamcp import Limits
from deltamcp.promises.runner import PromiseRunner
from deltamcp.runtime.deadline import Watchdog
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.stores.store import StoreUnreachableError
from tests.support.conditions import wait_until
from tests.support.processes import free_port
from tests.support.redis_server import redis_server

LIMITS = Limits(redelivery_seconds=1.0, drain_seconds=2.0)


class Runs:
    """What runs promises, and the keys that it has begun and ended."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def run(self, key: str) -> None:
        self.begun.append(key)
        await self.may_end.wait()
        self.ended.append(key)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    with redis_server(port, tmp_path):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(params=["memory", "redis"])
def queue_url(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("redis_url") if request.param == "redis" else None


@contextlib.asynccontextmanager
async def running(
    run: Runs, url: str | None, concurrency: int = 8, limits: Limits = LIMITS
) -> AsyncIterator[tuple[PromiseRunner, ServerLifespan]]:
    """A runner in the lifespan of a server."""
    lifespan = ServerLifespan(None, lambda: Watchdog(60.0, lambda code: None))
    runner = PromiseRunner(lifespan, url, "a server", limits, concurrency, run.run)
    runner.start()
    async with lifespan.running():
        yield runner, lifespan


async def test_each_key_is_run_once(queue_url):
    runs = Runs()
    async with running(runs, queue_url) as (runner, _):
        keys = [f"key {number}" for number in range(40)]
        await asyncio.gather(*map(runner.enqueue, keys))
        await wait_until(lambda: len(runs.ended) >= 40)
    assert sorted(runs.begun) == sorted(keys)


async def test_a_key_that_waits_or_runs_is_not_added_again(queue_url):
    runs = Runs()
    runs.may_end.clear()
    async with running(runs, queue_url, concurrency=1) as (runner, _):
        await runner.enqueue("runs")
        await wait_until(lambda: runs.begun == ["runs"])
        for key in ("runs", "waits", "waits"):
            await runner.enqueue(key)
        runs.may_end.set()
        await wait_until(lambda: runs.ended == ["runs", "waits"])
        await runner.enqueue("last")
        await wait_until(lambda: "last" in runs.ended)
    assert runs.begun == ["runs", "waits", "last"]


async def test_no_more_keys_run_at_once_than_the_concurrency(queue_url):
    runs = Runs()
    runs.may_end.clear()
    async with running(runs, queue_url, concurrency=3) as (runner, _):
        await asyncio.gather(*(runner.enqueue(f"key {number}") for number in range(10)))
        await wait_until(lambda: len(runs.begun) == 3)
        await asyncio.sleep(0.3)
        assert len(runs.begun) == 3
        runs.may_end.set()
        await wait_until(lambda: len(runs.ended) == 10)


async def test_a_process_without_a_worker_leaves_the_keys_to_others(redis_url):
    idle, runs = Runs(), Runs()
    async with running(idle, redis_url, concurrency=0) as (queue, _):
        await queue.enqueue("one")
        await queue.enqueue("two")
        async with running(runs, redis_url):
            await wait_until(lambda: sorted(runs.ended) == ["one", "two"])
    assert idle.begun == []


async def test_what_runs_when_the_server_drains_may_end_and_nothing_begins(queue_url):
    runs = Runs()
    runs.may_end.clear()
    async with running(runs, queue_url, limits=Limits(redelivery_seconds=240)) as (runner, lifespan):
        await runner.enqueue("runs")
        await wait_until(lambda: runs.begun == ["runs"])
        lifespan.drain(60)
        await asyncio.sleep(2)  # what the worker was about to take meanwhile it may still begin
        await runner.enqueue("too late")
        await asyncio.sleep(0.2)
        runs.may_end.set()
        await wait_until(lambda: runs.ended == ["runs"])
    assert runs.begun == ["runs"]


async def test_a_key_in_memory_that_came_too_late_is_lost_sooner_than_one_in_redis(redis_url):
    """Its process ends, and a call through a gateway of several workers waited half a minute for another."""
    async with running(Runs(), None) as (private, _), running(Runs(), redis_url) as (shared, _):
        assert private.lost_seconds < shared.lost_seconds == 30


async def test_ml_43_what_does_not_end_in_time_is_given_to_another_worker(redis_url):
    stuck, other = Runs(), Runs()
    stuck.may_end.clear()
    async with running(other, redis_url, concurrency=1) as (runner, _):
        other.may_end.clear()
        await runner.enqueue("occupies the other")
        await wait_until(lambda: other.begun == ["occupies the other"])
        async with running(stuck, redis_url) as (_, lifespan):
            await runner.enqueue("given back")
            await wait_until(lambda: stuck.begun == ["given back"])
            lifespan.drain(0.1)
        assert stuck.ended == []
        other.may_end.set()
        await wait_until(lambda: other.ended == ["occupies the other", "given back"])


async def test_a_promise_is_run_again_while_the_store_fails():
    runs = Runs()
    failures = [StoreUnreachableError("The store is gone."), StoreUnreachableError("The store is gone.")]

    async def run(key: str) -> None:
        if failures:
            raise failures.pop()
        await Runs.run(runs, key)

    runs.run = run  # type: ignore[method-assign]
    async with running(runs, None) as (runner, _):
        await runner.enqueue("one")
        await wait_until(lambda: runs.ended == ["one"])


async def test_an_error_of_ours_is_logged_and_ends_that_key_alone(caplog):
    runs = Runs()

    async def run(key: str) -> None:
        if key == "broken":
            raise RuntimeError("a defect")
        await Runs.run(runs, key)

    runs.run = run  # type: ignore[method-assign]
    async with running(runs, None) as (runner, _):
        await runner.enqueue("broken")
        await runner.enqueue("whole")
        await wait_until(lambda: runs.ended == ["whole"])
    assert "a promise could not be run" in caplog.text and "a defect" in caplog.text


async def test_the_log_has_no_line_for_what_goes_well(queue_url, caplog):
    caplog.set_level(logging.INFO)
    runs = Runs()
    async with running(runs, queue_url) as (runner, _):
        await runner.enqueue("one")
        await wait_until(lambda: runs.ended == ["one"])
    assert caplog.text == ""


async def test_a_queue_whose_redis_is_gone_refuses_with_one_sentence_and_recovers(tmp_path, caplog):
    port, runs = free_port(), Runs()
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(port, tmp_path):
            runner, _ = await stack.enter_async_context(running(runs, f"redis://127.0.0.1:{port}/0"))
            await runner.enqueue("before")
            await wait_until(lambda: runs.ended == ["before"])
        with pytest.raises(StoreUnreachableError, match=r"^The queue of promises does not answer\.$"):
            await runner.enqueue("meanwhile")
        with redis_server(port, tmp_path):
            await runner.enqueue("after")
            await wait_until(lambda: "after" in runs.ended)
            await stack.aclose()
    said = [record for record in caplog.records if record.name == "deltamcp"]
    assert [record.getMessage() for record in said if record.exc_info] == []
    assert any("until Redis answers again" in record.getMessage() for record in said)


async def test_a_worker_says_that_redis_is_gone_though_nobody_adds_a_key(tmp_path, caplog):
    port, runs = free_port(), Runs()
    async with contextlib.AsyncExitStack() as stack:
        with redis_server(port, tmp_path):
            runner, _ = await stack.enter_async_context(running(runs, f"redis://127.0.0.1:{port}/0"))
            await runner.enqueue("before")
            await wait_until(lambda: runs.ended == ["before"])
        await wait_until(lambda: "until Redis answers again" in caplog.text)
        with redis_server(port, tmp_path):
            await stack.aclose()


async def test_a_queue_that_cannot_be_opened_refuses_keys_instead_of_waiting_for_ever(monkeypatch, caplog):
    def fail(*queue: object) -> None:
        raise RuntimeError("another version of docket")

    monkeypatch.setattr("deltamcp.promises.docket_queue.KeyQueue", fail)
    monkeypatch.setattr("deltamcp.promises.runner._OPEN_SECONDS", 0.05)
    async with running(Runs(), None) as (runner, _):
        with pytest.raises(StoreUnreachableError, match="could not be opened"):
            await runner.enqueue("key")
    assert "another version of docket" in caplog.text


def test_a_server_that_opens_again_in_another_event_loop_has_a_queue_again(queue_url):
    lifespan = ServerLifespan(None, lambda: Watchdog(60.0, lambda code: None))
    runs = Runs()
    runner = PromiseRunner(lifespan, queue_url, "a server", LIMITS, 4, runs.run)

    async def open_and_run(key: str) -> None:
        runs.may_end = asyncio.Event()
        runs.may_end.set()
        async with lifespan.running():
            await runner.enqueue(key)
            await wait_until(lambda: key in runs.ended)

    asyncio.run(open_and_run("first"))
    asyncio.run(open_and_run("second"))
    assert runs.ended == ["first", "second"]
