"""CS-02: summaries, definitions on demand, and what summaries may be."""

import json

import pytest

from deltamcp import ConfigurationError, DeltaServer, connect
from deltamcp.values import Describe
from tests.support.bytes_client import BytesClient, memory_client, utf16_length
from tests.support.http_server import serve_http
from tests.support.request_count import count_requests
from tests.support.six_tool_server import SIX_TOOLS, six_tool_server


async def test_cs_02_01_the_list_has_names_and_descriptions_only(wire: BytesClient) -> None:
    tools = json.loads(await wire.result("tools/list"))["tools"]
    assert [tool["name"] for tool in tools] == SIX_TOOLS
    assert all(tool.keys() == {"name", "description"} and tool["description"] for tool in tools)


async def test_cs_02_02_descriptions_have_at_most_60_characters(wire: BytesClient) -> None:
    tools = json.loads(await wire.result("tools/list"))["tools"]
    assert max(utf16_length(tool["description"]) for tool in tools) <= 60


async def test_cs_02_03_describe_gives_the_schema(wire: BytesClient) -> None:
    for name in SIX_TOOLS:
        definition = json.loads(await wire.result("tools/describe", {"name": name}))
        assert definition["name"] == name and definition["inputSchema"]["type"] == "object"


async def test_cs_02_04_a_second_describe_sends_no_request() -> None:
    server = six_tool_server()
    counted = count_requests(server)
    async with serve_http(server, compat=True) as url, connect(url, speak="delta-mcp") as client:
        first = await client.describe("search")
        assert counted.count(Describe) == 1
        assert await client.describe("search") == first
        assert counted.count(Describe) == 1


async def test_cs_02_05_an_unknown_tool_cannot_be_described(wire: BytesClient) -> None:
    error = await wire.error("tools/describe", {"name": "nonexistent_tool_xyz"})
    assert error == b'{"code":-32602,"message":"Unknown tool: nonexistent_tool_xyz"}'


def test_cs_02_06_a_strict_server_refuses_longer_descriptions() -> None:
    with pytest.raises(ConfigurationError, match="60 chars"):
        DeltaServer("x", strict=True).tool(lambda: None, name="t", description="A description of 61 characters " * 2)


async def test_cs_02_07_the_digest_of_a_definition_is_the_same_on_every_server() -> None:
    digests = []
    for _ in range(2):
        async with memory_client(six_tool_server()) as peer:
            await peer.delta()
            entries = (await peer.call("tools/manifest"))["result"]["entries"]
            digests.append({entry["name"]: entry["digest"] for entry in entries})
    assert digests[0] == digests[1] and list(digests[0]) == SIX_TOOLS
    assert len(set(digests[0].values())) == len(SIX_TOOLS)
