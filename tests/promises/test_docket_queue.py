"""What docket reads from Redis: keys, and never a pickle, whoever put it there."""

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deltamcp import Limits
from deltamcp.promises.docket_queue import KeyQueue
from deltamcp.promises.runner import PromiseRunner
from deltamcp.runtime.deadline import Watchdog
from deltamcp.runtime.lifespan import ServerLifespan
from tests.support.conditions import wait_until
from tests.support.processes import free_port
from tests.support.redis_server import redis_server

QUEUE = "deltamcp:promises:a server"
LONG_AGO = "2020-01-01T00:00:00+00:00"
READS_OF_ENTRIES = {"xread", "xreadgroup", "xrange", "xclaim", "xautoclaim", "hgetall"}


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    port, folder = free_port(), tmp_path / "redis"
    folder.mkdir()
    with redis_server(port, folder):
        yield f"redis://127.0.0.1:{port}/0"


class MakesFolder:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


async def put_pickles_everywhere(redis: Redis, executed: Path, name: str) -> None:
    """Writes a pickle wherever docket has one, and wherever it has something else."""

    def attack(place: str) -> bytes:
        return pickle.dumps(MakesFolder(executed / f"{place} {name}"), protocol=0)  # ASCII, so that all of it is text

    def entry(place: str, key: str) -> Any:
        return {
            "key": key,
            "when": LONG_AGO,
            "function": "run_promise",
            "args": attack(f"args of {place}"),
            "kwargs": attack(f"kwargs of {place}"),
            "attempt": "1",
            "generation": "0",
        }

    for direction in ("strike", "restore"):
        for struck in ({"function": "run_promise"}, {"parameter": "key"}):
            strike: Any = {"direction": direction, **struck, "operator": "==", "value": attack(direction)}
            await redis.xadd(f"{QUEUE}:strikes", strike)
    await redis.xadd(f"{QUEUE}:stream", entry("stream", f"streamed {name}"))
    await redis.hset(f"{QUEUE}:parked {name}", mapping=entry("queue", f"parked {name}"))
    await redis.zadd(f"{QUEUE}:queue", {f"parked {name}": 0.0})
    for key in (f"streamed {name}", "ours"):
        result: Any = {
            "result": attack("result"),
            "result_key": f"{key}:0",
            "error": attack("error"),
            "state": "completed",
        }
        await redis.hset(f"{QUEUE}:runs:{key}", mapping={**entry("run", key), **result})
        await redis.hset(f"{QUEUE}:progress:{key}", mapping={"current": attack("progress"), "total": "1"})
        await redis.set(f"{QUEUE}:known:{key} {name}", attack("known"))
        await redis.set(f"{QUEUE}:stream-id:{key} {name}", attack("stream id"))
        await redis.set(f"{QUEUE}:results::{key}:0", attack("stored result"))
        for channel in ("cancel", "state", "progress"):
            await redis.publish(f"{QUEUE}:{channel}:{key} {name}", attack(channel))


@pytest.mark.parametrize("concurrency", [0, 4], ids=["without a worker", "with a worker"])
async def test_nothing_that_somebody_put_into_redis_is_unpickled(redis_url, tmp_path, concurrency, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.docket_queue._SCHEDULE_SECONDS", 0.05)
    executed = tmp_path / "executed"
    executed.mkdir()
    begun: list[str] = []

    async def run(key: str) -> None:
        begun.append(key)

    lifespan = ServerLifespan(None, lambda: Watchdog(60.0, lambda code: None))
    runner = PromiseRunner(lifespan, redis_url, "a server", Limits(), concurrency, run)
    async with Redis.from_url(redis_url) as redis:
        await put_pickles_everywhere(redis, executed, "before")
        await redis.config_resetstat()
        runner.start()
        async with lifespan.running():
            await runner.enqueue("ours")
            await put_pickles_everywhere(redis, executed, "meanwhile")
            await runner.enqueue("ours too")
            if concurrency:
                written = {f"{way} {time}" for way in ("streamed", "parked") for time in ("before", "meanwhile")}
                await wait_until(
                    lambda: {"ours", "ours too", *written} <= set(begun), "all keys, of whoever added them"
                )
            used = {name.removeprefix("cmdstat_") for name in await redis.info("commandstats")}
    assert [path.name for path in executed.iterdir()] == []
    assert "xread" not in used
    if not concurrency:
        assert begun == [] and not used & READS_OF_ENTRIES


async def test_a_queue_in_memory_reads_no_strikes_either():
    async with KeyQueue("a queue", "memory://of-a-test", lambda key: asyncio.sleep(0)) as queue:
        assert queue.strike_list.url is None
