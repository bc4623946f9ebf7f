"""Promises over MCP-lite's HTTP: what `redeem` and `await` return, and the headers and statuses of promises."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from deltamcp import Context, DeltaServer
from tests.support.conditions import HANG_SECONDS
from tests.support.lite_client import LiteClient, LiteReply, lite_client

pytest.importorskip("docket")


class Analysis(NamedTuple):
    server: DeltaServer
    may_end: asyncio.Event
    has_begun: asyncio.Event


def analysis() -> Analysis:
    """A server whose tool answers with a promise, and goes on when it is told to."""
    server = DeltaServer("lab", "1.0")
    may_end, has_begun = asyncio.Event(), asyncio.Event()

    @server.tool(promise="always")
    async def analyze(ctx: Context, dataset: str) -> str:
        """Analyze a dataset."""
        await ctx.report_progress(1, 4, "Reading")
        has_begun.set()
        await may_end.wait()
        return f"{dataset} is fine"

    return Analysis(server, may_end, has_begun)


@contextlib.asynccontextmanager
async def promised(lab: Analysis, **mcp_lite: Any) -> AsyncIterator[tuple[LiteClient, str, LiteReply]]:
    """A client, the token of a promise that it has, and the reply that gave it."""
    async with lite_client(lab.server, mcp_lite=mcp_lite or True) as client, asyncio.timeout(HANG_SECONDS):
        reply = await client.call("analyze", {"dataset": "d1"})
        token = reply.result()["_meta"]["promise_token"]
        await lab.has_begun.wait()
        yield client, token, reply


async def redeem(client: LiteClient, token: str, **arguments: Any) -> dict[str, Any]:
    return (await client.call("redeem", {"promise": token, **arguments})).result()


async def test_ml_24_a_promise_says_over_http_when_to_ask_again():
    async with promised(analysis()) as (client, token, reply):
        result = reply.result()
        assert (reply.status, result["_meta"]["response_type"]) == (200, "promise")
        assert result["promise"]["token"] == token
        assert int(reply.headers["retry-after"]) >= 1
        again = await redeem(client, token)
        assert again["promise"]["token"] == token
    async with promised(analysis(), promise_http_status=202) as (_, _, reply):
        assert reply.status == 202


async def test_ml_36_redeem_returns_the_result_and_does_so_again():
    lab = analysis()
    async with promised(lab) as (client, token, _):
        lab.may_end.set()
        first = await redeem(client, token, wait_ms=30_000)
        assert first["content"][0]["text"] == "d1 is fine"
        assert first["_meta"]["response_type"] == "answer"
        assert (await redeem(client, token))["content"] == first["content"]


async def test_a_client_that_prefers_to_wait_is_told_that_it_does():
    lab = analysis()
    async with promised(lab) as (client, token, _):
        lab.may_end.set()
        params = {"name": "redeem", "arguments": {"promise": token}}
        reply = await client.rpc("tools/call", params, prefer="respond-async, wait=25")
        assert reply.headers["preference-applied"] == "wait=25"
        assert reply.result()["_meta"]["response_type"] == "answer"
        chosen = await client.rpc(
            "tools/call", {**params, "arguments": {"promise": token, "wait_ms": 0}}, prefer="wait=9"
        )
        assert "preference-applied" not in chosen.headers


async def test_ml_41_status_and_cancel():
    async with promised(analysis()) as (client, token, _):
        status = await redeem(client, token, action="status")
        assert (status["promise"]["status"], status["promise"]["progress"]) == ("working", 0.25)
        assert status["promise"]["message"] == "Reading"
        cancelled = await redeem(client, token, action="cancel")
        assert (cancelled["_meta"]["response_type"], cancelled["error"]["code"]) == ("failure", "CANCELLED")
        again = await redeem(client, token)
        assert again["error"]["code"] == "CANCELLED"


async def test_await_is_a_path_and_a_tool_where_it_is_enabled():
    lab = analysis()
    async with promised(lab, await_tool=True) as (client, token, _):
        checked = (await client.send("await", {"promise_token": token, "action": "checkin"})).json()
        assert checked["promise"]["token"] == token
        lab.may_end.set()
        await redeem(client, token, wait_ms=30_000)
        by_path = (await client.send("await", {"promise_token": token})).json()
        by_tool = (await client.call("await", {"promise_token": token})).result()
        assert by_path["content"] == by_tool["content"] == [{"type": "text", "text": "d1 is fine"}]
        unknown = await client.send("await", {"promise_token": "prom_x"})
        assert (unknown.status, unknown.error()["data"]["reason"]) == (400, "PROMISE_UNKNOWN")
        listed = {tool["name"] for tool in (await client.send("listtools", {})).json()}
        assert "await" not in listed and "redeem" in listed


async def test_the_path_await_has_the_status_and_the_headers_of_promises():
    lab = analysis()
    async with promised(lab, await_tool=True, promise_http_status=202) as (client, token, _):
        open_ = await client.send("await", {"promise_token": token})
        assert (open_.status, open_.json()["promise"]["token"]) == (202, token)
        assert int(open_.headers["retry-after"]) >= 1
        lab.may_end.set()
        ended = await client.send("await", {"promise_token": token}, headers={"prefer": "wait=25"})
        assert (ended.status, ended.headers["preference-applied"]) == (200, "wait=25")
        assert ended.json()["content"][0]["text"] == "d1 is fine"


async def test_a_client_that_takes_no_promise_waits():
    lab = analysis()
    lab.may_end.set()
    async with lite_client(lab.server) as client:
        waited = await client.call("analyze", {"dataset": "d2"}, _meta={"accept_response_types": ["Answer"]})
        assert waited.result()["content"][0]["text"] == "d2 is fine"
        assert waited.result()["_meta"]["response_type"] == "answer"


FORM = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}}


async def test_ml_39_the_questions_of_a_promise_are_answered_by_redeem():
    server = DeltaServer("travel", "1.0")

    @server.tool(promise="always")
    async def trip(ctx: Context) -> str:
        """Plan a trip."""
        answer = await ctx.elicit("Which city?", FORM)
        return f"Off to {answer.content['city']}" if answer.accepted else "No trip"

    async with lite_client(server) as client, asyncio.timeout(HANG_SECONDS):
        answers: list[dict[str, Any]] = [
            {"city": "Oslo"},
            {"elicitation-1": {"action": "accept", "content": {"city": "Rome"}}},
        ]
        for answer, outcome in zip(answers, ("Off to Oslo", "Off to Rome"), strict=True):
            token = (await client.call("trip")).result()["_meta"]["promise_token"]
            asked = await redeem(client, token, wait_ms=30_000)
            assert asked["_meta"]["response_type"] == "elicitation"
            assert asked["elicitation"]["questions"][0]["id"] == "city"
            ended = await redeem(client, token, wait_ms=30_000, input=answer)
            assert ended["content"][0]["text"] == outcome
