"""The official SDK's client in front of the gateway, npm's server-everything, of the handshake era, behind it."""

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext

from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.interop.install import program
from tests.interop.servers import SERVERS
from tests.support.conditions import HANG_SECONDS
from tests.support.sdk_host import Peer, connect_peer
from tests.support.sdk_streams import sdk_streams

pytestmark = pytest.mark.interop

MODES = ["legacy", "2026-07-28"]


class Guest(Peer):
    """A user who gives a name and opens addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[types.ElicitRequestParams] = []

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        content: Any = {"name": "Ada"} if isinstance(params, types.ElicitRequestFormParams) else None
        return types.ElicitResult(action="accept", content=content)


@pytest.fixture
def gateway() -> Gateway:
    command, *words = program("everything")
    entry = {"command": command, "args": [*words, *SERVERS["everything"].words]}
    config = UpstreamConfig(name="everything", entry=entry, promise="never")
    return Gateway(GatewayConfig(upstreams=[config], disclosure="full"))


def text(result: types.CallToolResult) -> str:
    assert not result.is_error, result
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def connected(gateway: Gateway, mode: str, guest: Guest) -> Client:
    return connect_peer(sdk_streams(gateway.server), mode, guest)


@pytest.mark.parametrize("mode", MODES)
async def test_it_may_ask_the_user_the_model_and_for_roots(gateway: Gateway, mode: str) -> None:
    guest = Guest()
    async with asyncio.timeout(HANG_SECONDS), connected(gateway, mode, guest) as client:
        assert "Ada" in text(await client.call_tool("trigger-elicitation-request"))
        assert "Paris" in text(await client.call_tool("trigger-sampling-request", {"prompt": "?", "maxTokens": 5}))
        assert "file:///work" in text(await client.call_tool("get-roots-list"))
    assert len(guest.asked) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_it_reports_progress_and_answers_as_directly(gateway: Gateway, mode: str) -> None:
    guest = Guest()
    async with asyncio.timeout(HANG_SECONDS), connected(gateway, mode, guest) as client:
        arguments = {"duration": 0.2, "steps": 2}
        await client.call_tool("trigger-long-running-operation", arguments, progress_callback=guest.progress)
        assert [(await guest.progressed.get())[:2] for _ in range(2)] == [(1, 2), (2, 2)]
        assert text(await client.call_tool("get-sum", {"a": 2, "b": 40})) == "The sum of 2 and 40 is 42."


async def test_a_modern_user_is_sent_to_an_address_that_it_needs_visited(gateway: Gateway) -> None:
    guest = Guest()
    async with asyncio.timeout(HANG_SECONDS), connected(gateway, "2026-07-28", guest) as client:
        arguments = {"url": "https://example.com/x", "message": "Go.", "errorPath": False}
        await client.call_tool("trigger-url-elicitation", arguments)
    [asked] = guest.asked
    assert isinstance(asked, types.ElicitRequestURLParams)
    assert asked.url == "https://example.com/x"


async def test_it_logs_to_the_session_of_the_local_user(gateway: Gateway) -> None:
    guest = Guest()
    async with asyncio.timeout(HANG_SECONDS), connected(gateway, "legacy", guest) as client:
        await client.call_tool("toggle-simulated-logging")
        assert await guest.logged.get()
