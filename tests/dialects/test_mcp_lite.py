"""The dialect MCP-lite: what it reads of requests, and how it writes each outcome."""

import json
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.catalog.catalog import Catalog
from deltamcp.dialects import versions
from deltamcp.dialects.mcp_lite import LiteOptions, McpLite, Stamp
from deltamcp.dialects.mcp_lite_bodies import LITE_FAULTS, RESPONSE_TYPES, LiteResponse
from deltamcp.errors import Fault
from deltamcp.values import (
    ANONYMOUS_CALLER,
    NO_INPUTS,
    Answer,
    CallTool,
    CancelPromise,
    Era,
    ErrorInfo,
    Failure,
    GetPromise,
    InputRequest,
    InputRequired,
    Kind,
    ListItems,
    NeededResource,
    Promise,
    PromiseStatus,
    RedeemPromise,
    Request,
    ResourceRequired,
    ResultShape,
    Surface,
    Text,
    ToolResult,
)

STAMP = Stamp(1_795_000_000.5, 12)
TOKEN = "prom_" + "a" * 26
GRPC_STATUSES = {
    *("CANCELLED", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
    *("FAILED_PRECONDITION", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "UNAUTHENTICATED"),
}


def dialect(server: DeltaServer | None = None, **options: Any) -> McpLite:
    catalog = Catalog() if server is None else server.engine.catalog
    return McpLite({"name": "x", "version": "1.2"}, catalog.view, 600.0, LiteOptions(**options))


class PromisingView:
    """A view of a catalog with a tool that gives promises."""

    operations: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it

    def redeems_promises(self, tool: str) -> bool:
        return True


def promising(**options: Any) -> McpLite:
    view: Any = PromisingView()
    return McpLite({"name": "x", "version": "1.2"}, lambda principal: view, 600.0, LiteOptions(**options))


def call(arguments: Any = None, name: str = "add", **params: Any) -> Request:
    given = {} if arguments is None else {"arguments": arguments}
    return Request("c-1", "tools/call", {"name": name, **given, **params})


def read(request: Request) -> Any:
    return dialect().read(request, ANONYMOUS_CALLER)


def read_ask(request: Request, lite: McpLite | None = None) -> Any:
    understood = (lite or dialect()).read(request, ANONYMOUS_CALLER)
    assert not isinstance(understood, Failure), understood
    return understood[1]


def read_failure(request: Request, lite: McpLite | None = None) -> Failure:
    understood = (lite or dialect()).read(request, ANONYMOUS_CALLER)
    assert isinstance(understood, Failure)
    return understood


def respond(outcome: Any, request: Request | None = None, lite: McpLite | None = None) -> LiteResponse:
    response = (lite or dialect()).respond(request or call({}), outcome, STAMP)
    assert isinstance(response, LiteResponse), response
    return response


def written(outcome: Any, request: Request | None = None, lite: McpLite | None = None) -> Any:
    return json.loads((lite or dialect()).write(request or call({}), outcome, stamp=STAMP))


def promise(**fields: Any) -> Promise:
    return Promise(
        TOKEN, fields.pop("status", PromiseStatus.WORKING), 1_794_999_992.5, 1.0, 1_795_000_900.0, 2.0, **fields
    )


# The table of faults


def test_every_fault_has_a_row():
    assert set(LITE_FAULTS) == set(Fault)
    for fault, row in LITE_FAULTS.items():
        assert row.code in (-32700, -32600, -32601, -32602, -32603), fault
        assert row.grpc_status in GRPC_STATUSES, fault
        assert row.reason.isupper() and 200 <= row.http_status < 600, fault


def test_every_error_tells_programs_its_reason():
    for fault, row in LITE_FAULTS.items():
        error = written(Failure(fault, "x"))["error"]
        assert error == {"code": row.code, "message": "x", "data": {"reason": row.reason, "retryable": row.retryable}}


# Reading


def test_ml_10_a_call_has_a_name_and_arguments():
    terms, ask = read(call({"a": 1}))
    assert (ask.name, ask.arguments, ask.inputs) == ("add", {"a": 1}, NO_INPUTS)
    assert (terms.era, terms.version, terms.result_shape) == (Era.MODERN, versions.MODERN[0], ResultShape.MCP_LITE)
    assert "elicitation" in terms.capabilities


def test_ml_12_missing_arguments_are_none_and_null_is_refused():
    assert read_ask(call()).arguments == {}
    refused: list[Any] = [None, [], 3, "x"]
    for wrong in refused:
        failure = read_failure(Request(1, "tools/call", {"name": "add", "arguments": wrong}))
        assert failure.fault is Fault.INVALID_PARAMS
        assert failure.data == {
            "errors": [{"pointer": "/arguments", "message": "params.arguments must be an object.", "keyword": "type"}]
        }
    assert read_failure(Request(1, "tools/call", {})).fault is Fault.INVALID_PARAMS


def test_ml_14_the_reserved_argument_is_taken_out_unless_the_tool_declares_it():
    server = DeltaServer("x")
    schema = {"type": "object", "properties": {"_meta": {"type": "object"}}}
    server.tool(lambda given: "", name="own", input_schema=schema, description="Take it.")
    server.tool(lambda: "", name="other", description="Leave it.")
    arguments = {"a": 1, "_meta": {"answers": {"city": "Oslo"}, "request_state": "s"}}
    lite = dialect(server)
    taken = read_ask(call(arguments, "other"), lite)
    assert (taken.arguments, taken.inputs.fields, taken.inputs.state) == ({"a": 1}, {"city": "Oslo"}, "s")
    assert read_ask(call(arguments, "own"), lite).arguments == arguments
    assert read_ask(call(arguments, "own"), lite).inputs is NO_INPUTS
    assert read_failure(call({"_meta": 3}, "other"), lite).fault is Fault.INVALID_PARAMS


def test_answers_are_read_at_the_first_place_that_has_some():
    key = {"q": {"action": "accept"}}
    inner = {"_meta": {"answers": {"c": 1}, "input_responses": {"inner": {}}, "request_state": "inner"}}
    meta = {"input_responses": {"meta": {}}, "request_state": "meta"}
    first = read_ask(call(inner, inputResponses=key, requestState="mcp", _meta=meta)).inputs
    assert (first.responses, first.state) == (key, "mcp")
    second = read_ask(call({}, _meta=meta)).inputs
    assert (second.responses, second.state) == ({"meta": {}}, "meta")
    third = read_ask(call(inner)).inputs
    assert (third.responses, third.state, third.fields) == ({"inner": {}}, "inner", {"c": 1})


@pytest.mark.parametrize(
    "params",
    [
        {"inputResponses": {"q": 3}},
        {"requestState": 3},
        {"_meta": 3},
        {"_meta": {"answers": 3}},
        {"_meta": {"accept_response_types": "promise"}},
        {"_meta": {"idempotency_key": ""}},
        {"_meta": {"progressToken": "x" * 1000}},
    ],
)
def test_a_wrong_parameter_is_refused(params):
    assert read_failure(call({}, **params)).fault is Fault.INVALID_PARAMS


def test_a_client_says_which_responses_it_takes():
    assert read_ask(call({})).promise is not None
    assert read_ask(call({}, _meta={"accept_response_types": ["Answer"]})).promise is None
    terms, _ = read(call({}, _meta={"accept_response_types": ["answer"]}))
    assert terms.capabilities == {}
    named = read_ask(call({}, _meta={"idempotency_key": "k", "accept_response_types": ["PROMISE"]}))
    assert named.promise.idempotency_key == "k"


def test_ml_104_redeem_is_read_as_what_it_asks_of_the_promise():
    def asked(**arguments: Any) -> Any:
        return read_ask(call(arguments, "redeem"), promising())

    assert asked(promise=TOKEN) == RedeemPromise(TOKEN, 0.0)
    assert asked(promise=TOKEN, wait_ms=1500).wait_seconds == 1.5
    assert asked(promise=TOKEN, action="status") == asked(promise=TOKEN, action="checkin") == GetPromise(TOKEN)
    assert asked(promise=TOKEN, action="cancel") == CancelPromise(TOKEN)
    answered = asked(promise=TOKEN, input={"city": "Oslo", "q1": {"action": "decline"}}).inputs
    assert (answered.fields, answered.responses) == ({"city": "Oslo"}, {"q1": {"action": "decline"}})


@pytest.mark.parametrize(
    ("arguments", "pointer", "keyword"),
    [
        ({}, "/arguments/promise", "required"),
        ({"promise": 3}, "/arguments/promise", "type"),
        ({"promise": TOKEN, "action": "eat"}, "/arguments/action", "enum"),
        ({"promise": TOKEN, "wait_ms": 30_001}, "/arguments/wait_ms", "maximum"),
        ({"promise": TOKEN, "wait_ms": -1}, "/arguments/wait_ms", "minimum"),
        ({"promise": TOKEN, "wait_ms": True}, "/arguments/wait_ms", "type"),
        ({"promise": TOKEN, "input": 3}, "/arguments/input", "type"),
    ],
)
def test_wrong_arguments_of_redeem_are_pointed_at(arguments, pointer, keyword):
    failure = read_failure(call(arguments, "redeem"), promising())
    assert isinstance(failure.data, dict)
    assert [(found["pointer"], found["keyword"]) for found in failure.data["errors"]] == [(pointer, keyword)]


def test_ml_6_without_promises_redeem_is_a_name_like_any_other():
    assert read_ask(call({"coupon": 3}, "redeem")) == CallTool(
        "redeem", {"coupon": 3}, NO_INPUTS, read_ask(call()).promise
    )


def test_await_is_understood_where_it_is_enabled():
    arguments = {"promise_token": TOKEN, "action": "checkin"}
    assert isinstance(read_ask(call(arguments, "await"), promising()), CallTool)
    assert read_ask(call(arguments, "await"), promising(await_tool=True)) == RedeemPromise(TOKEN, 0.0)
    assert read_ask(call({**arguments, "action": "cancel"}, "await"), promising(await_tool=True)) == CancelPromise(
        TOKEN
    )


def test_lists_are_read_with_their_filters():
    request = Request(1, "tools/list", {"type": "query", "query": "find", "detail": "index", "cursor": "5", "new": 1})
    terms, ask = read(request)
    assert ask == ListItems(Kind.TOOLS, "5", False, "query", "find")
    assert terms.surface is Surface.PROGRESSIVE
    refused: list[dict[str, Any]] = [{"detail": "all"}, {"type": 3}, {"query": []}, {"cursor": 4}]
    for wrong in refused:
        assert read_failure(Request(1, "tools/list", wrong)).fault is Fault.INVALID_PARAMS


@pytest.mark.parametrize("method", ["initialize", "subscriptions/listen", "resources/read", "prompts/list", "foo/bar"])
def test_ml_122_what_mcp_lite_does_not_offer_is_an_unknown_method(method):
    failure = read_failure(Request(1, method, {}))
    assert failure.fault is Fault.UNKNOWN_METHOD
    assert written(failure)["error"]["code"] == -32601


# Writing


OUTCOMES: list[Any] = [
    Answer(ToolResult([Text("3")])),
    promise(),
    InputRequired({"q": InputRequest("elicitation/create", {"message": "?"})}, "s"),
    Answer(ToolResult([Text("no")], is_error=True, error=ErrorInfo("CARD_DECLINED"))),
    ResourceRequired("more", [NeededResource("tokens", 3)], "s"),
]


def test_ml_20_every_result_says_what_it_is():
    metas = [written(outcome)["result"]["_meta"] for outcome in OUTCOMES]
    assert tuple(meta["response_type"] for meta in metas) == RESPONSE_TYPES


def test_ml_22_every_result_says_when_it_was_made_and_by_which_version():
    for outcome in OUTCOMES:
        meta = written(outcome)["result"]["_meta"]
        assert meta["timestamp"] == "2026-11-18T11:06:40.500Z"
        assert (meta["processing_time_ms"], meta["server_version"]) == (12, "1.2")


def test_ml_23_an_answer_has_the_final_result():
    value = ToolResult([Text('{"sum":3}')], {"sum": 3}, meta={"x": 1})
    response = respond(Answer(value))
    assert response.result == {"content": value.content, "structuredContent": {"sum": 3}}
    assert response.meta["x"] == 1 and response.response_type == "answer"


def test_ml_24_a_promise_has_its_token_and_when_to_ask_again():
    response = respond(promise(progress=4, total=10, message="Indexing"))
    assert response.result["promise"] == {
        "token": TOKEN,
        "status": "working",
        "progress": 0.4,
        "message": "Indexing",
        "estimated_time": 12.0,
    }
    meta = response.meta
    assert (meta["promise_token"], meta["retry_after_ms"]) == (TOKEN, 2000)
    assert meta["expires_at"] == "2026-11-18T11:21:40.000Z"
    assert meta["estimated_completion"] == "2026-11-18T11:06:52.500Z"
    assert response.result["content"][0].text == f"Still working (40%). Call redeem with promise {TOKEN} in 2 s."
    assert "progress" not in respond(promise(progress=4)).result["promise"]


def test_the_state_of_a_promise_is_a_promise_also_when_the_call_has_ended():
    ended = promise(status=PromiseStatus.COMPLETED, outcome=Answer(ToolResult([Text("3")])))
    response = respond(Answer(ended), call({"promise": TOKEN, "action": "status"}, "redeem"))
    assert (response.response_type, response.result["promise"]["status"]) == ("promise", "completed")


def test_a_cancelled_call_is_a_failure_unless_its_answer_came_first():
    request = call({"promise": TOKEN, "action": "cancel"}, "redeem")
    failed = respond(Answer(promise(status=PromiseStatus.CANCELLED)), request)
    assert (failed.response_type, failed.result["error"]["code"]) == ("failure", "CANCELLED")
    won = respond(Answer(promise(status=PromiseStatus.COMPLETED, outcome=Answer(ToolResult([Text("3")])))), request)
    assert won.response_type == "answer"
    assert respond(Answer(promise()), request).result["promise"]["status"] == "cancelling"


def test_a_promise_with_an_outcome_is_that_outcome():
    assert respond(promise(outcome=Answer(ToolResult([Text("3")])))).response_type == "answer"


FORM = {
    "type": "object",
    "required": ["city"],
    "properties": {
        "city": {"type": "string", "title": "City", "enum": ["Oslo", "Rome"]},
        "days": {"type": "integer"},
        "sights": {"type": "array", "items": {"enum": ["a", "b"]}, "description": "Which sights?"},
        "pets": {"type": "boolean"},
        "class": {"type": "string", "oneOf": [{"const": "1", "title": "First"}, {"const": "2", "title": "Second"}]},
    },
}
QUESTION = InputRequest("elicitation/create", {"mode": "form", "message": "Which city?", "requestedSchema": FORM})


def test_ml_25_an_elicitation_has_the_form_and_its_questions():
    response = respond(InputRequired({"q1": QUESTION}, "sealed"))
    body = response.result["elicitation"]
    assert body["requests"] == {"q1": {"method": "elicitation/create", "params": QUESTION.params}}
    assert body["questions"] == [
        {"id": "city", "text": "City", "type": "single_select", "options": ["Oslo", "Rome"], "required": True},
        {"id": "days", "text": "days", "type": "text", "required": False},
        {"id": "sights", "text": "Which sights?", "type": "multi_select", "options": ["a", "b"], "required": False},
        {"id": "pets", "text": "pets", "type": "single_select", "options": [True, False], "required": False},
        {"id": "class", "text": "class", "type": "single_select", "options": ["1", "2"], "required": False},
    ]
    assert (body["text"], response.meta["request_state"]) == ("Which city?", "sealed")
    assert response.meta["expires_at"] == "2026-11-18T11:16:40.500Z"


def test_the_questions_of_a_promise_are_an_elicitation_with_its_token():
    response = respond(promise(status=PromiseStatus.INPUT_REQUIRED, requests={"q1": QUESTION}))
    assert response.response_type == "elicitation"
    assert response.meta["promise_token"] == response.result["promise"]["token"] == TOKEN
    assert "request_state" not in response.meta


def test_a_page_to_open_is_named_in_the_text():
    asked = InputRequest("elicitation/create", {"mode": "url", "message": "Sign in", "url": "https://x.example"})
    response = respond(InputRequired({"q": asked}, None))
    assert response.result["content"][0].text == "Sign in\nhttps://x.example"
    assert [question["options"] for question in response.result["elicitation"]["questions"]] == [["accept", "decline"]]


def test_ml_26_a_failure_is_a_result():
    error = ErrorInfo("CARD_DECLINED", retryable=True, details={"bank": "x"})
    body = written(Answer(ToolResult([Text("Card was declined")], is_error=True, error=error)))
    assert "error" not in body
    assert body["result"]["isError"] is True
    assert body["result"]["error"] == {
        "code": "CARD_DECLINED",
        "message": "Card was declined",
        "retryable": True,
        "details": {"bank": "x"},
    }
    unnamed = respond(Answer(ToolResult([Text("no")], is_error=True)))
    assert (unnamed.response_type, unnamed.result["error"]["code"]) == ("failure", "TOOL_ERROR")


@pytest.mark.parametrize(
    ("code", "jsonrpc_code"),
    [("INVALID_PARAMS", -32602), ("INTERNAL", -32603), ("TIMEOUT", -32603), ("RATE_LIMITED", -32603)],
)
def test_ml_27_protocol_errors_are_never_results(code, jsonrpc_code):
    error = ErrorInfo(code, details={"errors": []}, by_server=True)
    body = written(Answer(ToolResult([Text("text")], is_error=True, error=error)))
    assert "result" not in body
    assert (body["error"]["code"], body["error"]["message"]) == (jsonrpc_code, "text")
    assert body["error"]["data"]["reason"] == code
    assert body["error"]["data"]["errors"] == []


@pytest.mark.parametrize("code", ["INVALID_PARAMS", "INTERNAL", "TIMEOUT", "RATE_LIMITED"])
def test_ml_26_an_authors_failure_stays_one_whatever_its_code(code):
    body = written(Answer(ToolResult([Text("text")], is_error=True, error=ErrorInfo(code))))
    assert body["result"]["error"]["code"] == code


def test_a_limited_tool_says_when_to_ask_again():
    error = ErrorInfo("RATE_LIMITED", retryable=True, details={"retry_after_ms": 2500}, by_server=True)
    failure = dialect().respond(call({}), Answer(ToolResult([Text("text")], is_error=True, error=error)))
    assert isinstance(failure, Failure)
    assert (failure.retry_seconds, dialect().http_status(failure)) == (2.5, 429)


def test_ml_28_a_request_for_more_of_a_resource_names_it():
    outcome = ResourceRequired("Needs more tokens", [NeededResource("tokens", 60_000, 20_000, "token")], "sealed")
    response = respond(outcome)
    assert response.response_type == "request-for-more-resource"
    assert response.result["resource_request"] == {
        "message": "Needs more tokens",
        "resources": [{"kind": "tokens", "required": 60_000, "available": 20_000, "unit": "token"}],
    }
    assert response.meta["request_state"] == "sealed"


ROWS = [{"document_id": "d1", "title": "One"}, {"document_id": "d2", "title": "Two"}]


def test_content_may_be_the_objects_themselves():
    value = Answer(ToolResult([Text(json.dumps(ROWS))], ROWS))
    assert written(value)["result"]["structuredContent"] == ROWS
    raw = written(value, lite=dialect(content_style="raw"))["result"]
    assert raw["content"] == ROWS and "structuredContent" not in raw
    both = written(value, lite=dialect(content_style="both"))["result"]
    assert [item["title"] for item in both["content"]] == ["One", "Two"]
    assert [json.loads(item["text"]) for item in both["content"]] == ROWS
    assert {item["type"] for item in both["content"]} == {"text"} and both["structuredContent"] == ROWS
    for style in ("raw", "both"):
        plain = written(Answer(ToolResult([Text("hello")])), lite=dialect(content_style=style))
        assert plain["result"]["content"] == [{"type": "text", "text": "hello"}]
        found = written(Answer(ToolResult([Text('{"a": 1}')])), lite=dialect(content_style=style))
        assert found["result"]["content"][0]["a"] == 1
