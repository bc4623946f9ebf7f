"""Sessions while their store does not answer: what a process has goes on, and nobody is told that a session is gone."""

import signal
from typing import Any

from deltamcp import Context, DeltaServer, Limits
from tests.support.asgi_client import AsgiExchange
from tests.support.processes import free_port
from tests.support.redis_server import redis_server
from tests.support.replicas import replicas
from tests.support.store_medium import until


def make(store: str) -> DeltaServer:
    server = DeltaServer("notes", store=store, limits=Limits(store_seconds=0.5))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(ctx: Context) -> str:
        await ctx.log("info", "one")
        return "counted"

    @server.resource("notes://all")
    def notes() -> str:
        return "notes"

    return server


async def answer(exchange: AsgiExchange) -> tuple[int, dict[str, str]]:
    status, headers = await exchange.start()
    return status, headers


def delete(app: Any, headers: dict[str, str]) -> AsgiExchange:
    return AsgiExchange(app, "DELETE", headers)


async def test_while_redis_is_away_sessions_go_on_where_they_live_and_nowhere_are_they_lost(tmp_path):
    port = free_port()
    with redis_server(port, tmp_path) as process:
        async with replicas(make, f"redis://127.0.0.1:{port}/0") as two:
            one, other = two.clients
            await one.initialize()
            assert (await answer(one.request(1, "ping")))[0] == 200
            process.kill()
            process.wait()
            call = one.request(2, "tools/call", name="add", arguments={"a": 1, "b": 2})
            assert (await answer(call))[0] == 200, "this process has the session"
            assert (await call.json())["result"]["content"][0]["text"] == "3"
            stream = one.request(3, "tools/call", name="count", arguments={})
            assert (await answer(stream))[0] == 200
            refused = [
                other.request(4, "ping"),
                other.request(5, "logging/setLevel", level="debug"),
                one.get(),
                delete(two.apps[0], one.headers),
                two.another_principal(**{"mcp-session-id": "0" * 32}).request(7, "ping"),
            ]
            for exchange in refused:
                status, headers = await answer(exchange)
                assert status == 503 and int(headers["retry-after"]) >= 1
            level = one.request(6, "logging/setLevel", level="debug")
            assert (await answer(level))[0] == 503
            new = two.another_principal()
            del new.headers["mcp-session-id"]
            opened = new.request(8, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
            assert (await answer(opened))[0] == 503
            sessions: Any = two.apps[1]._endpoint._in_sessions._sessions
            assert not sessions._live._open, "what could not be stored is not kept"


async def test_once_redis_answers_again_the_sessions_it_kept_are_served_everywhere(tmp_path):
    port = free_port()
    with redis_server(port, tmp_path) as process:
        async with replicas(make, f"redis://127.0.0.1:{port}/0") as two:
            one, other = two.clients
            await one.initialize()
            process.send_signal(signal.SIGSTOP)
            try:
                assert (await answer(other.request(1, "ping")))[0] == 503
            finally:
                process.send_signal(signal.SIGCONT)

            async def is_served() -> bool:
                return (await answer(other.request(1, "ping")))[0] == 200

            await until(is_served)
            assert (await answer(delete(two.apps[1], other.headers)))[0] == 200
            assert (await answer(one.request(2, "ping")))[0] == 404


async def test_a_store_that_is_full_refuses_new_sessions_and_serves_the_others(tmp_path):
    def make_small(store: str) -> DeltaServer:
        return DeltaServer("notes", store=store, limits=Limits(stored_bytes=20_000, stored_bytes_per_account=20_000))

    async with replicas(make_small, f"sqlite:///{tmp_path}/store.db", count=1) as running:
        [client] = running.clients
        await client.initialize()
        session = client.headers["mcp-session-id"]
        statuses = []
        for number in range(5):
            del client.headers["mcp-session-id"]
            client.address = f"10.0.0.{number}"
            hello = client.request(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
            statuses.append((await answer(hello))[0])
            client.headers["mcp-session-id"] = session
        assert 503 in statuses and 200 in statuses
        assert (await answer(client.request(2, "ping")))[0] == 200
