"""Words on forms of results: once in a known conversation, each time elsewhere, and again where they may be lost."""

import asyncio
from typing import Any

import pytest

from deltamcp import DeltaServer, ResultPolicy
from deltamcp.delivery.learned_shapes import LearnedShapes
from deltamcp.values import Caller, Principal, Text
from tests.support.changing_server import shop_items, with_value_at
from tests.support.engine_calls import call_as

ANN = Principal("ann")


async def text_of(server: DeltaServer, caller: Caller, tool: str = "execute", **arguments: Any) -> str:
    reply = await call_as(server, caller, tool, **arguments)
    return "\n".join(block.text for block in reply.content if isinstance(block, Text))


def server_of(values: dict[str, Any]) -> DeltaServer:
    server = DeltaServer("shop", disclosure="meta", results=ResultPolicy(max_tokens=20_000))
    for name in values:

        def read(name: str = name) -> Any:
            return values[name]

        server.tool(name, annotations={"readOnlyHint": True})(read)
    return server


async def test_a_conversation_is_told_once_and_others_each_time():
    values: dict[str, Any] = {name: shop_items(60, shelf=name) for name in ("one", "two", "three")}
    server = server_of(values)
    known, unknown = Caller(ANN, conversation="c", connection="p"), Caller(ANN, connection="p")
    assert "Table: " in await text_of(server, known, operation="one")
    assert "Table: " not in await text_of(server, known, operation="two")
    for name in values:
        assert "Table: " in await text_of(server, unknown, operation=name)
    assert "Table: " in await text_of(server, Caller(ANN, conversation="d", connection="p"), operation="one")
    assert "Table: " in await text_of(server, known, operation="one", since="")  # it asks for all: it may have lost it
    assert "Table: " not in await text_of(server, known, operation="three")


async def test_changes_are_explained_the_same_way():
    values: dict[str, Any] = {"one": shop_items(60), "two": shop_items(60, shelf=2)}
    server, known = server_of(values), Caller(ANN, conversation="c", connection="p")
    for name in values:
        await text_of(server, known, operation=name)
    for name, words in (("one", True), ("two", False)):
        values[name][3]["stock"] = 77
        told = await text_of(server, known, operation=name)
        assert told.startswith("Changed; ") and ("[Changes: k=v" in told) == words


async def test_only_the_words_that_are_new_are_said():
    values: dict[str, Any] = {"one": shop_items(60)}
    server, known = server_of(values), Caller(ANN, conversation="c", connection="p")
    await text_of(server, known, operation="one")
    values["one"][3]["stock"] = 77
    assert "[Changes: k=v sets only k, no field built from it]" in await text_of(server, known, operation="one")
    values["one"] = with_value_at(values["one"], 3, "stock", to=78)
    del values["one"][5]
    assert "[Changes: -k gone]" in await text_of(server, known, operation="one")


async def test_a_call_that_is_cancelled_after_its_reply_was_made_is_no_base(monkeypatch):
    """Its client has left, or lost the connection, so that its model read neither the result nor the words."""
    values: dict[str, Any] = {"one": shop_items(60)}
    server, known = server_of(values), Caller(ANN, conversation="c", connection="p")
    learn, waiting = LearnedShapes.learn, asyncio.Event()

    async def wait_for_ever(*_: Any) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(LearnedShapes, "learn", wait_for_ever)
    call = asyncio.create_task(text_of(server, known, operation="one"))
    await waiting.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    monkeypatch.setattr(LearnedShapes, "learn", learn)
    whole = await text_of(server, known, operation="one")
    assert whole.startswith("#60 ") and "Table: " in whole
    assert (await text_of(server, known, operation="one")).startswith("Executed now: same 60 rows")
