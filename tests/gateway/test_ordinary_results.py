"""What tools of the official SDK and of FastMCP return, behind the gateway: the same value for fewer tokens."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from deltamcp import DeltaClient, decode_result
from deltamcp.gateway.config import DEFAULT_RESULTS, GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.tokens import count
from tests.interop.install import folder
from tests.support import ordinary_server
from tests.support.conditions import HANG_SECONDS
from tests.support.gateway_entries import module_entry
from tests.support.ordinary_server import TOOLS, make_rows
from tests.support.properties import is_deep

MOST_SHARE, MOST_COMPACT_SHARE = 0.35, 0.6
"""Of the tokens of the server's own texts from 50 rows on, where these are written on several lines, and where not."""
MANY = 5_000
SIZES = (1, 50, 500, MANY) if is_deep() else (1, 50, 500)
MOST_PREVIEW_TOKENS = 500
WHOLE = {"maxTokens": 500_000}
OLD_SDK = folder("sdk-1x") / "bin" / "python"
LIBRARIES = [
    "sdk",
    "compact",
    pytest.param("sdk-1x", marks=pytest.mark.skipif(not OLD_SDK.exists(), reason="`make test` installs SDK 1.30")),
    pytest.param(
        "fastmcp",
        marks=pytest.mark.skipif(importlib.util.find_spec("fastmcp") is None, reason="`make bench` installs FastMCP"),
    ),
]
KEY = "io.github.delta-mcp/result"
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Clients(NamedTuple):
    direct: DeltaClient
    gateway: DeltaClient

    async def ask(self, tool: str, wish: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        """The reply of a meta-tool of the gateway; a wish is a result policy of this request."""
        call = {"name": tool, "arguments": arguments, "_meta": {} if wish is None else {KEY: wish}}
        reply: dict[str, Any] = await self.gateway.request("tools/call", call)
        return reply


@pytest_asyncio.fixture(params=LIBRARIES, scope="module", loop_scope="module")
async def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clients]:
    entry = module_entry(ordinary_server.__name__, request.param)
    if request.param == "sdk-1x":
        entry = {"command": str(OLD_SDK), "args": [ordinary_server.__file__, request.param]}
    upstream = UpstreamConfig(name="ordinary", entry=entry)
    config = GatewayConfig(upstreams=[upstream], disclosure="meta", query=False, results=DEFAULT_RESULTS)
    behind = Gateway(config, cache_folder=tmp_path_factory.mktemp("cache")).server
    async with (
        DeltaClient(entry, progressive=False, validate=False) as direct,
        DeltaClient(behind, progressive=False, validate=False) as gateway,
    ):
        found = Clients(direct, gateway)
        async with asyncio.timeout(HANG_SECONDS):
            while (await found.ask("get_schema", operation=TOOLS[-1].__name__)).get("isError"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield found


def texts_of(reply: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in reply["content"])


def rows_of(value: Any) -> Any:
    return value["orders"] if isinstance(value, dict) else value


async def test_rows_of_every_usual_type_cost_a_share_of_their_text(clients):
    """Sent whole, so that what tables save is counted, and not what a preview leaves out."""
    shares, pretty = {}, set()
    for tool in TOOLS:
        for size in SIZES:
            call = {"name": tool.__name__, "arguments": {"count": size}}
            text = texts_of(await clients.direct.request("tools/call", call))
            if "\n" in text and size > 1:
                pretty.add((tool.__name__, size))
            reply = await clients.ask("execute", WHOLE, operation=tool.__name__, params={"count": size})
            assert "structuredContent" not in reply
            assert rows_of(decode_result(reply["content"][0]["text"])) == make_rows(size)
            shares[tool.__name__, size] = count(texts_of(reply)) / count(text)
    print({key: round(share, 2) for key, share in shares.items()})
    bounds = {key: 1.0 if key[1] < 50 else MOST_SHARE if key in pretty else MOST_COMPACT_SHARE for key in shares}
    assert {key: share for key, share in shares.items() if share > bounds[key]} == {}


async def test_many_rows_begin_with_a_preview_and_all_can_be_read(clients):
    for tool in TOOLS:
        reply = await clients.ask("execute", operation=tool.__name__, params={"count": MANY})
        assert "structuredContent" not in reply
        assert count(texts_of(reply)) <= MOST_PREVIEW_TOKENS
        rest = await clients.ask("continue", handle=reply["_meta"][KEY]["handle"], fields="length(orders || @)")
        assert int(rest["content"][0]["text"].split()[0]) == MANY


async def test_fields_select_from_rows_of_every_usual_type(clients):
    for tool in TOOLS:
        selected = {"params": {"count": 500}, "fields": "max_by(orders || @, &total).id"}
        reply = await clients.ask("execute", operation=tool.__name__, **selected)
        assert reply["content"][0]["text"].split()[0] == "1499", reply
        assert count(texts_of(reply)) < 60
