"""The official SDK's client in legacy mode against replicas that keep no sessions and share nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext

from deltamcp import Context, DeltaServer
from tests.support.asgi_client import AsgiExchange
from tests.support.conditions import HANG_SECONDS
from tests.support.replicas import Replicas, replicas, serve_replicas


def make(store: str) -> DeltaServer:
    server = DeltaServer("notes", store=store)

    @server.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.report_progress(1, 2)
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"name": str})
        return answer.action

    @server.resource("notes://all")
    def notes() -> str:
        return "notes"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return server


@pytest.fixture
async def two() -> AsyncIterator[Replicas]:
    async with replicas(make, "memory://", sessions=False) as running:
        yield running


async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def test_lists_calls_and_pings_work_at_any_replica(two):
    heard: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with asyncio.timeout(HANG_SECONDS), serve_replicas(two) as address:
        async with Client(address, mode="legacy", elicitation_callback=elicit) as client:
            assert client.protocol_version == "2025-11-25"
            offered = client.server_capabilities
            assert offered.tools is not None and not offered.tools.list_changed and offered.logging is None
            for number in range(6):
                result: Any = await client.call_tool("add", {"a": number, "b": 1}, progress_callback=note)
                assert result.content[0].text == str(number + 1)
            assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "ask"]
            read: Any = await client.read_resource("notes://all")
            assert read.contents[0].text == "notes"
            prompt: Any = await client.get_prompt("greet", {"name": "Ann"})
            assert prompt.messages[0].content.text == "Hello Ann"
            refused: Any = await client.call_tool("ask")
            assert refused.is_error
    assert heard == [1] * 6


async def answer(exchange: AsgiExchange) -> tuple[int, dict[str, str], Any]:
    status, headers = await exchange.start()
    return status, headers, await exchange.json() if headers.get("content-length") != "0" else None


async def test_each_request_stands_alone(two):
    one, other = two.clients
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    status, headers, body = await answer(one.request(1, "initialize", **hello))
    assert status == 200 and "mcp-session-id" not in headers and body["result"]["protocolVersion"] == "2025-06-18"
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await answer(other.post(initialized)))[0] == 202
    # Clients of servers that restarted without sessions still send the id of theirs.
    for extra in ({}, {"mcp-session-id": "x"}, {"mcp-protocol-version": "2025-06-18"}):
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await answer(other.post(ping, **extra)))[2]["result"] == {}
    assert (await answer(other.get()))[0] == 405
    assert (await answer(AsgiExchange(two.apps[0], "DELETE", one.headers)))[0] == 405


async def test_the_header_says_which_version_a_request_has(two):
    one, _ = two.clients
    batch = [{"jsonrpc": "2.0", "id": id_, "method": "ping"} for id_ in (1, 2)]
    status, _, body = await answer(one.post(batch))
    assert status == 200 and len(body) == 2, "without a header it is 2025-03-26, which has batches"
    assert (await answer(one.post(batch, **{"mcp-protocol-version": "2025-11-25"})))[0] == 400


async def test_what_would_have_to_be_remembered_is_refused(two):
    one, _ = two.clients
    asks = (("logging/setLevel", {"level": "debug"}), ("resources/subscribe", {"uri": "notes://all"}))
    for method, params in asks:
        _, _, body = await answer(one.request(1, method, **params))
        assert "keeps no sessions" in body["error"]["message"]
