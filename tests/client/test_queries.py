"""Programs select a part of a result: by `fields` and `grep` of `call`, at servers of every kind."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import DeltaServer, Disclosure, Reply, ResultPolicy, ToolError
from deltamcp.client.client import DeltaClient, connect
from deltamcp.errors import ArgumentsError, CallFailedError
from tests.support.fake_http import ANY, Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.lite_address import serve_lite

ROWS = [{"id": n, "state": ["open", "closed"][n % 3 == 0]} for n in range(2_000)]
LOG = "\n".join(f"{['INFO', 'WARNING'][n % 5 == 0]} message {n}" for n in range(5_000))


def query_server(**options: Any) -> DeltaServer:
    server = DeltaServer("x", **options)

    @server.tool
    def rows() -> list[dict[str, Any]]:
        """Rows."""
        return ROWS

    @server.tool
    def log() -> str:
        """Log."""
        return LOG

    @server.tool
    def find(fields: str | None = None, grep: str | None = None) -> list[dict[str, Any]]:
        """Has parameters of these names."""
        return [{"fields": fields, "grep": grep}] * 9

    @server.tool
    def fail() -> str:
        """Fails."""
        raise ToolError("It is closed.")

    return server


def other_server() -> Fake:
    """A server that knows nothing of queries."""

    async def answer(asked: FakeRequest, wire: FakeConnection) -> None:
        given = {"fields": None, "grep": None} | asked.params.get("arguments", {})
        found: dict[str, Any] = {
            "rows": {"content": [{"type": "text", "text": json.dumps(ROWS)}]},
            "log": {"content": [{"type": "text", "text": LOG}]},
            "find": {"content": [{"type": "text", "text": json.dumps([given] * 9)}]},
            "fail": {"isError": True, "content": [{"type": "text", "text": "It is closed."}]},
        }
        shown = found[asked.params["name"]] | {"resultType": "complete"}
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "result": shown})

    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": ANY} for name in ("rows", "log", "fail")]
    own = {"type": "object", "properties": {"fields": {}, "grep": {}}}
    fake = Fake(modern=True, handshake=False, tools=[*tools, {"name": "find", "inputSchema": own}])
    fake.always("tools/call", answer)
    return fake


@contextlib.asynccontextmanager
async def peer(kind: str) -> AsyncIterator[DeltaClient]:
    server = query_server(results=ResultPolicy(max_tokens=300, page_size=20)) if kind != "whole" else query_server()
    match kind:
        case "http" | "grpc":
            async with serve_lite(server, kind) as address, connect(address) as client:
                yield client
        case "other":
            fake = other_server()
            async with serve_fake(fake), connect(fake.url) as client:
                yield client
        case "delta-mcp":
            async with connect(server, speak="delta-mcp") as client:
                yield client
        case _:
            async with connect(server) as client:
                yield client


@pytest.fixture(params=["policy", "whole", "other", "delta-mcp", "http", "grpc"])
async def client(request: Any) -> AsyncIterator[DeltaClient]:
    async with peer(request.param) as connected:
        yield connected


async def test_the_value_of_a_call_is_what_its_query_selects(client):
    assert await client.call("rows", fields="count_by(@,&state)") == {"open": 1333, "closed": 667}
    assert await client.call("rows", fields="[?id>`1998`]") == [{"id": 1999, "state": "open"}]
    assert await client.call("rows", fields="id") == [{"id": row["id"]} for row in ROWS]
    assert await client.call("rows", fields=["state"]) == [{"state": row["state"]} for row in ROWS]
    assert await client.call("rows", grep='"id":7,') == {"7": ROWS[7]}
    assert await client.call("log", grep="WARNING message 1.$") == (
        "2 of 5000 lines match:\n11:WARNING message 10\n16:WARNING message 15"
    )
    assert await client.call("log", grep="WARNING", fields="length(@)") == 1_000


async def test_a_query_that_selects_nothing_is_an_error_for_a_program(client):
    for query, text in [
        ({"fields": "nope"}, "No field 'nope'; there are id, state"),
        ({"fields": "[?id>`9999`]"}, "selects nothing"),
        ({"grep": "nowhere"}, "Nothing matches in 2000 rows"),
    ]:
        with pytest.raises(ArgumentsError, match=text.replace("[", r"\[")):
            await client.call("rows", **query)


async def test_a_query_that_cannot_be_read_is_not_sent(client):
    for query in ({"fields": "[?"}, {"grep": "("}, {"fields": 7}, {"grep": ["a"]}):
        with pytest.raises(ArgumentsError, match=r"fields|grep"):
            await client.call("rows", **query)


async def test_arguments_of_a_tool_are_its_own(client):
    assert await client.call("find", fields="a", grep="b") == [{"fields": "a", "grep": "b"}] * 9
    assert await client.call("find", grep=None) == [{"fields": None, "grep": None}] * 9
    reply = await client.call_tool("find", {"grep": "b"}, fields="[0].grep")
    assert reply.value == "b"


async def test_a_failure_is_not_queried(client):
    with pytest.raises(CallFailedError, match=r"It is closed\."):
        await client.call("fail", fields="length(@)", grep="nowhere")


async def test_a_reply_may_be_limited_and_queried(client):
    reply = await client.call_tool("rows", want=ResultPolicy(max_tokens=100), fields="[].id")
    assert isinstance(reply, Reply) and reply.is_part and reply.value == list(range(len(reply.value)))
    assert not reply.is_selection


@pytest.mark.parametrize(("fields", "value"), [("length(@)", 2000), ("max_by(@, &id).{n: id}", {"n": 1999})])
async def test_what_an_argument_of_a_meta_tool_selects_is_the_value_of_its_call(fields, value):
    server = DeltaServer("x", disclosure=Disclosure("meta", query=True))
    server.tool(name="rows", annotations={"readOnlyHint": True})(lambda: ROWS)
    async with connect(server, progressive=False) as host:
        assert await host.call("query", operation="rows", fields=fields) == value
        reply = await host.call_tool("query", {"operation": "rows", "fields": fields})
        assert reply.selects_all and (await host.fit(reply, ResultPolicy())).selects_all
        part = await host.call_tool("query", {"operation": "rows", "fields": "[].id"}, want=ResultPolicy(max_tokens=99))
        assert part.is_part and not part.selects_all


async def test_what_an_author_leaves_out_is_a_part():
    server = DeltaServer("x", results=ResultPolicy(fields="id"))
    server.tool(name="rows")(lambda: ROWS[:9])
    async with connect(server) as client:
        reply = await client.call_tool("rows", want=ResultPolicy())
        assert reply.is_part and not reply.selects_all
        assert await client.call("rows") == ROWS[:9]
