"""Servers that number their pages and store nothing, as the original Delta-MCP's: pages, rows, and values in part."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp import ClientError, DeltaClient, DeltaServer, ResultPolicy, connect
from deltamcp.client.reply import Reply, ToolCall
from deltamcp.client.result_reader import has_next, page_number, repeats
from deltamcp.results.delta_mcp_shapes import stringify
from tests.support.properties import examples
from tests.support.sample_values import USERS
from tests.support.strategies import any_json

COMPAT = ResultPolicy(max_tokens=500, page_size=20, compat=True)
"""With this policy ours sends what the original sends, and no handle."""


def original() -> Any:
    """Stands in for a server of the original; `ran` has the pages it was asked for."""
    server: Any = DeltaServer("original", results=COMPAT)
    server.ran = []

    def list_users(page: int = 1) -> list[dict[str, Any]]:
        server.ran.append(page)
        return USERS[:99]

    for name, annotations in {"buy": {}, "look": {"readOnlyHint": True}, "put": {"idempotentHint": True}}.items():
        server.tool(name=name, annotations=annotations)(list_users)
    server.tool(name="text")(lambda: "word " * 1000)
    server.tool(name="object")(lambda: {f"key_{number}": "value " * 20 for number in range(100)})
    server.tool(name="few")(lambda: USERS[:3])
    return server


def original_client(server: DeltaServer) -> DeltaClient:
    return connect(server, speak="delta-mcp")


@pytest.mark.parametrize("tool", ["look", "put"])
async def test_call_gives_all_pages_of_a_tool_that_may_be_run_again(tool):
    server = original()
    async with original_client(server) as client:
        assert await client.call(tool) == USERS[:99]
    assert server.ran == [1, 2, 3, 4, 5]


async def test_call_gives_the_page_that_was_asked_for():
    server = original()
    async with original_client(server) as client:
        assert await client.call("look", page=3) == USERS[40:60]
        assert await client.call("buy", page=5) == USERS[80:99]
    assert server.ran == [3, 5]


async def test_call_marks_the_page_of_a_tool_that_is_run_once():
    server = original()
    async with original_client(server) as client:
        page = await client.call("buy")
        assert isinstance(page, Reply) and page.is_part and page.is_page
        assert page.value == USERS[:20] and page.shape["totalItems"] == 99
        with pytest.raises(ClientError, match="no handle"):
            await client.whole(page)
    assert server.ran == [1]


@pytest.mark.parametrize("tool", ["text", "object"])
async def test_call_marks_every_other_part(tool):
    async with original_client(original()) as client:
        part = await client.call(tool)
        assert isinstance(part, Reply) and part.is_part and not part.is_page
        with pytest.raises(ClientError, match="no handle"):
            _ = [row async for row in client.rows(tool)]


async def test_what_is_complete_is_a_value():
    async with original_client(original()) as client:
        assert await client.call("few") == USERS[:3]


async def test_a_tools_own_words_are_not_taken_for_a_part():
    server = DeltaServer("trees", results=COMPAT)
    server.tool(name="tree")(lambda: {"sha": "9fb0", "truncated": True})
    async with original_client(server) as client:
        assert await client.call("tree") == {"sha": "9fb0", "truncated": True}


@pytest.mark.parametrize("want", [ResultPolicy(fields=["id"]), ResultPolicy(max_tokens=100), ResultPolicy(page_size=3)])
async def test_a_part_made_to_fit_is_still_a_part(want):
    """The client once stored the page as the complete result."""
    async with original_client(original()) as client:
        reply = await client.call_tool("buy", want=want)
        assert reply.is_part and reply.value[0]["id"] == 1
        assert reply.raw["_meta"]["io.github.delta-mcp/result"]["rest"] == "not stored"
        with pytest.raises(ClientError, match="no handle"):
            await client.whole(reply)


async def test_rows_are_of_all_pages_from_the_first_or_another():
    async with original_client(original()) as client:
        assert [row async for row in client.rows("buy")] == USERS[:99]
        assert [row async for row in client.rows("buy", {"page": 4})] == USERS[60:99]


# Servers whose pages have no end


def page_server(page_of: Any) -> DeltaServer:
    """A server whose tool returns `page_of(number)`, which is small enough to be sent as it is."""
    server = DeltaServer("endless", results=COMPAT)

    @server.tool(annotations={"readOnlyHint": True})
    async def turn(page: int = 1) -> Any:
        return page_of(page)

    return server


def envelope(number: Any, items: list[Any], **more: Any) -> dict[str, Any]:
    return {"paginated": True, "page": number, "totalPages": 50, "hasMore": True, "items": items, **more}


ENDLESS = {
    "page 1 for ever": (lambda number: envelope(1, [1, 2]), "asked for page 2 and sent page 1,"),
    "two pages in turn": (lambda number: envelope(1 + (number - 1) % 2, [number % 2]), "asked for page"),
    "unnumbered": (lambda number: envelope(None, [1, 2]), "asked for page 2 and sent the same rows again"),
    "numbered, but the same": (lambda number: envelope(number, [1], totalPages=number + 1), "the same rows again"),
    "beyond the last": (lambda number: envelope(number, [1], totalPages=1), "the same rows again"),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_rows_end_with_an_error_if_the_pages_repeat(name):
    page_of, message = ENDLESS[name]
    async with original_client(page_server(page_of)) as client:
        with pytest.raises(ClientError, match=message):
            _ = [row async for row in client.rows("turn")]
        with pytest.raises(ClientError, match=message):
            await client.call("turn")


async def test_rows_end_with_an_error_if_the_next_page_is_none():
    def page_of(number: int) -> Any:
        return envelope(1, [1, 2]) if number == 1 else [3, 4]

    async with original_client(page_server(page_of)) as client:
        with pytest.raises(ClientError, match="asked for page 2 and sent something else than a page"):
            _ = [row async for row in client.rows("turn")]


async def test_equal_rows_are_no_repeated_page():
    def page_of(number: int) -> Any:
        return envelope(number, [0] * 5, totalPages=4, hasMore=number < 4)

    async with original_client(page_server(page_of)) as client:
        assert [row async for row in client.rows("turn")] == [0] * 20


SHAPES = st.fixed_dictionaries(
    {"paginated": st.just(True), "items": st.lists(st.integers(0, 2), max_size=2)},
    optional={
        "page": st.integers(1, 4) | any_json,
        "totalPages": st.integers(1, 4) | any_json,
        "hasMore": st.booleans() | any_json,
    },
)


@settings(max_examples=examples(300))
@given(shapes=st.lists(SHAPES, min_size=1, max_size=4))
def test_whatever_pages_a_server_sends_in_turn_the_reading_ends(shapes):
    """The server answers from a list of replies, over and over; a numbered list can go on only up to its last page."""
    previous: Reply | None = None
    for turn in range(1000):
        raw = {"content": [{"type": "text", "text": stringify(shapes[turn % len(shapes)])}]}
        requested = 1 if previous is None else page_number(previous) + 1
        reply = Reply(raw, is_delta=True, call=ToolCall("turn", {"page": requested}))
        if not has_next(reply) or (previous and repeats(reply, previous)):
            return
        previous = reply
    raise AssertionError("it never ends")


# Rows that a page shows in part


@pytest.mark.parametrize("speak", ["modern", "handshake", "delta-mcp"])
@pytest.mark.parametrize("long_row", [0, 5])
async def test_rows_too_large_for_a_page_come_complete(speak: Any, long_row: int):
    rows = [{"id": number, "body": "word " * (3000 if number == long_row else 1)} for number in range(8)]
    server = DeltaServer("rows", results=ResultPolicy(max_tokens=200))
    server.tool(name="rows")(lambda: rows)
    async with connect(server, speak=speak) as client:
        assert [row async for row in client.rows("rows")] == rows


@pytest.mark.parametrize("long_row", [0, 5])
async def test_a_page_of_ours_has_complete_rows(long_row):
    rows = [{"id": number, "body": "word " * (3000 if number == long_row else 1)} for number in range(8)]
    server = DeltaServer("rows", results=ResultPolicy(max_tokens=500, page_size=4))

    @server.tool
    async def get(page: int = 1, pageSize: int = 4) -> Any:
        return rows

    async with original_client(server) as client:
        assert await client.call("get", page=1) == rows[:4]
        assert await client.call("get", page=2) == rows[4:]
