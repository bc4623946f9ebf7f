"""Two callers at one upstream of the official SDK: each is asked what its own call wants to know, and nothing else."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support.conditions import HANG_SECONDS
from tests.support.era_client import ERAS, first_text
from tests.support.fake_upstream import FrontClient, front_client
from tests.support.paths import FORKED_PYTHON, SDK_PEER
from tests.support.processes import free_port, wait_until_it_listens

ASKER = SDK_PEER.with_name("sdk_asker.py")


@pytest.fixture
def asker() -> Iterator[str]:
    """The address of the asking server."""
    port = free_port()
    with subprocess.Popen([str(FORKED_PYTHON), str(ASKER), str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_it_listens(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def two_clients(entry: dict[str, Any], fronts: tuple[str, str]) -> AsyncIterator[list[FrontClient]]:
    config = UpstreamConfig(name="asker", entry=entry, speak="handshake", promise="never")
    gateway = Gateway(GatewayConfig(upstreams=[config], disclosure="full"))
    async with front_client(gateway, fronts[0]) as one, front_client(gateway, fronts[1]) as two:
        yield [one, two]


async def meet(client: FrontClient, caller: str) -> str:
    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert caller in params["message"]
        return {"action": "accept", "content": {"name": f"{caller.upper()}!"}}

    response = await client.call("meet", {"caller": caller}, answer)
    return first_text(response["result"]) if "result" in response else str(response["error"]["message"])


@pytest.mark.parametrize("fronts", [(one, two) for one in ERAS for two in ERAS], ids="-".join)
async def test_over_http_each_caller_is_asked_on_the_stream_of_its_call(asker: str, fronts: tuple[str, str]) -> None:
    async with asyncio.timeout(HANG_SECONDS), two_clients({"url": asker}, fronts) as clients:
        texts = await asyncio.gather(meet(clients[0], "ada"), meet(clients[1], "bob"))
    assert [*texts] == ["ada is ADA!", "bob is BOB!"]
    assert [len(client.asked) for client in clients] == [1, 1]


async def test_over_stdio_nobody_is_asked_while_nobody_knows_whom() -> None:
    entry = {"command": str(FORKED_PYTHON), "args": [str(ASKER)]}
    async with asyncio.timeout(HANG_SECONDS), two_clients(entry, ("handshake", "modern")) as clients:
        texts = await asyncio.gather(meet(clients[0], "ada"), meet(clients[1], "bob"))
    # Once one call has been refused and has ended, the other caller may be asked.
    assert any("not known whom to ask" in text for text in texts)
    assert all("not known whom to ask" in text or text in ("ada is ADA!", "bob is BOB!") for text in texts)
