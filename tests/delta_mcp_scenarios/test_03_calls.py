"""CS-03: calls, and what fails in them."""

import json

import pytest

from deltamcp import DeltaClient
from deltamcp.errors import CallFailedError, ClientError, PeerError
from tests.support.bytes_client import BytesClient
from tests.support.six_tool_server import HITS


async def test_cs_03_01_a_call_returns_its_result(client: DeltaClient) -> None:
    assert await client.call("search", query="volumes") == HITS


async def test_cs_03_02_the_result_is_a_value_and_no_text_about_an_error(client: DeltaClient) -> None:
    assert await client.call("read_file", path="a.txt") == "What a.txt says"


async def test_cs_03_03_a_call_of_an_unknown_tool_names_the_tool(client: DeltaClient) -> None:
    with pytest.raises((ClientError, PeerError), match="no_such_tool"):
        await client.call("no_such_tool")


async def test_cs_03_04_a_result_may_be_an_object(client: DeltaClient) -> None:
    written = await client.call("write_file", path="/tmp/test.txt", content="hello")
    assert (written["written"], written["path"]) == (True, "/tmp/test.txt")


async def test_cs_03_05_a_result_may_be_a_list(client: DeltaClient) -> None:
    assert await client.call("list_dir", path=".") == ["docs/", "src/", "README.md"]


async def test_cs_03_06_a_call_without_arguments_has_empty_ones(wire: BytesClient) -> None:
    listed = await wire.call("tools/call", {"name": "list_dir"})
    assert json.loads(listed["result"]["content"][0]["text"]) == ["docs/", "src/", "README.md"]
    # The original runs the tool; here the schema says that `query` is required, which the model reads.
    searched = await wire.call("tools/call", {"name": "search"})
    assert "query: required" in searched["result"]["content"][0]["text"]


async def test_cs_03_07_a_failure_is_a_result_that_the_model_reads(wire: BytesClient) -> None:
    answer = await wire.call("tools/call", {"name": "fail", "arguments": {}})
    assert "error" not in answer
    assert answer["result"] == {"content": [{"type": "text", "text": "failed as it should"}], "isError": True}


async def test_cs_03_08_the_client_raises_it(client: DeltaClient) -> None:
    with pytest.raises(CallFailedError, match="failed as it should"):
        await client.call("fail")
