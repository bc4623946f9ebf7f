"""The six scenarios of Delta-MCP 0.2.0's paging, over a thousand records: examples/pagination/server.py."""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import DeltaClient, connect
from deltamcp.values import CallTool
from examples.pagination.client import main
from examples.pagination.server import server
from tests.support.era_client import texts
from tests.support.raw_client import raw_client
from tests.support.request_count import count_requests


@contextlib.asynccontextmanager
async def delta_client() -> AsyncIterator[DeltaClient]:
    async with connect(server, speak="delta-mcp", validate=False) as client:
        yield client


async def first_page(client: DeltaClient, tool: str, **arguments: Any) -> Any:
    """The first text of a result, as JSON, the way Delta-MCP's own client reads it."""
    return (await client.call_tool(tool, arguments)).shape


async def test_the_first_page_has_twenty_records_and_says_how_to_go_on():
    async with delta_client() as delta:
        page = await first_page(delta, "list_users")
    assert list(page) == ["paginated", "totalItems", "page", "pageSize", "totalPages", "hasMore", "items", "note"]
    assert (page["totalItems"], page["page"], page["pageSize"], page["totalPages"]) == (1000, 1, 20, 50)
    assert len(page["items"]) == 20 and page["hasMore"] is True
    assert page["note"] == "Page 1/50. 1000 total items. Pass page=2 for next page."


async def test_any_page_can_be_jumped_to():
    async with delta_client() as delta:
        assert (await first_page(delta, "list_users", page=7))["items"][0]["id"] == 121


async def test_the_model_chooses_how_many_records_make_a_page():
    async with delta_client() as delta:
        page = await first_page(delta, "list_users", pageSize=5)
    assert (len(page["items"]), page["totalPages"]) == (5, 200)


async def test_a_filter_makes_fewer_pages():
    async with delta_client() as delta:
        page = await first_page(delta, "list_users", activeOnly=True)
    assert (page["totalItems"], page["totalPages"]) == (666, 34)


async def test_all_pages_are_fetched_until_there_are_no_more(monkeypatch):
    monkeypatch.setattr(server.engine, "perform", server.engine.perform)  # what counts requests is taken away again
    counted = count_requests(server)
    async with delta_client() as delta:
        found: list[Any] = [row async for row in delta.rows("search_users", {"prefix": "user_00"})]
    assert [user["id"] for user in found] == list(range(1, 100))
    assert counted.count(CallTool) == 5


async def test_the_last_page_says_that_it_is_the_last():
    async with delta_client() as delta:
        page = await first_page(delta, "list_users", page=50)
    assert page["hasMore"] is False and page["note"] == "Page 50/50. 1000 total items."


async def test_other_clients_read_the_same_records_by_handle():
    async with raw_client(server) as raw:
        await raw.handshake()
        result = (await raw.call("tools/call", name="list_users", arguments={}))["result"]
        assert "1-20 of 1000 rows" in texts(result)[1]


async def test_the_example_prints_all_of_them(capsys: pytest.CaptureFixture[str]):
    await main()
    told = capsys.readouterr().out
    assert re.findall(r"^(\d)\. ", told, re.MULTILINE) == list("123456")
    assert "5. all pages of user_00: 99 records" in told and "1-20 of 1000 rows" in told
