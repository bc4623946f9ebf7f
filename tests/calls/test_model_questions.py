"""Questions to users whose clients cannot ask: the model is asked to pass them on, and calls again with the answers."""

import asyncio
import json
import re
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, Disclosure, Limits, PeerError, Principal, connect
from deltamcp.values import Caller, Era, Terms
from tests.support.engine_calls import SilentChannel

TICKET = re.compile(r'"\$answers":(\{.*\}), or "decline"')


def _server(**options: Any) -> tuple[DeltaServer, list[Any]]:
    server = DeltaServer("posts", **options)
    ran: list[Any] = []

    @server.tool(policy="confirm", category="posts", action="delete")
    async def delete_post(id: int) -> str:
        """Delete a post."""
        ran.append(id)
        return f"deleted {id}"

    @server.tool(category="posts", action="rename")
    async def rename_post(id: int, ctx: Context) -> str:
        """Rename a post."""
        answer = await ctx.elicit(
            "Which name?",
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["name", "count"],
            },
        )
        if not answer.accepted:
            return "kept its name"
        sure = await ctx.elicit(f"Really {answer.content['name']}?", bool)
        ran.append((id, answer.content, sure.content))
        return "renamed"

    @server.tool(category="posts", action="look", annotations={"readOnlyHint": True})
    def look(ctx: Context) -> str:
        """Look at posts of one kind."""
        return f"looked at {ctx.wait(ctx.elicit('Which kind?', ['red', 'blue'])).content}"

    @server.tool(category="posts", action="judge")
    async def judge(ctx: Context) -> str:
        """Ask the client's model."""
        return str(await ctx.sample("Well?", max_tokens=10))

    return server, ran


def _answers(reply: Any) -> dict[str, Any]:
    """The example of an answer in the text that asks."""
    assert reply.is_error, reply.text
    found = TICKET.search(reply.text)
    assert found is not None, reply.text
    example: dict[str, Any] = json.loads(found[1])
    return example


def _with(example: dict[str, Any], answers: Any) -> dict[str, Any]:
    return {"$answers": dict.fromkeys(example, answers)}


async def test_consent_is_asked_of_the_model_and_counts_once():
    server, ran = _server()
    async with connect(server, speak="handshake", validate=False) as client:
        asked = await client.call_tool("delete_post", {"id": 7})
        assert ran == []
        assert 'Run posts.delete with {"id":7}?' in asked.text and "do not answer yourself" in asked.text
        example = _answers(asked)
        done = await client.call_tool("delete_post", {"id": 7, **_with(example, {"confirm": True})})
        assert (done.text, done.is_error) == ("deleted 7", False)
        again = await client.call_tool("delete_post", {"id": 7, **_with(example, {"confirm": True})})
        assert again.is_error and "used before" in again.text
    assert ran == [7]


@pytest.mark.parametrize("answer", ["decline", "cancel", {"confirm": False}, {"other": True}, {}])
async def test_what_is_no_clear_consent_is_none(answer):
    server, ran = _server()
    async with connect(server, speak="handshake", validate=False) as client:
        example = _answers(await client.call_tool("delete_post", {"id": 7}))
        refused = await client.call_tool("delete_post", {"id": 7, **_with(example, answer)})
    assert refused.is_error and ran == []


async def test_answers_are_bound_to_the_arguments_and_nothing_is_taken_without_a_question():
    server, ran = _server()
    async with connect(server, speak="handshake", validate=False) as client:
        example = _answers(await client.call_tool("delete_post", {"id": 7}))
        for arguments in (
            {"id": 8, **_with(example, {"confirm": True})},
            {"id": 7, **_with({"invented": 1}, {"confirm": True})},
            {"id": 7, "$answers": {"confirm": True}},
            {"id": 7, "$answers": True},
        ):
            refused = await client.call_tool("delete_post", arguments)
            assert refused.is_error and "did not run" in refused.text
        assert ran == []
        assert (
            await client.call_tool("delete_post", {"id": 7, **_with(example, {"confirm": True})})
        ).text == "deleted 7"
    assert ran == [7]


async def test_forms_are_asked_in_rounds_and_what_does_not_fit_is_asked_again():
    server, ran = _server()
    async with connect(server, speak="handshake", validate=False) as client:
        asked = await client.call_tool("rename_post", {"id": 7})
        assert "Which name?" in asked.text and "(name, count:int)" in asked.text
        incomplete = await client.call_tool("rename_post", {"id": 7, **_with(_answers(asked), {"name": "Emma"})})
        wrong = await client.call_tool("rename_post", {"id": 7, **_with(_answers(incomplete), {"count": "many"})})
        assert "does not fit the form" in wrong.text
        sure = await client.call_tool("rename_post", {"id": 7, **_with(_answers(wrong), {"name": "Emma", "count": 2})})
        assert "Really Emma?" in sure.text
        done = await client.call_tool("rename_post", {"id": 7, **_with(_answers(sure), {"value": True})})
        assert done.text == "renamed"
        declined = await client.call_tool("rename_post", {"id": 7})
        assert (
            await client.call_tool("rename_post", {"id": 7, **_with(_answers(declined), "decline")})
        ).text == "kept its name"
    assert ran == [(7, {"name": "Emma", "count": 2}, True)]


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_behind_meta_tools_the_answers_stand_beside_params(era):
    server, ran = _server(disclosure=Disclosure("meta", query=True))
    async with connect(server, speak=era) as client:
        call = {"operation": "posts.delete", "params": {"id": 7}}
        asked = await client.call_tool("execute", call)
        assert "posts.delete waits for its user" in asked.text and "beside params" in asked.text
        answers = _with(_answers(asked), {"confirm": True})
        assert (await client.call_tool("execute", {**call, **answers})).text == "deleted 7"
        inside = _with(_answers(await client.call_tool("execute", call)), {"confirm": True})
        params = {"id": 7, **inside}
        assert (await client.call_tool("execute", {"operation": "posts.delete", "params": params})).text == "deleted 7"
        look = {"operation": "posts.look", "params": {}}
        kind = _with(_answers(await client.call_tool("query", look)), {"value": "blue"})
        assert (await client.call_tool("query", {**look, **kind})).text == "looked at blue"
    assert ran == [7, 7]


async def test_a_direct_call_of_2026_07_28_is_refused_with_the_capability_that_it_needs():
    server, ran = _server()
    async with connect(server, speak="modern") as client:
        for name in ("delete_post", "rename_post"):
            with pytest.raises(PeerError) as refused:
                await client.call_tool(name, {"id": 7})
            assert refused.value.code == -32021
            assert refused.value.data == {
                "requiredCapabilities": {"elicitation": {"form": {}}}
            } or "elicitation" in str(refused.value.data)
    assert ran == []


async def test_what_the_client_itself_is_to_answer_is_not_asked_of_the_model():
    server, _ = _server()
    async with connect(server, speak="handshake") as client:
        refused = await client.call_tool("judge")
        assert refused.is_error and "does not support sampling" in refused.text
    async with connect(server, speak="handshake", on_sampling=lambda params: "fine") as client:
        assert "fine" in (await client.call_tool("judge")).text


async def test_a_client_that_can_ask_is_asked():
    server, ran = _server()
    async with connect(server, speak="handshake", on_elicitation=lambda params: {}) as client:
        assert (await client.call_tool("delete_post", {"id": 7})).text == "deleted 7"
    assert ran == [7]


def _terms(principal: Principal) -> Terms:
    caller = Caller(principal, f"session of {principal.key}", account=principal.key)
    return Terms(Era.HANDSHAKE, "2025-11-25", {}, {}, {}, caller=caller)


async def _call(server: DeltaServer, principal: Principal, **arguments: Any) -> Any:
    from deltamcp.values import CallTool

    outcome: Any = await server.engine.perform(
        CallTool("delete_post", arguments), _terms(principal), SilentChannel(), 1
    )
    return outcome.value


async def test_another_principal_cannot_answer_and_of_concurrent_answers_one_counts():
    server, ran = _server()
    ann, bob = Principal("ann"), Principal("bob")
    asked = await _call(server, ann, id=7)
    found = TICKET.search(asked.content[0].text)
    assert found is not None
    (ticket,) = json.loads(found[1])
    answers = {"$answers": {ticket: {"confirm": True}}}
    assert "did not run" in (await _call(server, bob, id=7, **answers)).content[0].text
    results = await asyncio.gather(*(_call(server, ann, id=7, **answers) for _ in range(20)))
    assert [one.content[0].text for one in results].count("deleted 7") == 1
    assert ran == [7]


async def test_another_replica_takes_the_answers(tmp_path):
    options: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/store.db", "state_key": b"k" * 32}
    (one, ran_here), (two, ran_there) = _server(**options), _server(**options)
    ann = Principal("ann")
    found = TICKET.search((await _call(one, ann, id=7)).content[0].text)
    assert found is not None
    answers = {"$answers": {ticket: {"confirm": True} for ticket in json.loads(found[1])}}
    assert (await _call(two, ann, id=7, **answers)).content[0].text == "deleted 7"
    assert "used before" in (await _call(one, ann, id=7, **answers)).content[0].text
    assert (ran_here, ran_there) == ([], [7])


async def test_answers_that_come_late_are_asked_for_again(monkeypatch):
    from tests.support.conditions import advance_store_clock

    server, ran = _server(limits=Limits(input_seconds=60))
    ann = Principal("ann")
    found = TICKET.search((await _call(server, ann, id=7)).content[0].text)
    assert found is not None
    answers = {"$answers": {ticket: {"confirm": True} for ticket in json.loads(found[1])}}
    advance_store_clock(server, monkeypatch, 61)
    assert "came too late" in (await _call(server, ann, id=7, **answers)).content[0].text
    assert ran == []


async def test_a_tool_of_its_own_may_have_an_argument_of_that_name():
    server = DeltaServer("own")

    @server.tool(input_schema={"type": "object", "properties": {"$answers": {}}})
    async def quiz(arguments: dict[str, Any], ctx: Context) -> str:
        """Take a quiz."""
        return str(arguments["$answers"])

    async with connect(server, speak="handshake") as client:
        assert await client.call("quiz", **{"$answers": {"a": 1}}) == "{'a': 1}"
