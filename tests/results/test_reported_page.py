"""Pages that a server reports are told, so that nobody takes a page for the whole."""

import json
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.results.document import find_rows
from deltamcp.results.value_shape import page_sentence
from deltamcp.work import unlimited_work
from tests.support.era_client import ERAS, era_client, texts

ROWS = [{"id": n, "name": f"item {n}"} for n in range(30)]
TOTAL = "This is a page of 30; the server reports 1,370 in all."

PAGES: list[tuple[str, dict[str, Any], str]] = [
    ("GitHub", {"total_count": 1370, "incomplete_results": False, "items": ROWS}, TOTAL),
    ("Jira", {"startAt": 0, "maxResults": 30, "total": 1370, "issues": ROWS}, TOTAL),
    ("Jira", {"isLast": False, "issues": ROWS}, "the server has more (isLast)"),
    ("Django", {"count": 1370, "next": "https://x.example/?page=2", "previous": None, "results": ROWS}, TOTAL),
    ("Spring", {"content": ROWS, "page": {"size": 30, "totalElements": 1370, "totalPages": 46, "number": 0}}, TOTAL),
    ("Elasticsearch", {"took": 3, "hits": {"total": {"value": 1370, "relation": "eq"}, "hits": ROWS}}, TOTAL),
    ("Google", {"searchInformation": {"totalResults": "1370"}, "items": ROWS}, TOTAL),
    ("Cloudflare", {"result": ROWS, "result_info": {"page": 1, "total_count": 1370}}, TOTAL),
    ("OData", {"@odata.count": 1370, "value": ROWS}, TOTAL),
    ("OData", {"value": ROWS, "@odata.nextLink": "https://x.example/?$skip=30"}, "more (@odata.nextLink)"),
    ("Slack", {"ok": True, "members": ROWS, "response_metadata": {"next_cursor": "dXNlcjo="}}, "more (next_cursor)"),
    ("Stripe", {"object": "list", "data": ROWS, "has_more": True}, "more (has_more)"),
    ("GraphQL", {"data": {"issues": {"nodes": ROWS, "pageInfo": {"hasNextPage": True}}}}, "more (hasNextPage)"),
    ("GraphQL", {"data": {"issues": {"nodes": ROWS, "pageInfo": {"hasNextPage": True}, "totalCount": 1370}}}, TOTAL),
    ("Kubernetes", {"metadata": {"continue": "eyJ2IjoibWV0"}, "items": ROWS}, "more (continue)"),
    ("S3", {"IsTruncated": True, "Contents": ROWS}, "more (IsTruncated)"),
    ("MCP", {"resources": ROWS, "nextCursor": "30"}, "more (nextCursor)"),
    ("pages", {"page": 2, "total_pages": 46, "results": ROWS}, "more (total_pages)"),
    ("JSON:API", {"data": ROWS, "links": {"next": "/items?page=2"}}, "more (next)"),
    ("HubSpot", {"results": ROWS, "paging": {"next": {"after": "30"}}}, "more (next)"),
]
WHOLE: list[tuple[str, dict[str, Any]]] = [
    ("all rows", {"total_count": 30, "items": ROWS}),
    ("an invoice in cents", {"id": "in_1", "currency": "usd", "total": 5990, "items": ROWS}),
    ("a cart", {"total_items": 41, "items": ROWS}),
    ("a number of something else", {"count": 1370, "name": "x", "items": ROWS}),
    ("the last page", {"data": ROWS, "has_more": False, "next_cursor": "dXNlcjo="}),
    ("no next page", {"members": ROWS, "response_metadata": {"next_cursor": ""}}),
    ("no next page", {"results": ROWS, "next": None, "count": 30, "previous": None}),
    ("a step of a recipe", {"steps": ROWS, "next": "stir"}),
    ("a token for changes", {"items": ROWS, "nextSyncToken": "CPDAlvWDx70CEPDAlvWDx70C"}),
    ("totals of another list", {"total_count": 1370, "facets": ROWS, "found": [{"id": 1}]}),
    ("reactions", {"reactions": {"total_count": 99}, "labels": ROWS}),
    ("names that are data", {f"total_{n}": n for n in range(200)} | {"total_count": 1370, "items": ROWS * 40}),
    ("pages of a book", {"page": 3, "pages": 700, "words": ROWS}),
    ("the last page", {"page": 46, "total_pages": 46, "results": ROWS}),
    ("flags as texts", {"has_more": "no", "items": ROWS}),
    ("a deep total", {"about": {"total_count": 1370}, "items": ROWS}),
]


def sentence_on(value: Any) -> str:
    data, work = json.dumps(value).encode(), unlimited_work()
    return page_sentence(data, find_rows(data, None, work), work)


@pytest.mark.parametrize(("api", "value", "sentence"), PAGES)
def test_a_page_of_a_published_api_is_told(api: str, value: dict[str, Any], sentence: str) -> None:
    assert sentence in sentence_on(value) and sentence_on(value).startswith("This is a page of 30;")


@pytest.mark.parametrize(("what", "value"), WHOLE)
def test_what_is_no_page_is_not_told(what: str, value: dict[str, Any]) -> None:
    assert sentence_on(value) == ""


@pytest.mark.parametrize("value", [ROWS, [], {}, {"items": []}, 7, {"total_count": 3}])
def test_other_values_are_no_pages(value: Any) -> None:
    assert sentence_on(value) == ""


@pytest.mark.parametrize("era", ERAS)
async def test_every_reply_to_a_query_of_a_page_tells_it(era: str) -> None:
    server = DeltaServer("x", disclosure="meta")

    @server.tool
    def find() -> dict[str, Any]:
        """Find."""
        return {"total_count": 1370, "items": ROWS}

    async with era_client(server, era) as client:

        async def reply(name: str, **arguments: Any) -> str:
            return "\n".join(texts(await client.result_of(name, **arguments)))

        for query in ({}, {"fields": "length(items)"}, {"grep": "item 7"}, {"fields": "items[?id>`90`]"}):
            text = await reply("execute", operation="find", **query)
            assert TOTAL in text, query
        handle = text.partition("[")[2].partition(":")[0]
        assert TOTAL in await reply("continue", handle=handle, fields="length(items)")
