"""Stored results: separate for callers and servers, bounded, and delivered even if the store fails."""

from typing import Any

import pytest
from pydantic import BaseModel

from deltamcp import DeltaServer, Principal, ResultPolicy, Text, ToolResult
from deltamcp.results.encode import encode
from deltamcp.tokens import count
from deltamcp.values import ANONYMOUS, Caller, CallTool, Era, ResultShape, Terms
from tests.support.office_server import ROWS, call, handle_of, office_server, result_text
from tests.support.raw_client import answer_text, raw_client

PATCHES = [
    [{"op": "copy", "from": "", "path": "/0"}] * 40,
    [{"find": "a", "replace": "a" * 1_000_000, "all": True}],
]


@pytest.mark.parametrize("patch", PATCHES)
async def test_patches_have_a_size(patch):
    server = office_server()
    async with raw_client(server) as raw:
        path = "/0/name" if "find" in patch[0] else ""
        change = [{"find": "n", "replace": "a" * 1_000_000}] * (path != "") + patch
        reference = {"$result": await handle_of(raw, "rows"), "path": path, "patch": change}
        assert (await call(raw, "take", v=reference))["isError"]
    assert "take" not in server.ran


async def test_many_references_to_one_part_are_read_once_and_add_up():
    server = office_server()

    @server.tool
    async def large() -> Any:
        return ["x" * 1_000_000] * 9

    async with raw_client(server) as raw:
        reference = {"$result": await handle_of(raw, "large")}
        assert answer_text({"result": await call(raw, "take", v=[reference] * 3)})
        assert "MiB" in result_text(await call(raw, "take", v=[reference] * 10))


def delta_terms(principal: Principal) -> Terms:
    return Terms(
        Era.HANDSHAKE,
        "2025-11-25",
        {},
        {},
        {},
        caller=Caller(principal, None, principal is ANONYMOUS),
        result_shape=ResultShape.DELTA_MCP,
    )


async def test_strangers_are_not_shown_each_others_pages():
    server: Any = DeltaServer("inbox", results=ResultPolicy(max_tokens=500, page_size=5))
    callers = iter(["first", "second"])

    @server.tool
    async def inbox() -> Any:
        whose = next(callers)
        return [{"of": whose, "n": n} for n in range(20)]

    async with raw_client(server):
        for arguments in ({}, {"page": 2}):
            ask, terms = CallTool("inbox", arguments), delta_terms(ANONYMOUS)
            outcome: Any = await server.engine.perform(ask, terms, None, 1)
    assert "second" in outcome.value.content[0].text and "first" not in outcome.value.content[0].text


async def test_servers_on_one_store_keep_apart(tmp_path):
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    servers = [DeltaServer(name, results=ResultPolicy(max_tokens=300), store=store) for name in ("payroll", "tracker")]
    for server in servers:
        server.tool(name="get")(lambda: ROWS)
    async with raw_client(servers[0]) as one, raw_client(servers[1]) as other:
        handle = await handle_of(one, "get")
        assert not (await call(one, "continue", handle=handle)).get("isError")
        assert (await call(other, "continue", handle=handle))["isError"]


class Small(BaseModel):
    id: int
    name: str


async def test_fewer_fields_behind_execute_are_no_error():
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="a")
    async def one() -> Small:
        return Small(id=1, name="n")

    async with raw_client(server) as raw:
        result = await call(raw, "execute", operation="a.one", fields="id")
        assert not result.get("isError") and '{"id":1}' in result_text(result)


async def test_fewer_fields_than_an_output_schema_asks_for_are_not_given():
    server = DeltaServer("x", results=ResultPolicy(max_tokens=300))

    @server.tool
    async def one() -> Small:
        return Small(id=1, name="n")

    async with raw_client(server) as raw:
        result = await call(raw, "one", {"fields": "id"})
        assert not result.get("isError") and result["structuredContent"] == {"id": 1, "name": "n"}
        assert "every field" in result_text(result)


class Listed(BaseModel):
    cursor: str
    items: list[Small]


async def test_what_programs_read_is_not_invented():
    server = DeltaServer("x", results=ResultPolicy(max_tokens=400))

    @server.tool
    async def some() -> Listed:
        return Listed(cursor="c" * 600, items=[Small(id=n, name="n") for n in range(500)])

    async with raw_client(server) as raw:
        result = await call(raw, "some")
        assert result["structuredContent"]["cursor"] == "c" * 600
        assert 0 < len(result["structuredContent"]["items"]) < 500


async def test_what_is_remembered_is_no_handle():
    server = office_server(page_size=5)
    async with raw_client(server) as delta, raw_client(server) as raw:
        await delta.handshake("delta-mcp/0.2.0")
        await delta.call("tools/call", name="rows", arguments={})
        names = [name for _, name in server._store._entries if name.startswith("page ")]
        assert names
        for name in (*names, "", "\0", "R" * 5000):
            refused = await call(raw, "continue", handle=name)
            assert ("again" if name else "handle is required") in result_text(refused)
            assert count(result_text(refused)) < 100
            assert (await call(raw, "take", v={"$result": name}))["isError"]
            read = await raw.modern("resources/read", uri=f"office://results/{name}")
            assert read["error"]["code"] == -32602


async def test_a_repair_keeps_to_the_budget_that_was_wished_for():
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="a")
    async def create(k: int = 0) -> Any:
        return ROWS

    async with raw_client(server) as raw:
        for arguments in ({"operation": "a.create"}, {"operation": "a.create", "k": 1}):
            result = await call(raw, "execute", {"maxTokens": 200}, **arguments)
            assert count(result_text(result)) <= 200


async def test_what_is_made_by_hand_and_fits_is_sent_as_it_is():
    made = '{"price": 0.12345678901234567890123, "n": 1.50, "a":1, "a":2}'
    server = office_server()
    server.tool(name="hand")(lambda: ToolResult([Text(made)]))
    async with raw_client(server) as raw:
        assert result_text(await call(raw, "hand")) == made


@pytest.mark.parametrize("words", ["   ", "\n", "STRASSE|straße", "i̇stanbul", "timeout|", "|"])
async def test_any_words_can_be_searched_for(words):
    async with raw_client(office_server()) as raw:
        handle = await handle_of(raw, "log")
        assert not (await call(raw, "continue", handle=handle, grep=words)).get("isError")


async def test_far_pages_are_not_looked_for():
    async with raw_client(office_server()) as raw:
        handle = await handle_of(raw, "rows")
        assert (await call(raw, "continue", handle=handle, page=10**9))["isError"]


async def test_uniform_rows_without_end_are_shown_by_few_attempts(monkeypatch):
    longest = 0

    def watched(value: Any, **options: Any) -> Any:
        nonlocal longest
        longest = max(longest, len(value))
        return encode(value, **options)

    monkeypatch.setattr("deltamcp.results.window.encode", watched)
    server = office_server()
    server.tool(name="uniform")(lambda: [{"id": n, "kind": "a"} for n in range(50_000)])
    async with raw_client(server) as raw:
        await call(raw, "uniform")
    assert longest < 2_000
