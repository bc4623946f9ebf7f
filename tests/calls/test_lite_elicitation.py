"""Questions of tools to MCP-lite's clients: sealed state, answers by the ids of questions, and refusals."""

import time
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from deltamcp import Context, DeltaServer
from deltamcp.dialects.mcp_lite import LiteOptions, McpLite, Stamp
from deltamcp.limits import Limits
from deltamcp.values import Caller, Principal, Request
from deltamcp.wire import jsonrpc
from tests.support.engine_calls import SilentChannel

ANNA, BERT = (Caller(Principal(name), account=name) for name in ("anna", "bert"))


class Trip(BaseModel):
    city: Literal["Oslo", "Rome"]
    day: str
    note: str = ""


def make_server() -> tuple[Any, list[str]]:
    server, done = DeltaServer("travel", limits=Limits(input_seconds=60)), list[str]()

    @server.tool
    async def book(ctx: Context, seats: int) -> str:
        """Books a trip."""
        trip = await ctx.elicit("Where to?", Trip)
        done.append(f"{trip.content.city} {trip.content.day} {seats}")
        return done[-1]

    @server.tool
    async def rename(ctx: Context) -> str:
        """Asks twice."""
        first = await ctx.elicit("Old name?", str, key="old")
        second = await ctx.elicit("New name?", str, key="new")
        return f"{first.content} to {second.content}"

    @server.tool(policy="confirm")
    async def wipe(disk: str) -> str:
        """Wipes a disk."""
        done.append(disk)
        return f"wiped {disk}"

    return server, done


async def call(server: Any, name: str, arguments: dict[str, Any], caller: Caller = ANNA, **params: Any) -> Any:
    """The JSON of the response to a call."""
    lite = McpLite(server.engine.info, server.engine.catalog.view, 60, LiteOptions())
    request = Request(7, "tools/call", {"name": name, "arguments": arguments, **params})
    understood = lite.read(request, caller)
    assert isinstance(understood, tuple)
    outcome = await server.engine.perform(understood[1], understood[0], SilentChannel(), 7)
    return jsonrpc.decode(lite.write(request, outcome, "", Stamp(1_800_000_000, 5)))


def state_of(body: Any) -> str:
    assert body["result"]["_meta"]["response_type"] == "elicitation"
    state: str = body["result"]["_meta"]["request_state"]
    return state


async def test_ml_25_a_question_is_an_elicitation_with_its_fields_as_questions():
    server, done = make_server()
    body = await call(server, "book", {"seats": 2})
    asked = body["result"]["elicitation"]
    assert asked["text"] == "Where to?" and not done
    assert [(one["id"], one["type"], one["required"]) for one in asked["questions"]] == [
        ("city", "single_select", True),
        ("day", "text", True),
        ("note", "text", False),
    ]
    assert asked["questions"][0]["options"] == ["Oslo", "Rome"]
    assert state_of(body) and body["result"]["_meta"]["expires_at"] == "2027-01-15T08:01:00.000Z"


PLACES = {
    "params of MCP": lambda state, answers: {
        "inputResponses": {"elicitation-1": {"action": "accept", "content": answers}},
        "requestState": state,
    },
    "_meta by keys": lambda state, answers: {
        "_meta": {
            "input_responses": {"elicitation-1": {"action": "accept", "content": answers}},
            "request_state": state,
        }
    },
    "_meta by ids": lambda state, answers: {"_meta": {"answers": answers, "request_state": state}},
}


@pytest.mark.parametrize("place", PLACES)
async def test_ml_25_the_answers_are_read_in_every_place(place):
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    body = await call(server, "book", {"seats": 2}, **PLACES[place](state, {"city": "Oslo", "day": "Monday"}))
    assert body["result"]["_meta"]["response_type"] == "answer"
    assert done == ["Oslo Monday 2"]


async def test_ml_25_the_answers_may_be_among_the_arguments():
    server, _ = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    answers = {"answers": {"city": "Rome", "day": "Friday"}, "request_state": state}
    body = await call(server, "book", {"seats": 2, "_meta": answers})
    assert body["result"]["content"][0]["text"] == "Rome Friday 2"


async def test_ml_25_partial_answers_are_kept_and_the_question_is_asked_again():
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    for meta in ({}, {"answers": {"city": "Oslo"}}, {"answers": {"note": "window"}}):
        body = await call(server, "book", {"seats": 2}, _meta={**meta, "request_state": state})
        state = state_of(body)
    assert not done
    body = await call(server, "book", {"seats": 2}, _meta={"answers": {"day": "Monday"}, "request_state": state})
    assert done == ["Oslo Monday 2"]


async def test_ml_25_answers_without_state_are_asked_for_again():
    server, done = make_server()
    body = await call(server, "book", {"seats": 2}, _meta={"answers": {"city": "Oslo", "day": "Monday"}})
    assert state_of(body) and not done


async def test_ml_25_a_form_by_key_without_its_fields_is_asked_again():
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    given = {"elicitation-1": {"action": "accept", "content": {"city": "Oslo"}}}
    body = await call(server, "book", {"seats": 2}, inputResponses=given, requestState=state)
    assert state_of(body) and not done


@pytest.mark.parametrize("place", PLACES)
async def test_ml_25_an_answer_that_does_not_fit_is_asked_for_again(place):
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    body = await call(server, "book", {"seats": 2}, **PLACES[place](state, {"city": "Paris", "day": "Monday"}))
    text = body["result"]["elicitation"]["text"]
    assert text.startswith("Where to? The client's answer does not fit the form: ") and "Oslo" in text and not done
    state = state_of(body)
    body = await call(server, "book", {"seats": 2}, **PLACES[place](state, {"city": "Oslo", "day": "Monday"}))
    assert body["result"]["_meta"]["response_type"] == "answer" and done == ["Oslo Monday 2"]


async def test_ml_25_several_rounds_keep_their_answers():
    server, _ = make_server()
    state = state_of(await call(server, "rename", {}))
    body = await call(server, "rename", {}, _meta={"answers": {"value": "a"}, "request_state": state})
    state = state_of(body)
    body = await call(server, "rename", {}, _meta={"answers": {"value": "b"}, "request_state": state})
    assert body["result"]["content"][0]["text"] == "a to b"


@pytest.mark.parametrize(("action", "code"), [("decline", "DECLINED"), ("cancel", "CANCELLED")])
@pytest.mark.parametrize("form", ["by key", "of all"])
async def test_ml_25_a_refused_question_is_a_failure(action, code, form):
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    meta: dict[str, Any] = {"request_state": state}
    if form == "of all":
        meta["action"] = action
    else:
        meta["input_responses"] = {"elicitation-1": {"action": action}}
    body = await call(server, "book", {"seats": 2}, _meta=meta)
    assert body["result"]["_meta"]["response_type"] == "failure"
    assert body["result"]["error"]["code"] == code and not done


async def test_an_action_that_is_none_is_refused():
    server, _ = make_server()
    lite = McpLite(server.engine.info, server.engine.catalog.view, 60, LiteOptions())
    meta = {"request_state": "x", "action": "maybe"}
    refused = lite.read(Request(1, "tools/call", {"name": "book", "_meta": meta}), ANNA)
    assert "action" in getattr(refused, "message", "")


WRONG = {
    "tampered": lambda state: ({"seats": 2}, ANNA, "book", state[:-5] + "AAAA="),
    "empty": lambda state: ({"seats": 2}, ANNA, "book", ""),
    "foreign": lambda state: ({"seats": 2}, BERT, "book", state),
    "other arguments": lambda state: ({"seats": 3}, ANNA, "book", state),
    "other tool": lambda state: ({}, ANNA, "rename", state),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_ml_25_state_is_of_use_only_for_its_caller_tool_and_arguments(wrong):
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    arguments, caller, tool, sent = WRONG[wrong](state)
    meta = {"answers": {"city": "Oslo", "day": "Monday"}, "request_state": sent}
    body = await call(server, tool, arguments, caller, _meta=meta)
    assert body["error"]["code"] == -32602 and not done


async def test_ml_25_state_expires(monkeypatch):
    server, done = make_server()
    state = state_of(await call(server, "book", {"seats": 2}))
    later = time.time() + 61
    monkeypatch.setattr("deltamcp.runtime.seal.time.time", lambda: later)
    meta = {"answers": {"city": "Oslo", "day": "Monday"}, "request_state": state}
    body = await call(server, "book", {"seats": 2}, _meta=meta)
    assert body["error"]["code"] == -32602 and not done


# Consent


async def test_ml_25_a_tool_runs_with_the_users_consent_once():
    server, done = make_server()
    body = await call(server, "wipe", {"disk": "a"})
    asked = body["result"]["elicitation"]
    assert [(one["id"], one["options"]) for one in asked["questions"]] == [("confirm", ["accept", "decline"])]
    meta = {"answers": {"confirm": "accept"}, "request_state": state_of(body)}
    body = await call(server, "wipe", {"disk": "a"}, _meta=meta)
    assert body["result"]["content"][0]["text"] == "wiped a"
    body = await call(server, "wipe", {"disk": "a"}, _meta=meta)
    assert body["result"]["isError"] and done == ["a"]


@pytest.mark.parametrize(
    "meta", [{"answers": {"confirm": "decline"}}, {"action": "decline"}, {"answers": {"confirm": "ok then"}}]
)
async def test_ml_25_without_the_users_consent_a_tool_does_not_run(meta):
    server, done = make_server()
    state = state_of(await call(server, "wipe", {"disk": "a"}))
    body = await call(server, "wipe", {"disk": "a"}, _meta={**meta, "request_state": state})
    assert body["result"]["error"]["code"] == "DECLINED" and not done


async def test_a_consent_that_was_not_asked_for_is_none():
    server, done = make_server()
    body = await call(server, "wipe", {"disk": "a"}, _meta={"answers": {"confirm": "accept"}, "action": "accept"})
    assert state_of(body) and not done


async def test_a_client_that_takes_no_elicitations_is_told():
    server, _ = make_server()
    body = await call(server, "book", {"seats": 2}, _meta={"accept_response_types": ["answer"]})
    assert body["error"]["data"]["reason"] == "MISSING_CAPABILITY"
