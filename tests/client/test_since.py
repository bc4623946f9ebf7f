"""Programs name the result that they have, or have the client do it: the value is whole, and what is sent is not."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import DeltaClient, DeltaServer, Disclosure, ResultPolicy, connect
from deltamcp.errors import ArgumentsError
from tests.support.http_server import serve_http
from tests.support.lite_address import serve_lite

SPEAK = ["handshake", "modern", "mcp-lite"]


class Shop:
    def __init__(self, **options: Any) -> None:
        self.server = DeltaServer("shop", results=ResultPolicy(max_tokens=20_000), **options)
        self.rows: list[dict[str, Any]] = [
            {"id": number, "name": f"thing {number * 37 % 101}", "stock": number} for number in range(60)
        ]

        @self.server.tool(annotations={"readOnlyHint": True})
        def stock() -> list[dict[str, Any]]:
            """List what there is."""
            return self.rows


@contextlib.asynccontextmanager
async def client_of(shop: Shop, speak: Any, **options: Any) -> AsyncIterator[DeltaClient]:
    if speak == "mcp-lite":
        async with serve_lite(shop.server, "http") as address, connect(address, **options) as client:
            yield client
    else:
        async with serve_http(shop.server) as address, connect(address, speak=speak, **options) as client:
            yield client


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_program_names_what_it_has(speak):
    shop = Shop()
    async with client_of(shop, speak) as client:
        first = await client.call_tool("stock", since="")
        shop.rows[3]["stock"] = 77
        reply = await client.call_tool("stock", since=first.handle)
        assert reply.text.startswith(f"Changed since {first.handle}, now ") and "3 stock=77" in reply.text
        assert reply.value == shop.rows
        assert await client.call("stock", since=first.handle) == shop.rows
        between = await client.read_on(reply.handle or "", since=first.handle)
        assert between.text.startswith("[id] 3 stock=77")


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize("is_meta", [False, True])
async def test_a_client_names_by_itself_what_it_has(speak, is_meta):
    shop = Shop(disclosure=Disclosure("meta", query=True)) if is_meta else Shop()
    call = ("query", {"operation": "stock"}) if is_meta else ("stock", {})
    async with client_of(shop, speak, deltas=True, progressive=True) as client:
        outcomes = []
        for number in (None, 3, None, 8):
            if number is not None:
                shop.rows[number]["stock"] += 50
            reply = await client.call_tool(*call)
            outcomes.append(reply.delta_meta.get("outcome"))
            assert reply.value == shop.rows
        assert outcomes == ["full", "delta", "unchanged", "delta"]


async def test_what_is_no_text_is_refused_here():
    async with connect(Shop().server) as client:
        with pytest.raises(ArgumentsError, match="since is the handle of a result"):
            await client.call("stock", since=7)
