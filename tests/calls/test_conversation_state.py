"""State of a conversation: shared by its calls at every replica, by no other conversation and no other principal."""

import asyncio
from typing import Any

import msgspec
import pytest

from deltamcp import Context, DeltaServer, Limits, Principal, connect
from deltamcp.context import conversation_digest
from deltamcp.values import ANONYMOUS, LOCAL, Caller
from tests.support.engine_calls import call_as
from tests.support.http_server import serve_http


def _server(**options) -> DeltaServer:
    server = DeltaServer("cart", **options)

    @server.tool
    async def put(name: str, value: object, ctx: Context) -> str:
        """Puts a value into the state."""
        await ctx.state.set(name, value)
        return "put"

    @server.tool
    async def take(name: str, ctx: Context) -> object:
        """Returns and removes a value of the state."""
        value = await ctx.state.get(name, "nothing")
        await ctx.state.delete(name)
        return value

    @server.tool
    async def show(ctx: Context) -> dict[str, object]:
        """Shows the state."""
        return await ctx.state.all()

    @server.tool
    def count(ctx: Context) -> int:
        """Counts its calls, in a thread."""
        return int(ctx.wait(ctx.state.update("calls", lambda calls: calls + 1, 0)))

    return server


def _caller(conversation: str | None, principal: Principal = LOCAL) -> Caller:
    return Caller(principal, conversation, account=principal.key)


def _value(result) -> Any:
    assert not result.is_error, result.content[0].text
    return msgspec.json.decode(result.content[0].text)


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_calls_over_one_connection_share_state_and_other_connections_have_their_own(era):
    server = _server()
    async with connect(server, speak=era) as one, connect(server, speak=era) as two:
        await one.call("put", name="item", value=["milk", None, 1.5])
        assert await one.call("show") == {"item": ["milk", None, 1.5]}
        assert await two.call("show") == {}
        assert await one.call("take", name="item") == ["milk", None, 1.5]
        assert await one.call("take", name="item") == "nothing"


async def test_a_session_over_http_has_state_and_a_request_that_stands_alone_is_told_what_it_lacks():
    async with serve_http(_server()) as url:
        async with connect(url, speak="handshake") as session:
            await session.call("put", name="item", value="milk")
            assert await session.call("show") == {"item": "milk"}
        async with connect(url, speak="handshake") as other:
            assert await other.call("show") == {}
        async with connect(url, speak="modern") as alone:
            refused = await alone.call_tool("show")
    assert refused.is_error
    assert "the request belongs to none" in refused.text and "error" not in refused.text


async def test_every_replica_has_the_state(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    one, two = _server(store=url), _server(store=url)
    ann = _caller("c1", Principal("ann"))
    await call_as(one, ann, "put", name="item", value="milk")
    assert _value(await call_as(two, ann, "show")) == {"item": "milk"}


async def test_principals_that_name_their_conversation_alike_do_not_meet():
    server = _server()
    principals = [Principal("ann"), Principal("bob"), Principal("ann", issuer="https://a"), LOCAL, ANONYMOUS]
    principals += [Principal("local"), Principal("anonymous")]
    for number, principal in enumerate(principals):
        await call_as(server, _caller("same", principal), "put", name="number", value=number)
    for number, principal in enumerate(principals):
        assert _value(await call_as(server, _caller("same", principal), "show")) == {"number": number}
    digests = {conversation_digest(_caller("same", principal)) for principal in principals}
    assert len(digests) == len(principals)


async def test_no_concurrent_change_is_lost():
    server, caller = _server(), _caller("c")
    counted = await asyncio.gather(*(call_as(server, caller, "count") for _ in range(40)))
    assert sorted(_value(one) for one in counted) == list(range(1, 41))


async def test_state_is_bounded_and_what_does_not_fit_changes_nothing():
    server, caller = _server(limits=Limits(state_bytes=100)), _caller("c")
    await call_as(server, caller, "put", name="small", value="x" * 50)
    refused: Any = await call_as(server, caller, "put", name="large", value="x" * 50)
    assert refused.is_error and refused.content[0].text == "The state of a conversation may have 100 bytes as JSON."
    assert _value(await call_as(server, caller, "show")) == {"small": "x" * 50}


async def test_a_call_behind_a_promise_has_the_state_of_its_conversation():
    server = _server()

    @server.tool(promise="always")
    async def later(ctx: Context) -> str:
        """Puts something into the state, later."""
        await ctx.state.set("later", ctx.promise_id is not None)
        return "done"

    async with connect(server) as client:
        pending = await client.start("later")
        await pending.result()
        assert await client.call("show") == {"later": True}


async def test_a_request_that_stands_alone_may_name_its_conversation():
    def named(name: str) -> dict[str, Any]:
        return {"name": "count", "arguments": {}, "_meta": {"io.github.delta-mcp/conversation": name}}

    async with serve_http(_server()) as url, connect(url, speak="modern") as client:
        counts = [
            (await client.request("tools/call", named(name)))["content"][0]["text"]
            for name in ("the first conversation", "the first conversation", "the second conversation")
        ]
        guessable = await client.request("tools/call", named("short"))
    assert counts == ["1", "2", "1"]
    assert guessable["isError"], "callers that nobody authenticates could guess it"
