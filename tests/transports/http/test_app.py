"""Streamable HTTP in process: sessions, streams and their resumption, mounting in another application."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from deltamcp import Context, DeltaServer, Limits
from deltamcp.transports.http.app import HttpApp
from tests.support.asgi_client import ACCEPT_BOTH, INITIALIZE, AsgiClient, AsgiExchange, asgi_client
from tests.support.conditions import HANG_SECONDS
from tests.support.raw_client import META


@pytest.fixture
def server():
    server = DeltaServer("x", limits=Limits(ping_seconds=0.05, replay_events=8))

    @server.tool
    async def steps(ctx: Context, count: int = 3) -> str:
        for number in range(count):
            await ctx.report_progress(number)
        await gate.wait()
        return "done"

    @server.tool
    async def waits() -> str:
        started.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "done"

    gate, started, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
    server.gate, server.started, server.cancelled = gate, started, cancelled  # type: ignore[attr-defined]
    return server


async def test_a_lost_stream_is_taken_up_where_it_was_left(server):
    async with asgi_client(server) as client:
        await client.initialize()
        call = client.request(1, "tools/call", name="steps", _meta={"progressToken": "p"})
        assert (await call.start())[1]["content-type"] == "text/event-stream"
        primed = await call.event()
        assert (primed["data"], primed["retry"]) == ("", "100")
        first = await call.event()
        assert json.loads(first["data"])["params"]["progress"] == 0
        call.leave()
        resumed = client.get(**{"last-event-id": first["id"]})
        await resumed.start()
        assert (await resumed.event())["id"] == first["id"]
        assert [json.loads((await resumed.event())["data"])["params"]["progress"] for _ in range(2)] == [1, 2]
        server.gate.set()
        while not (event := await resumed.event()).get("data"):
            pass
        assert json.loads(event["data"])["result"]["content"][0]["text"] == "done"
        assert await resumed.event() == {}


async def test_a_client_that_leaves_before_a_stream_has_begun_cancels_its_call(server):
    async with asgi_client(server) as client:
        await client.initialize()
        for begin in (lambda: client.request(1, "tools/call", name="waits"), lambda: modern(client, "waits")):
            call = begin()
            await server.started.wait()
            call.leave()
            async with asyncio.timeout(HANG_SECONDS):
                await server.cancelled.wait()
                await call.task
            server.started.clear()
            server.cancelled.clear()


def modern(client: AsgiClient, tool: str, **arguments: Any) -> AsgiExchange:
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    params = {"name": tool, "arguments": arguments, "_meta": META}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    return client.post({**body, "params": params}, **headers)


async def test_a_long_call_gives_signs_of_life(server):
    async with asgi_client(server) as client:
        call = modern(client, "waits")
        assert (await call.start())[1]["content-type"] == "text/event-stream"
        assert (await call.next())["body"] == b":\n\n"
        server.gate.set()
        while not (event := await call.event()).get("data"):
            pass
        assert json.loads(event["data"])["result"]["content"][0]["text"] == "done"


async def test_a_client_that_wants_events_or_only_json_gets_what_it_wants(server):
    async with asgi_client(server) as client:
        client.headers["accept"] = "text/event-stream, application/json"
        server.gate.set()
        call = modern(client, "waits")
        assert (await call.start())[1]["content-type"] == "text/event-stream"
        client.headers["accept"] = "application/json"
        call = modern(client, "steps")
        assert (await call.start())[1]["content-type"] == "application/json"
        client.headers["accept"] = "image/png"
        assert (await modern(client, "waits").start())[0] == 406


async def test_the_newest_get_stream_is_the_one_that_hears(server):
    async with asgi_client(server) as client:
        await client.initialize()
        first, second = client.get(), None
        await first.start()
        second = client.get()
        await second.start()
        async with asyncio.timeout(HANG_SECONDS):
            await first.task
        server.remove_tool("waits")
        while not (event := await second.event()).get("data"):
            pass
        assert json.loads(event["data"])["method"] == "notifications/tools/list_changed"
        second.leave()
        await second.task


async def test_a_deleted_session_is_unknown_and_its_calls_end(server):
    async with asgi_client(server) as client:
        await client.initialize()
        call = client.request(1, "tools/call", name="waits")
        await server.started.wait()
        gone = AsgiExchange(client._app, "DELETE", client.headers)
        assert (await gone.start())[0] == 200
        async with asyncio.timeout(HANG_SECONDS):
            await server.cancelled.wait()
        assert (await call.start())[0] == 200
        assert (await client.request(2, "tools/list").start())[0] == 404


async def test_sessions_idle_too_long_make_room():
    server = DeltaServer("x", limits=Limits(sessions=2, account_share=1))
    async with asgi_client(server) as client:
        ids = []
        for _ in range(3):
            client.headers.pop("mcp-session-id", None)
            await client.initialize()
            ids.append(client.headers["mcp-session-id"])
        statuses = []
        for id_ in ids:
            client.headers["mcp-session-id"] = id_
            statuses.append((await client.request(1, "ping").start())[0])
        assert statuses == [404, 200, 200]


async def test_every_uri_of_a_subscription_counts_for_its_account_however_short_it_is(server):
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    async with asgi_client(server) as client:

        def listen(number: int) -> AsgiExchange:
            uris = [f"a:{number}{one}" for one in range(1_000)]
            params = {"_meta": META, "notifications": {"resourceSubscriptions": uris}}
            body = {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}
            return client.post(body, **headers)

        opened = [listen(number) for number in range(9)]
        statuses = [(await one.start())[0] for one in opened]
        assert statuses == [200] * 8 + [503]
        opened[0].leave()
        await opened[0].task
        assert (await listen(10).start())[0] == 200
        client.address = "127.0.0.2"
        assert (await listen(11).start())[0] == 200, "another account has its own share"


async def test_draining_ends_streams_with_their_last_word(server):
    async with asgi_client(server) as client:
        await client.initialize()
        get = client.get()
        params = {"_meta": META, "notifications": {"toolsListChanged": True}}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
        body = {"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen", "params": params}
        listen = client.post(body, **headers)
        await get.start()
        await listen.start()
        assert "acknowledged" in (await listen.event())["data"]
        client._app.drain()
        while not (event := await listen.event()).get("data"):
            pass
        assert json.loads(event["data"]) == {
            "jsonrpc": "2.0",
            "id": 5,
            "result": {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": 5}},
        }
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.gather(get.task, listen.task)


async def test_a_batch_is_answered_as_one_in_the_revision_that_has_them(server):
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}]
    async with asgi_client(server) as client:
        await client.initialize("2025-03-26")
        call = client.post(batch)
        assert (await call.start())[0] == 200
        assert [item["id"] for item in await call.json()] == [1, 2]
        client.headers.pop("mcp-session-id")
        await client.initialize("2025-06-18")
        assert (await client.post(batch).start())[0] == 400


async def test_the_application_can_be_mounted_in_another(server):
    app = Starlette(routes=[Mount("/tools", app=server.asgi("/")), Mount("/", app=server.asgi())])
    transport = httpx2.ASGITransport(app=app)
    headers = {"accept": ACCEPT_BOTH}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        for path in ("/mcp", "/tools/"):
            assert (await http.post(path, json=body, headers=headers)).json()["result"]["serverInfo"]["name"] == "x"
        assert (await http.post("/other", json=body, headers=headers)).status_code == 404


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", None, 200),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("[::1]:8000", "http://[::1]:8000", 200),
        ("tools.example", "https://tools.example", 200),
        ("tools.example:8443", None, 200),
        ("evil.example", None, 421),
        ("localhost.evil.example", None, 421),
        ("localhost", "https://evil.example", 403),
        ("localhost", "null", 403),
        ("localhost", "https://app.example", 200),
    ],
)
async def test_hosts_and_origins_are_checked(server, host, origin, status):
    app = server.asgi(
        allowed_hosts=["localhost", "127.0.0.1", "[::1]", "tools.example"], allowed_origins=["https://app.example"]
    )
    client = AsgiClient(app)
    client.headers |= {"host": host} | ({"origin": origin} if origin else {})
    assert (await client.request(0, "initialize", **INITIALIZE).start())[0] == status


async def test_one_account_has_a_share_of_the_calls_and_the_others_have_the_rest():
    server = DeltaServer("x", limits=Limits(calls=8, account_share=0.25))
    gate = asyncio.Event()

    @server.tool
    async def waits() -> str:
        await gate.wait()
        return "done"

    async with asgi_client(server) as client:
        first = [modern(client, "waits") for _ in range(3)]
        await asyncio.wait({call.task for call in first}, return_when=asyncio.FIRST_COMPLETED, timeout=HANG_SECONDS)
        assert [call.task.done() for call in first] == [False, False, True]
        assert (await first[2].start())[0] == 503
        client.address = "10.0.0.2"
        other = modern(client, "waits")
        gate.set()
        assert [(await call.start())[0] for call in (*first[:2], other)] == [200, 200, 200]


VALUES_AND_FIT = (
    ("x" * 90_000, 2),
    ([1] * 1_000, 2),
    (json.loads("[" * 100 + "]" * 100), 13),
    ("x" * 20_000 + "😀", 2),
)
"""Arguments, and how many calls with each of them fit into 200,000 bytes once they are decoded."""


@pytest.mark.parametrize(("value", "fit"), VALUES_AND_FIT, ids=["text", "list", "nested", "wide"])
async def test_calls_wait_until_their_decoded_arguments_have_room(value, fit):
    server = DeltaServer("x", limits=Limits(body_bytes=1_600_000, account_share=0.25))
    gate = asyncio.Event()
    began = asyncio.Queue[None]()

    @server.tool
    async def takes(value: Any, padding: str) -> str:
        began.put_nowait(None)
        await gate.wait()
        return "done"

    async with asgi_client(server) as client:
        assert isinstance(client._app, HttpApp)
        quotas = client._app._quotas
        calls = [modern(client, "takes", value=value, padding="x" * 1_000) for _ in range(fit + 1)]
        for _ in range(fit):
            await asyncio.wait_for(began.get(), HANG_SECONDS)
        async with asyncio.timeout(HANG_SECONDS):
            while not quotas.decoded._waiting:  # noqa: ASYNC110 - nothing tells that a call begins to wait
                await asyncio.sleep(0)
        assert began.empty() and not any(call.task.done() for call in calls)
        gate.set()
        assert [(await call.start())[0] for call in calls] == [200] * (fit + 1)
        await asyncio.gather(*(call.task for call in calls))
        assert not quotas.bodies._held and not quotas.decoded._held


async def test_a_call_that_waits_too_long_for_room_is_refused():
    server = DeltaServer("x", limits=Limits(body_bytes=800_000, account_share=0.25, body_seconds=0.01))
    gate = asyncio.Event()

    @server.tool
    async def takes(value: str) -> str:
        await gate.wait()
        return "done"

    async with asgi_client(server) as client:
        calls = [modern(client, "takes", value="x" * 60_000) for _ in range(2)]
        await asyncio.wait({call.task for call in calls}, return_when=asyncio.FIRST_COMPLETED, timeout=HANG_SECONDS)
        assert [call.task.done() for call in calls] == [False, True]
        assert (await calls[1].start())[0] == 503
        gate.set()
        assert (await calls[0].start())[0] == 200


async def test_the_bodies_that_are_not_decoded_yet_are_limited():
    server = DeltaServer("x", limits=Limits(body_bytes=800_000, account_share=0.25))
    gate, began = asyncio.Event(), asyncio.Event()

    @server.tool
    async def takes(value: str) -> str:
        began.set()
        await gate.wait()
        return "done"

    async with asgi_client(server) as client:
        calls = [modern(client, "takes", value="x" * 90_000)]
        await asyncio.wait_for(began.wait(), HANG_SECONDS)
        calls += [modern(client, "takes", value="x" * 90_000) for _ in range(3)]  # two of them wait
        await asyncio.wait({call.task for call in calls}, return_when=asyncio.FIRST_COMPLETED, timeout=HANG_SECONDS)
        assert [call.task.done() for call in calls] == [False, False, False, True]
        assert (await calls[3].start())[0] == 503
        gate.set()
        assert [(await call.start())[0] for call in calls[:3]] == [200] * 3


async def test_small_responses_of_a_batch_count_while_they_wait_for_the_others():
    server = DeltaServer("notes", limits=Limits(response_bytes=100_000, account_share=1.0))

    @server.tool
    async def read() -> str:
        return "x" * 20_000

    async with asgi_client(server) as client:
        await client.initialize("2025-03-26")
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "read", "arguments": {}}}
        for _ in range(2):
            exchange = client.post([{**call, "id": number} for number in range(8)])
            assert (await exchange.start())[0] == 200
            answers = json.loads((await exchange.next())["body"] + (await exchange.next())["body"])
            assert ["result" in answer for answer in answers] == [True] * 4 + [False] * 4
            assert "unread" in answers[-1]["error"]["message"]


async def test_a_batch_has_at_most_100_messages(server):
    async with asgi_client(server) as client:
        await client.initialize("2025-03-26")
        ping = {"jsonrpc": "2.0", "method": "ping"}
        for count, status in ((100, 200), (101, 413)):
            batch = client.post([{**ping, "id": number} for number in range(count)])
            assert (await batch.start())[0] == status


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/event-stream, application/json"])
@pytest.mark.parametrize("is_batch", [False, True], ids=["call", "batch"])
async def test_a_session_that_ends_during_a_call_leaves_nothing_behind(server, accept, is_batch):
    began = asyncio.Event()

    @server.tool
    async def holds() -> str:
        began.set()
        await asyncio.Event().wait()
        return "done"

    server.resource("notes://all", name="notes")(lambda: "x")
    async with asgi_client(server) as client:
        client.headers["accept"] = accept
        await client.initialize("2025-03-26")
        wait = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "holds", "arguments": {}}}
        watch = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "notes://all"}}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        call = client.post([wait, watch, note] if is_batch else wait)
        async with asyncio.timeout(HANG_SECONDS):
            await began.wait()
            assert (await AsgiExchange(client._app, "DELETE", client.headers).start())[0] == 200
            await call.task
        assert isinstance(client._app, HttpApp)
        quotas = client._app._quotas
        assert not any(getattr(quotas, name)._held for name in quotas.__slots__)
        assert not server.engine.hub._listeners
