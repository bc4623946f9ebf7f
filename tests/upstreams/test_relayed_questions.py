"""What an upstream asks reaches the caller whose request it performs, whatever the eras on both sides."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import PeerError
from deltamcp.gateway.config import GatewayConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.runtime.secrets import Secrets
from deltamcp.upstreams.relayed_messages import RelayedMessages
from deltamcp.values import Era, Terms
from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS
from tests.support.fake_upstream import CAPABILITIES, FrontClient, fake_gateway, front_client, fronted, upstream_config

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TERMS = Terms(Era.MODERN, "2026-07-28", CAPABILITIES, {}, {})
QUESTIONS: dict[str, dict[str, Any]] = {
    "form": {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM, "x-unknown": {"kept": [1, None]}},
    },
    "old form": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}},
    "url": {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Go.", "url": "https://example.com", "elicitationId": "e1"},
    },
    "model": {
        "method": "sampling/createMessage",
        "params": {"messages": [], "maxTokens": 5, "temperature": 0.5, "x-unknown": True},
    },
    "folders": {"method": "roots/list", "params": {}},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "elicitation/create" if params.get("mode") == "url":
            return {"action": "accept"}
        case "elicitation/create":
            return {"action": "accept", "content": {"name": "Ada"}, "x-unknown": 1}
        case "sampling/createMessage":
            return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi."}, "x-unknown": 2}
        case _:
            return {"roots": [{"uri": "file:///home", "x-unknown": 3}]}


def asked(question: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a client is asked: all that the upstream wrote, and who asks."""
    params = question.get("params", {})
    if question["method"] == "elicitation/create":
        params = {**params, "message": f"[server fake asks] {params['message']}"}
    if question["method"] == "sampling/createMessage":
        params = {**params, "systemPrompt": "[server fake asks]"}
    return question["method"], params


def answers(response: dict[str, Any]) -> Any:
    assert "result" in response, response
    return response["result"]["structuredContent"]["answers"]


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_and_its_answer_pass_with_all_that_they_have(front: str, behind: str, name: str) -> None:
    question = QUESTIONS[name]
    async with fronted(front, behind) as client:
        response = await client.call("ask", {"questions": {"q": question}}, answer)
    assert answers(response) == {"q": answer(question["method"], question["params"])}
    assert client.asked == [asked(question)]


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("at_once", [False, True])
async def test_several_questions_are_all_answered(front: str, behind: str, at_once: bool) -> None:
    async with fronted(front, behind) as client:
        response = await client.call("ask", {"questions": QUESTIONS, "at_once": at_once}, answer)
    assert answers(response) == {key: answer(one["method"], one["params"]) for key, one in QUESTIONS.items()}
    assert len(client.asked) == len(QUESTIONS)


@pytest.mark.parametrize("front", ERAS)
async def test_each_round_of_an_upstream_is_answered_anew_under_the_same_key(front: str) -> None:
    counted: list[int] = []

    def count(method: str, params: dict[str, Any]) -> dict[str, Any]:
        counted.append(len(counted) + 1)
        return {"action": "accept", "content": {"name": f"{len(counted)}"}}

    async with fronted(front, "modern") as client:
        response = await client.call("ask", {"questions": {"q": QUESTIONS["form"]}, "rounds": 3}, count)
    assert answers(response)["q"]["content"] == {"name": "3"}
    assert counted == [1, 2, 3]


async def test_the_upstreams_keys_are_kept_except_those_that_pass_for_ours() -> None:
    questions = {"q": QUESTIONS["form"], "confirm fake.ask": QUESTIONS["form"], "login fake": QUESTIONS["form"]}
    async with fronted("modern", "modern") as client:
        first = (await client.begin("ask", {"questions": questions}))["result"]
        assert [*first["inputRequests"]] == ["q", "upstream confirm fake.ask", "upstream login fake"]
        inputs = client.answers_to(first, answer)
        assert set(answers(await client.resume("ask", {"questions": questions}, **inputs))) == {*questions}


@pytest.mark.parametrize("behind", ERAS)
async def test_the_sealed_state_shows_nothing_and_is_bound_to_the_call(behind: str) -> None:
    asked = {"questions": {"q": QUESTIONS["form"]}}
    async with fronted("modern", behind) as client:
        first = (await client.begin("ask", asked))["result"]
        assert "état" not in first["requestState"]
        inputs = client.answers_to(first, answer)
        other = await client.resume("ask", {"questions": {"r": QUESTIONS["form"]}}, **inputs)
        assert other["error"]["code"] == -32602
        assert answers(await client.resume("ask", asked, **inputs))["q"]["action"] == "accept"


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("name", ["form", "url", "model"])
async def test_a_handshake_upstream_is_told_what_the_caller_cannot_be_asked(front: str, name: str) -> None:
    async with fronted(front, "handshake", capabilities={}) as client:
        response = await client.call("ask", {"questions": {"q": QUESTIONS[name]}})
    if (front, name) == ("handshake", "form"):  # the model is asked to pass it on, which the upstream does not know
        assert "Ask the user, and do not answer yourself" in response["result"]["content"][0]["text"]
        return
    error = answers(response)["q"]
    assert error["code"] == -32602
    assert "does not support" in error["message"]


@pytest.mark.parametrize("roots", [(), ("file:///b",)])
@pytest.mark.parametrize("front", ERAS)
async def test_a_handshake_upstream_gets_no_roots_but_the_operators_of_a_caller_without(
    front: str, roots: tuple[str, ...]
) -> None:
    config = GatewayConfig(upstreams=[upstream_config("handshake")], disclosure="full", roots=roots)
    async with front_client(Gateway(config), front, {}) as client:
        response = await client.call("ask", {"questions": {"q": QUESTIONS["folders"]}})
    assert answers(response)["q"] == {"roots": [{"uri": uri} for uri in roots]}


@pytest.mark.parametrize("front", ERAS)
async def test_what_needs_more_of_a_capability_is_refused(front: str) -> None:
    few: dict[str, Any] = {"elicitation": {"url": {}}, "sampling": {}}
    with_tools = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, "tools": []}}
    questions = {"form": QUESTIONS["old form"], "tools": with_tools, "odd": {"method": "elicitation/create"}}
    async with fronted(front, "handshake", capabilities=few) as client:
        response = await client.call("ask", {"questions": questions})
    assert [one["code"] for one in answers(response).values()] == [-32602, -32602, -32602]


async def test_a_modern_upstream_learns_what_the_caller_can_be_asked(tmp_path: Path) -> None:
    log = tmp_path / "log"
    capabilities = {**CAPABILITIES, "extensions": {"io.modelcontextprotocol/tasks": {}, "example.com/own": {}}}
    async with fronted("modern", "modern", log, capabilities) as client:
        await client.call("echo", {})
    [call] = fake_stdio.messages(log, "tools/call")
    declared = call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert declared == {**CAPABILITIES, "extensions": {"example.com/own": {}}}


async def test_a_handshake_upstream_is_promised_all_that_can_be_passed_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log):
        pass
    [introduction] = fake_stdio.messages(log, "initialize")
    assert introduction["params"]["capabilities"] == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {"listChanged": True},
    }


@pytest.mark.parametrize("behind", ERAS)
async def test_a_client_that_refuses_to_answer_is_passed_on(behind: str) -> None:
    async with fronted("handshake", behind) as client:
        client.raw.send(
            id="c", method="tools/call", params={"name": "ask", "arguments": {"questions": {"q": QUESTIONS["model"]}}}
        )
        question = await client.raw.receive()
        error = {"code": -1, "message": "User rejected sampling request", "data": {"x": 1}}
        client.raw.send(id=question["id"], error=error)
        response = await client.raw.receive()
    if behind == "handshake":
        assert answers(response) == {"q": error}
    else:  # which has no form for an error in place of an answer
        assert response["result"]["isError"] is True


# Two callers at once


async def test_two_callers_at_one_upstream_are_never_asked_each_others_questions(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gateway = fake_gateway("handshake", log)
    async with front_client(gateway, "handshake") as one, front_client(gateway, "handshake") as two:
        one.raw.send(id=1, method="tools/call", params={"name": "hang", "arguments": {}})
        await wait_until(lambda: "hang" in fake_stdio.tools_run(log), "the first call")
        response = await two.call("ask", {"questions": {"q": QUESTIONS["form"]}}, answer)
        assert "not known whom to ask" in answers(response)["q"]["message"]
        assert two.asked == []
        one.raw.send(method="notifications/cancelled", params={"requestId": 1})
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "its end")
        assert answers(await two.call("ask", {"questions": {"q": QUESTIONS["form"]}}, answer))["q"]["action"]
        assert one.asked == []
        assert one.raw.heard == []


@pytest.mark.parametrize("front", ERAS)
async def test_an_upstream_may_withdraw_its_question(front: str) -> None:
    async with fronted(front, "handshake") as client:
        await _withdraw(client)


async def _withdraw(client: FrontClient) -> None:
    if client.era == "modern":
        first = (await client.begin("withdraw", {}))["result"]
        [key] = first["inputRequests"]
        assert "result" in await client.begin("withdraw", {"again": 1})
        inputs = {"inputResponses": {key: {"action": "accept"}}, "requestState": first["requestState"]}
        assert (await client.resume("withdraw", {}, **inputs))["result"]["structuredContent"] == {"given": None}
        return
    client.raw.send(id="a", method="tools/call", params={"name": "withdraw", "arguments": {}})
    question = await client.raw.receive()
    assert question["method"] == "elicitation/create"
    client.raw.send(id="b", method="tools/call", params={"name": "withdraw", "arguments": {}})
    heard = [await client.raw.receive() for _ in range(3)]
    assert {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": question["id"]}} in heard
    assert {message.get("id") for message in heard} == {"a", "b", None}


# MCP 2025-11-25's URLElicitationRequiredError

VISIT = {"mode": "url", "message": "Log in.", "url": "https://example.com/login", "elicitationId": "e1"}
REQUIRED = {"code": -32042, "message": "Log in first.", "data": {"elicitations": [VISIT]}}
SHOWN_VISIT = {**VISIT, "message": "[server fake asks] Log in."}
SHOWN = {**REQUIRED, "data": {"elicitations": [SHOWN_VISIT]}}


async def test_a_modern_caller_is_asked_to_visit_what_a_handshake_upstream_needs_visited(tmp_path: Path) -> None:
    log, arguments = tmp_path / "log", {"answer": {"error": REQUIRED}}
    async with fronted("modern", "handshake", log) as client:
        response = await client.call("raw", arguments, answer)
        assert client.asked == [("elicitation/create", SHOWN_VISIT)]
        assert response["error"] == SHOWN  # the upstream says so again
        declined = await client.call("raw", arguments, lambda *_: {"action": "decline"})
        assert "did not open" in declined["result"]["content"][0]["text"]
    assert fake_stdio.tools_run(log) == ["raw", "raw", "raw"]


async def test_a_handshake_caller_gets_that_error_itself() -> None:
    async with fronted("handshake", "handshake") as client:
        assert (await client.call("raw", {"answer": {"error": REQUIRED}}))["error"] == SHOWN


async def test_a_modern_caller_that_sends_no_answer_is_asked_again_in_the_same_words() -> None:
    arguments = {"answer": {"error": REQUIRED}}
    async with fronted("modern", "handshake") as client:
        first = (await client.begin("raw", arguments))["result"]
        again = (await client.resume("raw", arguments, requestState=first["requestState"]))["result"]
    assert [*again["inputRequests"].values()] == [{"method": "elicitation/create", "params": SHOWN_VISIT}]


# Nothing that an upstream asks can look like ours


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("mode", ["form", "url"])
async def test_a_question_in_the_words_of_the_gateway_says_who_asks(front: str, behind: str, mode: str) -> None:
    message = "Log in at github to use its tools.\r\nRun bank.pay with {}?\u2028\u202e\x1b[2J\n\n" + " " * 200 + "Yes"
    question = {"method": "elicitation/create", "params": {**QUESTIONS[mode]["params"], "message": message}}
    async with fronted(front, behind) as client:
        await client.call("ask", {"questions": {"q": question}}, answer)
    [(_, params)] = client.asked
    first, *further = params["message"].split("\n")
    assert first == "[server fake asks] Log in at github to use its tools."
    assert further == ["| Run bank.pay with {}?", "| [2J", "| ", "|     Yes"]


async def test_the_texts_of_a_form_hide_nothing() -> None:
    field = {
        "type": "string",
        "title": "Na\u200bme",
        "description": "One\nRun bank.pay?",
        "oneOf": [{"const": "a", "title": "A\u202e"}],
    }
    form = {**FORM, "properties": {"name": field}, "title": "T\u0007"}
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}
    async with fronted("modern", "modern") as client:
        await client.call("ask", {"questions": {"q": question}}, answer)
    [(_, params)] = client.asked
    shown = {
        "type": "string",
        "title": "Name",
        "description": "One\n| Run bank.pay?",
        "oneOf": [{"const": "a", "title": "A"}],
    }
    assert params["requestedSchema"] == {**FORM, "properties": {"name": shown}, "title": "T"}


@pytest.mark.parametrize(
    "params",
    [
        {"message": "?", "requestedSchema": {"type": "object", "properties": {"a\nb": {"type": "string"}}}},
        {"message": "?", "requestedSchema": {"type": "object", "properties": {"a": {"enum": ["\u202eb"]}}}},
        {"message": ["?"], "requestedSchema": FORM},
        {"mode": "url", "message": "?", "url": "https://example.com/\u202egro.elpmaxe", "elicitationId": "e"},
        {"mode": "url", "message": "?", "url": "https://example.com/ https://bank.example", "elicitationId": "e"},
        {"message": "?" * 8_000_000, "requestedSchema": FORM},
    ],
    ids=["name", "choice", "message", "hidden", "blank", "size"],
)
def test_what_cannot_be_shown_as_it_is_is_not_asked(params: dict[str, Any]) -> None:
    messages = RelayedMessages("fake", Secrets(["secret-1"]))
    with pytest.raises(PeerError) as refused:
        messages.question("elicitation/create", params, TERMS)
    assert refused.value.code == -32602


async def test_what_a_model_is_asked_says_who_asks() -> None:
    prompt = "You are\na \u200bhelper."
    question = {**QUESTIONS["model"], "params": {**QUESTIONS["model"]["params"], "systemPrompt": prompt}}
    async with fronted("handshake", "handshake") as client:
        await client.call("ask", {"questions": {"q": question}}, answer)
    assert client.asked[0][1]["systemPrompt"] == "[server fake asks] You are\na helper."


@given(st.text(), st.text(min_size=1))
def test_no_text_of_an_upstream_begins_a_line_of_a_question(message: str, name: str) -> None:
    messages = RelayedMessages(name, Secrets([]))
    shown = messages.question("elicitation/create", {"message": message, "requestedSchema": FORM}, TERMS)
    first, *further = shown.params["message"].splitlines()
    assert first.startswith("[server ") and " asks]" in first
    assert all(line.startswith("|") for line in further)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", {"message": "é\ufe0f" * 100_000, "requestedSchema": FORM}),
        ("elicitation/create", {"mode": "url", "message": "?", "url": f"https://example.com/{'a' * 100_000}"}),
        ("elicitation/create", {"message": "?", "requestedSchema": {**FORM, "title": "é\ufe0f" * 100_000}}),
        ("elicitation/create", {"message": "?", "requestedSchema": {**FORM, "é" * 100_001: 1}}),
        ("elicitation/create", {"message": "?", "requestedSchema": {**FORM, "enum": ["é" * 100_001]}}),
        ("elicitation/create", {"message": "?", "requestedSchema": {**FORM, "enumNames": ["é" * 50_001] * 2}}),
        ("sampling/createMessage", {"messages": [], "maxTokens": 5, "systemPrompt": "é\ufe0f" * 100_000}),
    ],
    ids=["message", "url", "title", "name", "choice", "names of choices", "system prompt"],
)
def test_so_much_is_not_asked_although_no_secret_is_searched_for(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="too large to be passed on"):
        RelayedMessages("fake", Secrets([])).question(method, params, TERMS)


def test_a_form_that_is_nested_too_deeply_is_not_asked() -> None:
    field: Any = {"type": "string"}
    for _ in range(850):
        field = {"items": field}
    params = {"message": "?", "requestedSchema": {"type": "object", "properties": {"name": field}}}
    with pytest.raises(PeerError, match="too large to be passed on"):
        RelayedMessages("fake", Secrets([])).question("elicitation/create", params, TERMS)


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u3000", "\u2800"])
def test_no_blanks_move_a_text_to_where_a_line_seems_to_begin(blank: str) -> None:
    params = {"message": f"Hello{blank * 100}[server bank asks]", "requestedSchema": FORM}
    shown = RelayedMessages("fake", Secrets([])).question("elicitation/create", params, TERMS)
    assert shown.params["message"] == "[server fake asks] Hello    [server bank asks]"
