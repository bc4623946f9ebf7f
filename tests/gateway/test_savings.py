"""What a result saved, in the `_meta` of replies to those who ask, or of all of them."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer, ResultPolicy, ToolError, tokens
from deltamcp.calls.tool_calls import SAVINGS_KEY
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support.gateway_entries import module_entry
from tests.support.raw_client import META, RawClient, raw_client

ROWS = UpstreamConfig(name="rows", entry=module_entry("tests.support.rows_server"))
ASKED = {SAVINGS_KEY: True}


@contextlib.asynccontextmanager
async def front(folder: Path, **options: Any) -> AsyncIterator[RawClient]:
    async with raw_client(Gateway(GatewayConfig(upstreams=[ROWS], **options), cache_folder=folder).server) as client:
        await client.handshake()
        yield client


async def call(client: RawClient, meta: dict[str, Any], count: int) -> Any:
    params = {"operation": "rows.rows", "params": {"count": count}}
    return (await client.call("tools/call", name="execute", arguments=params, _meta=meta))["result"]


def text_tokens(result: dict[str, Any]) -> int:
    return sum(tokens.count(block["text"]) for block in result["content"])


async def test_a_client_that_asks_is_told_tokens_before_and_after(tmp_path):
    async with front(tmp_path, results=ResultPolicy(max_tokens=300)) as client:
        cut = await call(client, ASKED, 400)
        silent = await call(client, {}, 400)
    whole = "\n".join(f"{number}: a line of the text with some words in it" for number in range(400))
    assert cut["_meta"][SAVINGS_KEY] == {"before": tokens.count(whole), "after": text_tokens(cut)}
    assert SAVINGS_KEY not in silent.get("_meta", {})


async def test_an_operator_can_have_all_told(tmp_path):
    async with front(tmp_path, savings=True) as client:
        result = await call(client, {}, 3)
    assert result["_meta"][SAVINGS_KEY] == {"before": text_tokens(result), "after": text_tokens(result)}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_raw_result_has_its_fields_and_the_figures(tmp_path, era):
    async with front(tmp_path, disclosure="full") as client:
        meta = {**META, **ASKED} if era == "modern" else ASKED
        asked = (await client.call("tools/call", name="table", arguments={"count": 2}, _meta=meta))["result"]
        plain = (await client.call("tools/call", name="table", arguments={"count": 2}))["result"]
    [block] = asked["content"]
    assert asked["structuredContent"] == json.loads(block["text"]) == plain["structuredContent"]
    assert asked["_meta"][SAVINGS_KEY] == {"before": tokens.count(block["text"]), "after": tokens.count(block["text"])}


async def test_any_server_tells_those_who_ask():
    server = DeltaServer("plain")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def refuse() -> int:
        raise ToolError("No.")

    async with raw_client(server) as client:
        answer = await client.call("tools/call", name="add", arguments={"a": 2, "b": 3}, _meta={**META, **ASKED})
        failed = await client.call("tools/call", name="refuse", arguments={}, _meta={**META, **ASKED})
    assert answer["result"]["_meta"][SAVINGS_KEY] == {"before": 1, "after": 1}
    assert SAVINGS_KEY not in failed["result"].get("_meta", {})
