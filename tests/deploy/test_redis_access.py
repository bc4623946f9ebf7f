"""Redis as deploy/redis has it: the server and its workers may what they need there, and nobody may more."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from deltamcp import Limits, connect
from deltamcp.promises.runner import PromiseRunner
from deltamcp.runtime.deadline import Watchdog
from deltamcp.runtime.lifespan import ServerLifespan
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import free_port, wait_until_it_listens
from tests.support.program import running_program
from tests.support.redis_server import ProtectedRedis, protected_redis_server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[ProtectedRedis]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with protected_redis_server(free_port(), folder) as started:
        yield started


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Any]:
    client: Any = Redis.from_url(url)
    async with client:
        yield client


async def refused(redis: ProtectedRedis) -> list[Any]:
    async with client_of(redis.admin_url) as admin:
        found: list[Any] = await admin.acl_log()
        return found


async def test_a_server_and_a_worker_are_refused_nothing(redis, tmp_path):
    port, places = free_port(), [tmp_path / name for name in ("server", "worker")]
    environment = {**os.environ, "DELTA_MCP_STORE": redis.url}
    file = str(tmp_path / "server.py")
    written = (ROOT / "deploy" / "server.py").read_text()
    patient = written.replace('"shelf", ', '"shelf", limits=Limits(store_seconds=60), ')  # on a busy machine, too
    Path(file).write_text(patient.replace("import Context", "import Limits, Context"))
    serve = [
        str(FORKED_PROGRAM),
        "serve",
        file,
        "--http",
        f"127.0.0.1:{port}",
        "--no-worker",
        "--rate-address",
        "500/60",
    ]
    for place in places:
        place.mkdir()
    with (
        running_program([*serve, "--workers", "2"], places[0], env=environment) as server,
        running_program([str(FORKED_PROGRAM), "worker", file], places[1], env=environment) as worker,
    ):
        wait_until_it_listens(server.process, port)
        for speak in ("handshake", "auto"):
            async with asyncio.timeout(HANG_SECONDS):
                url = f"http://127.0.0.1:{port}/mcp"
                async with connect(url, speak=speak, on_elicitation=lambda question: {"value": "Ada"}) as client:
                    assert len([row async for row in client.rows("list_books")]) == 300
                    assert "Ada takes volume 1" in await client.call("lend", id=1)
                    call = await client.start("take_stock", seconds_per_shelf=0.15)
                    assert await call.result() == "300 books, as there should be."
                    await (await client.start("take_stock", seconds_per_shelf=60)).cancel()
        assert "No permissions" not in server.text() + worker.text()
    assert await refused(redis) == []


async def test_a_worker_that_takes_over_from_another_is_refused_nothing(redis):
    begun: list[str] = []
    may_end = asyncio.Event()

    async def run(key: str) -> None:
        begun.append(key)
        await may_end.wait()

    def runner(lifespan: ServerLifespan) -> PromiseRunner:
        return PromiseRunner(lifespan, redis.url, "shelf", Limits(redelivery_seconds=1.0, store_seconds=60.0), 4, run)

    lifespans = [ServerLifespan(None, lambda: Watchdog(60.0, lambda code: None)) for _ in range(2)]
    async with lifespans[0].running():
        async with lifespans[1].running():
            first = runner(lifespans[1])
            await first.enqueue("a key")
            await wait_until(lambda: begun == ["a key"])
            await asyncio.sleep(1.0)  # its lease is renewed
            lifespans[1].drain(0.0)
        runner(lifespans[0]).start()
        await wait_until(lambda: begun == ["a key", "a key"])
        may_end.set()
    assert await refused(redis) == []


@pytest.mark.parametrize(
    "command",
    [
        ["GET", "other"],
        ["XADD", "other:stream", "*", "a", "b"],
        ["EVAL", "return redis.call('SET', 'other', '1')", "0"],
        ["EVAL", "return redis.call('FLUSHALL')", "0"],
        ["PUBLISH", "other", "x"],
        ["PSUBSCRIBE", "*"],
        *(["KEYS", "*"], ["SCAN", "0"], ["FLUSHALL"], ["CONFIG", "GET", "*"], ["ACL", "LIST"], ["MONITOR"]),
        *(["MODULE", "LIST"], ["SAVE"], ["SHUTDOWN"], ["REPLICAOF", "192.0.2.1", "6379"]),
        *(["CLIENT", "LIST"], ["RENAME", "deltamcp:a", "deltamcp:b"], ["MIGRATE", "192.0.2.1", "6379", "k", "0", "1"]),
    ],
    ids=" ".join,
)
async def test_the_user_of_the_server_may_no_more(redis, command):
    async with client_of(redis.url) as client:
        with pytest.raises(
            (NoPermissionError, ResponseError), match=r"(?i)permission|can't run this command|can't access"
        ):
            await client.execute_command(*command)


async def test_who_has_no_password_may_see_that_redis_lives(redis):
    async with client_of(redis.anonymous_url) as client:
        assert await client.ping()
        for command in (["GET", "deltamcp:a"], ["INFO"], ["SET", "deltamcp:a", "1"], ["PUBLISH", "deltamcp:a", "1"]):
            with pytest.raises(NoPermissionError):
                await client.execute_command(*command)
    async with client_of(redis.anonymous_url.replace("rediss://", "redis://").partition("?")[0]) as client:
        with pytest.raises(RedisConnectionError):
            await client.ping()
