"""The official SDK's client in front of the gateway, the example server behind it, in both eras on both sides."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.support.conditions import HANG_SECONDS
from tests.support.gateway_process import Behind, config_file
from tests.support.paths import FORKED_PROGRAM
from tests.support.processes import served_command
from tests.support.sdk_host import CALLS, Peer, connect_peer, shown

pytestmark = pytest.mark.diagonal("behind", "target", "mode")

MODES = ["legacy", "2026-07-28"]
FRONTS = ["stdio", "http"]
OWN_TEXTS = frozenset({"test_timeout"})
"""The tools whose answer names the server that stopped them."""


@pytest.fixture(scope="module", params=[f"{era} over {link}" for era in ("handshake", "modern") for link in FRONTS])
def behind(request: pytest.FixtureRequest, command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a gateway over the example server, spoken to by an era over a transport."""
    era, _, link = request.param.partition(" over ")
    url = request.getfixturevalue("everything") if link == "http" else None
    return config_file(tmp_path_factory.mktemp("gateway"), Behind(era, url=url, command=command))


@pytest.fixture(scope="module", params=FRONTS)
def target(request: pytest.FixtureRequest, behind: Path) -> Iterator[Any]:
    """Where the client connects to."""
    command = [str(FORKED_PROGRAM), "gateway", "--disclosure", "full", "--raw", "--no-ledger", str(behind)]
    if request.param == "stdio":
        yield StdioServerParameters(command=command[0], args=command[1:])
    else:
        with served_command(command) as url:
            yield url


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.mark.parametrize("mode", MODES)
async def test_every_tool_answers_as_directly(target: Any, mode: str, peer: Peer) -> None:
    async with asyncio.timeout(HANG_SECONDS), connect_peer(target, mode, peer) as client:
        answers = {
            name: shown(await client.call_tool(name, call.arguments))
            for name, call in CALLS.items()
            if name not in OWN_TEXTS
        }
    expected = {name: (call.is_error, call.kinds, call.text) for name, call in CALLS.items() if name not in OWN_TEXTS}
    assert answers == expected


@pytest.mark.parametrize("mode", MODES)
async def test_progress_passes(target: Any, mode: str, peer: Peer) -> None:
    async with asyncio.timeout(HANG_SECONDS), connect_peer(target, mode, peer) as client:
        await client.call_tool("test_tool_with_progress", progress_callback=peer.progress)
        told = [await peer.progressed.get() for _ in range(3)]
    assert [progress for progress, _, _ in told] == [0, 50, 100]


async def test_logs_reach_a_session(target: Any, peer: Peer) -> None:
    async with asyncio.timeout(HANG_SECONDS), connect_peer(target, "legacy", peer) as client:
        await client.call_tool("test_tool_with_logging")
        logged = [await peer.logged.get() for _ in range(3)]
    assert len(logged) == 3


@pytest.mark.parametrize("mode", MODES)
async def test_an_unknown_resource_and_a_prompt_without_its_arguments_are_refused_as_directly(
    target: Any, mode: str, peer: Peer
) -> None:
    async with asyncio.timeout(HANG_SECONDS), connect_peer(target, mode, peer) as client:
        with pytest.raises(MCPError) as unknown:
            await client.read_resource("test://template/")
    assert unknown.value.error.code == (-32002 if mode == "legacy" else -32602)


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_leaves_the_connection_usable(target: Any, mode: str, peer: Peer) -> None:
    async with asyncio.timeout(HANG_SECONDS), connect_peer(target, mode, peer) as client:
        with anyio.move_on_after(0.05):
            await client.call_tool("test_timeout")
        result = await client.call_tool("test_simple_text")
    assert isinstance(result.content[0], types.TextContent)
