"""CS-07: what definitions on demand save, and how many requests each step takes.

The original counts tokens as characters by four, and times requests; the requests are counted here instead.
"""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import DeltaClient, connect
from deltamcp.values import CallTool, Describe, ListItems
from deltamcp.wire.codecs import COMPACT_CODEC, JSON_CODEC
from tests.support.bytes_client import BytesClient, utf16_length
from tests.support.http_server import serve_http
from tests.support.request_count import RequestCount, count_requests
from tests.support.six_tool_server import SIX_TOOLS, six_tool_server


def estimate_tokens(value: Any) -> int:
    return math.ceil(utf16_length(JSON_CODEC.encode(value).decode()) / 4)


@pytest.fixture
async def counted() -> AsyncIterator[tuple[DeltaClient, RequestCount]]:
    """A client, and what the server was asked since the client connected."""
    server = six_tool_server()
    requests = count_requests(server)
    async with serve_http(server, compat=True) as url, connect(url, speak="delta-mcp") as client:
        requests.forget()
        yield client, requests


async def read_tools(wire: BytesClient) -> tuple[list[Any], list[Any]]:
    """The summaries, and the definitions."""
    summaries = json.loads(await wire.result("tools/list"))["tools"]
    return summaries, [json.loads(await wire.result("tools/describe", {"name": name})) for name in SIX_TOOLS]


async def test_cs_07_01_summaries_cost_a_quarter_of_the_definitions_or_less(wire: BytesClient) -> None:
    summaries, definitions = await read_tools(wire)
    assert estimate_tokens({"tools": summaries}) <= 0.25 * estimate_tokens({"tools": definitions})


async def test_cs_07_02_the_summaries_cost_under_600_tokens(wire: BytesClient) -> None:
    summaries, _ = await read_tools(wire)
    assert estimate_tokens(summaries) < 600


async def test_cs_07_03_compact_json_saves_a_tenth_of_the_characters(wire: BytesClient) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "result": json.loads(await wire.result("tools/list"))}
    assert len(COMPACT_CODEC.encode(message)) <= 0.9 * len(JSON_CODEC.encode(message))


async def test_cs_07_04_a_list_takes_one_request(counted: tuple[DeltaClient, RequestCount]) -> None:
    client, requests = counted
    await client.tools()
    assert [type(ask) for ask in requests.asks] == [ListItems]


async def test_cs_07_05_the_first_describe_takes_one_request(counted: tuple[DeltaClient, RequestCount]) -> None:
    client, requests = counted
    await client.tools()
    requests.forget()
    await client.describe("search")
    assert [type(ask) for ask in requests.asks] == [Describe]


async def test_cs_07_06_a_second_describe_takes_none(counted: tuple[DeltaClient, RequestCount]) -> None:
    client, requests = counted
    await client.describe("search")
    requests.forget()
    await client.describe("search")
    assert requests.asks == []


async def test_cs_07_07_a_call_takes_one_request(counted: tuple[DeltaClient, RequestCount]) -> None:
    client, requests = counted
    await client.describe("search")
    requests.forget()
    await client.call("search", query="benchmark")
    assert [type(ask) for ask in requests.asks] == [CallTool]


async def test_cs_07_08_of_the_definitions_that_are_not_used_nothing_is_sent(wire: BytesClient) -> None:
    # The original's formula is 1 whatever is sent. This is what came of the other definitions, in characters.
    sent = (await wire.result("tools/list") + await wire.result("tools/describe", {"name": "search"})).decode()
    _, definitions = await read_tools(wire)
    unused = [json.dumps(one["inputSchema"], separators=(",", ":")) for one in definitions if one["name"] != "search"]
    assert sum(len(schema) for schema in unused if schema in sent) <= 0.15 * sum(map(len, unused))
