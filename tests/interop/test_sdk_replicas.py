"""The official SDK's client in legacy mode against two replicas that take its requests in turn."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from deltamcp import Context, DeltaServer, Limits
from deltamcp.values import Kind
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.replicas import Replicas, replicas, serve_replicas


def make(store: str) -> DeltaServer:
    server = DeltaServer("notes", store=store, limits=Limits(store_seconds=30))
    server.calls = []  # type: ignore[attr-defined]
    server.cancelled = 0  # type: ignore[attr-defined]

    @server.tool
    async def add(a: int, b: int) -> int:
        server.calls.append((a, b))  # type: ignore[attr-defined]
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"name": str})
        return f"hello {answer.content['name']}" if answer.accepted else answer.action

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.log("info", "begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            server.cancelled += 1  # type: ignore[attr-defined]
            raise
        return "never"

    @server.tool
    async def leave(ctx: Context) -> str:
        await ctx.detach()
        await asyncio.sleep(0.3)
        return "found again"

    @server.resource("notes://all")
    def notes() -> str:
        return "notes"

    return server


class Host:
    """A client's side: it answers questions and collects notifications."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ann"})

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.heard.append(str(params.data))

    async def hear(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            raise message
        self.heard.append(type(message).__name__)

    def connect(self, address: str) -> Client:
        return Client(
            address,
            mode="legacy",
            elicitation_callback=self.elicit,
            logging_callback=self.log,
            message_handler=self.hear,
        )


@pytest.fixture
async def two(tmp_path) -> AsyncIterator[Replicas]:
    async with replicas(make, f"sqlite:///{tmp_path}/store.db") as running:
        yield running


@pytest.fixture
async def address(two) -> AsyncIterator[str]:
    async with serve_replicas(two) as url:
        yield url


def text(result: types.CallToolResult) -> str:
    [item] = result.content
    assert isinstance(item, types.TextContent)
    return item.text


async def test_a_session_is_served_by_both(address, two):
    async with asyncio.timeout(HANG_SECONDS), Host().connect(address) as client:
        for number in range(10):
            assert text(await client.call_tool("add", {"a": number, "b": 1})) == str(number + 1)
        assert len((await client.list_tools()).tools) == 4
    assert all(server.calls for server in two.servers)


async def test_many_sessions_at_once(address, two):
    async def one(number: int) -> None:
        async with Host().connect(address) as client:
            for turn in range(4):
                assert text(await client.call_tool("add", {"a": number, "b": turn})) == str(number + turn)
            assert text(await client.call_tool("ask")) == "hello Ann"

    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.gather(*(one(number) for number in range(12)))
    assert sum(len(server.calls) for server in two.servers) == 48


async def test_a_question_is_answered_through_whichever_replica_comes_next(address):
    async with asyncio.timeout(HANG_SECONDS), Host().connect(address) as client:
        for _ in range(6):
            assert text(await client.call_tool("ask")) == "hello Ann"


async def test_a_response_is_found_by_reconnecting_to_whichever_replica(address):
    async with asyncio.timeout(HANG_SECONDS), Host().connect(address) as client:
        for _ in range(4):
            assert text(await client.call_tool("leave")) == "found again"


async def test_a_cancellation_finds_its_call(address, two):
    host = Host()
    async with asyncio.timeout(HANG_SECONDS), host.connect(address) as client:
        for turn in range(1, 5):
            call = asyncio.create_task(client.call_tool("wait"))
            await wait_until(lambda: host.heard.count("begun") == turn)  # noqa: B023
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await wait_until(lambda: sum(server.cancelled for server in two.servers) == turn)  # noqa: B023


async def test_changes_at_either_replica_are_heard(address, two):
    host = Host()
    async with asyncio.timeout(HANG_SECONDS), host.connect(address) as client:
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource("notes://all")
        for turn, server in enumerate(two.servers, 1):
            server.list_changed(Kind.TOOLS)
            server.resource_updated("notes://all")
            await wait_until(lambda: host.heard.count("ToolListChangedNotification") >= turn)  # noqa: B023
            await wait_until(lambda: host.heard.count("ResourceUpdatedNotification") >= turn)  # noqa: B023


async def test_after_delete_the_session_is_unknown(address, two):
    async with asyncio.timeout(HANG_SECONDS):
        async with Host().connect(address) as client:
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
        live: list[Any] = [app._endpoint._in_sessions._sessions._live for app in two.apps]
        await wait_until(lambda: not any(sessions._open for sessions in live))


async def test_an_error_is_still_an_error(address):
    async with asyncio.timeout(HANG_SECONDS), Host().connect(address) as client:
        with pytest.raises(MCPError):
            await client.read_resource("notes://missing")
