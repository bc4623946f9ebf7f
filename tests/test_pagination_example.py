"""Seed 003's six scenarios, over a thousand records."""

from examples.pagination import Client, client, server
from tests.raw import connected


async def test_the_first_page_has_twenty_records_and_says_how_to_go_on():
    async with client("delta-mcp/0.2.0") as delta:
        page = await delta.call("list_users")
    assert list(page) == ["paginated", "totalItems", "page", "pageSize", "totalPages", "hasMore", "items", "note"]
    assert (page["totalItems"], page["page"], page["pageSize"], page["totalPages"]) == (1000, 1, 20, 50)
    assert len(page["items"]) == 20 and page["hasMore"] is True
    assert page["note"] == "Page 1/50. 1000 total items. Pass page=2 for next page."


async def test_any_page_can_be_jumped_to():
    async with client("delta-mcp/0.2.0") as delta:
        assert (await delta.call("list_users", page=7))["items"][0]["id"] == 121


async def test_the_model_chooses_how_many_records_make_a_page():
    async with client("delta-mcp/0.2.0") as delta:
        page = await delta.call("list_users", pageSize=5)
    assert (len(page["items"]), page["totalPages"]) == (5, 200)


async def test_a_filter_makes_fewer_pages():
    async with client("delta-mcp/0.2.0") as delta:
        page = await delta.call("list_users", activeOnly=True)
    assert (page["totalItems"], page["totalPages"]) == (666, 34)


async def test_all_pages_are_fetched_until_there_are_no_more(monkeypatch):
    asked: list[dict[str, object]] = []
    whole = Client.call

    async def counted(self, tool, **arguments):
        asked.append(arguments)
        return await whole(self, tool, **arguments)

    monkeypatch.setattr(Client, "call", counted)
    async with client("delta-mcp/0.2.0") as delta:
        found = await delta.all_pages("search_users", prefix="user_00")
    assert [user["id"] for user in found] == list(range(1, 100))
    assert [arguments["page"] for arguments in asked] == [1, 2, 3, 4, 5]


async def test_the_last_page_says_that_it_is_the_last():
    async with client("delta-mcp/0.2.0") as delta:
        page = await delta.call("list_users", page=50)
    assert page["hasMore"] is False and page["note"] == "Page 50/50. 1000 total items."


async def test_other_clients_read_the_same_records_by_handle():
    async with connected(server) as raw:
        await raw.handshake()
        result = (await raw.call("tools/call", name="list_users", arguments={}))["result"]
        assert "1-20 of 1000 rows" in result["content"][1]["text"]
