"""Items that are replaced by work in another thread: clients see all of the change or nothing of it."""

import asyncio

import pytest

from deltamcp import DeltaServer, connect
from deltamcp.catalog.items.remote_items import RemoteOperation, RemotePrompt, RemoteResource
from deltamcp.errors import ConfigurationError
from deltamcp.values import Kind, RawResult


async def answer(**arguments):
    return RawResult(b"{}", {})


def operation(name):
    return RemoteOperation(answer, {"name": name, "inputSchema": {"type": "object"}}, name=name)


ITEMS = [
    operation("a"),
    operation("b"),
    RemoteResource(answer, {"uri": "x:1", "name": "one"}),
    RemotePrompt(answer, {"name": "ask"}, "ask"),
]
OTHERS = [ITEMS[1], operation("c"), RemoteResource(answer, {"uri": "x:2", "name": "two"})]


def names(server):
    catalog = server.engine.catalog
    return [*catalog.operations, *catalog.resources, *catalog.prompts]


async def test_nothing_changes_before_the_change_and_then_all_does():
    server = DeltaServer("books")
    server.items.replace_items([], ITEMS)
    changes: list[str] = []
    async with connect(server, on_change=changes.append, progressive=False) as client:
        assert [one.name for one in await client.tools()] == ["a", "b"]
        change = await asyncio.to_thread(server.items.prepare_replacement, ITEMS, OTHERS)
        assert names(server) == ["a", "b", "x:1", "ask"] and changes == []
        change()
        assert names(server) == ["b", "c", "x:2"]
        client.forget_lists()
        assert [one.name for one in await client.tools()] == ["b", "c"]
        assert {*changes} == {"tools", "resources", "prompts"}


def test_it_is_what_replacing_at_once_makes():
    prepared, direct = DeltaServer("books"), DeltaServer("books")
    for server in (prepared, direct):
        server.items.replace_items([], ITEMS)
    prepared.items.prepare_replacement(ITEMS, OTHERS)()
    direct.items.replace_items(ITEMS, OTHERS)
    assert names(prepared) == names(direct)
    for server in (prepared, direct):
        catalog = server.engine.catalog
        assert catalog.get(Kind.TOOLS, "c") is OTHERS[1] and catalog.get(Kind.TOOLS, "a") is None
        assert catalog.view().find("c") is OTHERS[1]
        assert catalog.search_index().search("c", 5, None)


def test_what_somebody_else_adds_meanwhile_stays():
    server = DeltaServer("books")
    server.items.replace_items([], ITEMS)
    change = server.items.prepare_replacement(ITEMS, OTHERS)
    server.items.add(operation("own"))
    change()
    assert {*names(server)} == {"b", "c", "own", "x:2"}


def test_where_a_server_is_mounted_the_items_change_too():
    outer, inner = DeltaServer("outer"), DeltaServer("inner")
    inner.items.replace_items([], ITEMS)
    outer.items.mount(inner.items, "in")
    inner.items.prepare_replacement(ITEMS, OTHERS)()
    assert list(outer.engine.catalog.operations) == ["in_b", "in_c"]


def test_items_that_are_not_allowed_change_nothing():
    server = DeltaServer("books")
    server.items.replace_items([], ITEMS)
    with pytest.raises(ConfigurationError):
        server.items.prepare_replacement(ITEMS, [operation("c"), operation("c")])
    assert names(server) == ["a", "b", "x:1", "ask"]
