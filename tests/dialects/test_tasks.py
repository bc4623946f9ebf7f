"""MCP's tasks: how both wire forms read requests and write promises."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.context import Context
from deltamcp.dialects import versions
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.modern import ModernMcp, check_headers
from deltamcp.dialects.tasks import IDEMPOTENCY_KEY
from deltamcp.errors import Fault
from deltamcp.values import (
    ANONYMOUS_CALLER,
    PROMISE_ALLOWED,
    About,
    Answer,
    AnswerPromise,
    CallTool,
    CancelPromise,
    Done,
    Era,
    ErrorInfo,
    Failure,
    Filter,
    GetPromise,
    InputRequest,
    Inputs,
    Kind,
    Listen,
    NeededResource,
    Outcome,
    Page,
    Promise,
    PromiseStatus,
    PromiseWish,
    RedeemPromise,
    Request,
    ResourceRequired,
    ResultShape,
    Terms,
    Text,
    ToolResult,
)

TOKEN = "prom_0123456789abcdefghjkmnpqrs"
CREATED = 1_784_073_600.25
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
OLD, NEW = versions.TASKS_IN, versions.MODERN[0]
MODERN = ModernMcp({"name": "x", "version": "1"}, 1)
HANDSHAKE = HandshakeMcp()

DONE = Answer(ToolResult([Text("42")], structured={"n": 42}, meta={"example.org/a": 1}))
ERROR = Answer(ToolResult([Text("No paper.")], is_error=True, error=ErrorInfo("NO_PAPER")))
FAILURE = Failure(Fault.MISSING_CAPABILITY, "The client has no roots.", {"requiredCapabilities": {"roots": {}}})
SHORT = ResourceRequired("Needs more.", [NeededResource("tokens", 2, 1)], None)
QUESTION = {
    "name": InputRequest("elicitation/create", {"mode": "form", "message": "Who?", "requestedSchema": {}}),
    "dirs": InputRequest("roots/list", {}),
}


def promise(status: PromiseStatus = PromiseStatus.WORKING, outcome: Outcome | None = None, **more: Any) -> Promise:
    given: dict[str, Any] = {"created_at": CREATED, "updated_at": CREATED + 1, "expires_at": CREATED + 60, **more}
    return Promise(TOKEN, status, retry_seconds=0.5, outcome=outcome, **given)


def modern(method: str, outcome: Outcome) -> Any:
    return json.loads(MODERN.write(Request(7, method, {"taskId": TOKEN}), outcome, NEW))


def handshake(method: str, outcome: Outcome) -> Any:
    return json.loads(HANDSHAKE.write(Request(7, method, {"taskId": TOKEN}), outcome, OLD))


def read_modern(method: str, *, declared: bool = True, meta: dict[str, Any] | None = None, **params: Any) -> Any:
    capabilities: dict[str, Any] = {"extensions": {EXTENSION: {}}} if declared else {}
    meta = {
        **(meta or {}),
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    understood = MODERN.read(Request(1, method, {**params, "_meta": meta}), ANONYMOUS_CALLER)
    return understood if isinstance(understood, Failure) else understood[1]


def read_handshake(method: str, version: str = OLD, dialect: Any = HANDSHAKE, **params: Any) -> Any:
    understood = dialect.read(Request(1, method, params), ANONYMOUS_CALLER, Agreement(version, {}, {}))
    return understood if isinstance(understood, Failure) else understood[1]


# Writing


def test_a_call_that_became_a_promise_has_its_task_flat_in_the_extension_and_nested_in_2025_11_25():
    made = promise(PromiseStatus.QUEUED, message="Waiting for a printer")
    flat = modern("tools/call", made)["result"]
    assert flat.pop("_meta")
    assert flat == {
        "resultType": "task",
        "taskId": TOKEN,
        "status": "working",
        "statusMessage": "Waiting for a printer",
        "createdAt": "2026-07-15T00:00:00.250Z",
        "lastUpdatedAt": "2026-07-15T00:00:01.250Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 500,
    }
    assert handshake("tools/call", made)["result"] == {
        "task": {
            "taskId": TOKEN,
            "status": "working",
            "statusMessage": "Waiting for a printer",
            "createdAt": "2026-07-15T00:00:00.250Z",
            "lastUpdatedAt": "2026-07-15T00:00:01.250Z",
            "ttl": 60_000,
            "pollInterval": 500,
        }
    }


@pytest.mark.parametrize(
    ("status", "outcome", "old", "new"),
    [
        (PromiseStatus.QUEUED, None, "working", "working"),
        (PromiseStatus.WORKING, None, "working", "working"),
        (PromiseStatus.INPUT_REQUIRED, None, "input_required", "input_required"),
        (PromiseStatus.COMPLETED, DONE, "completed", "completed"),
        (PromiseStatus.COMPLETED, ERROR, "failed", "completed"),
        (PromiseStatus.FAILED, ERROR, "failed", "completed"),
        (PromiseStatus.COMPLETED, SHORT, "failed", "completed"),
        (PromiseStatus.FAILED, FAILURE, "failed", "failed"),
        (PromiseStatus.CANCELLED, None, "cancelled", "cancelled"),
        (PromiseStatus.CANCELLED, ERROR, "cancelled", "cancelled"),
    ],
)
def test_a_tools_error_is_a_failed_task_in_2025_11_25_and_a_completed_one_in_the_extension(status, outcome, old, new):
    answer = Answer(promise(status, outcome, requests=QUESTION if status is PromiseStatus.INPUT_REQUIRED else {}))
    before = handshake("tasks/get", answer)["result"]
    now = modern("tasks/get", answer)["result"]
    assert (before["status"], now["status"]) == (old, new)
    assert now["resultType"] == "complete"
    assert {"result", "error", "inputRequests"}.isdisjoint(before)
    inlined = {"completed": {"result"}, "failed": {"error"}, "input_required": {"inputRequests"}}
    assert {"result", "error", "inputRequests"} & set(now) == inlined.get(new, set())


def test_the_result_in_a_task_is_what_the_call_itself_would_have_returned():
    for outcome in (DONE, ERROR, SHORT):
        inlined = modern("tasks/get", Answer(promise(PromiseStatus.COMPLETED, outcome)))["result"]["result"]
        assert inlined == modern("tools/call", outcome)["result"]
        assert inlined["resultType"] == "complete"
        assert RELATED not in inlined["_meta"]


def test_the_error_in_a_task_is_what_the_call_itself_would_have_returned():
    task = modern("tasks/get", Answer(promise(PromiseStatus.FAILED, FAILURE)))["result"]
    assert task["error"] == modern("tools/call", FAILURE)["error"]
    assert task["statusMessage"] == "The client has no roots."


def test_questions_in_a_task_have_the_form_of_a_request_that_takes_several_rounds():
    task = modern("tasks/get", Answer(promise(PromiseStatus.INPUT_REQUIRED, requests=QUESTION)))["result"]
    params = QUESTION["name"].params
    assert task["inputRequests"] == {
        "name": {"method": "elicitation/create", "params": params},
        "dirs": {"method": "roots/list"},
    }
    assert "requestState" not in task


@pytest.mark.parametrize("method", ["tasks/cancel", "tasks/update"])
def test_the_extension_only_acknowledges_answers_and_cancellation(method):
    for outcome in (Answer(promise(PromiseStatus.COMPLETED, DONE)), Answer(Done())):
        assert set(modern(method, outcome)["result"]) == {"resultType", "_meta"}


def test_2025_11_25_answers_a_cancellation_with_the_task():
    assert handshake("tasks/cancel", Answer(promise(PromiseStatus.CANCELLED)))["result"]["status"] == "cancelled"


def test_the_result_of_tasks_result_names_its_task_and_keeps_its_own_meta():
    result = handshake("tasks/result", DONE)["result"]
    assert result["_meta"] == {"example.org/a": 1, RELATED: {"taskId": TOKEN}}
    assert result["content"] == handshake("tools/call", DONE)["result"]["content"]
    assert handshake("tasks/result", ERROR)["result"]["_meta"][RELATED] == {"taskId": TOKEN}
    assert handshake("tasks/result", FAILURE)["error"] == handshake("tools/call", FAILURE)["error"]
    assert RELATED not in json.dumps(handshake("tasks/get", Answer(promise())))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, None),
        ({"progress": 4.0}, "4"),
        ({"progress": 4.0, "total": 10.0}, "4 of 10"),
        ({"progress": 4.0, "message": "Indexing"}, "Indexing"),
        ({"message": "x" * 501}, "x" * 500),
    ],
)
def test_the_message_of_a_task_says_how_far_it_has_come(more, message):
    for write in (modern, handshake):
        assert write("tasks/get", Answer(promise(**more)))["result"].get("statusMessage") == message


def test_the_message_of_a_task_that_failed_is_the_tools_own():
    for write in (modern, handshake):
        task = write("tasks/get", Answer(promise(PromiseStatus.FAILED, ERROR, message="Printing")))["result"]
        assert task["statusMessage"] == "No paper."


def test_a_notification_has_the_whole_task():
    ended = promise(PromiseStatus.COMPLETED, DONE)
    pushed = json.loads(MODERN.notify_of_promise(ended, NEW, "sub 1"))
    assert pushed["method"] == "notifications/tasks"
    assert pushed["params"].pop("_meta") == {"io.modelcontextprotocol/subscriptionId": "sub 1"}
    asked = modern("tasks/get", Answer(ended))["result"]
    del asked["_meta"], asked["resultType"]
    assert pushed["params"] == asked


def test_what_2025_11_25_writes_fits_its_published_schema(shared: Path):
    document = json.loads((shared / "specs" / "mcp-schema" / f"{OLD}.json").read_text())

    def check(definition: str, value: Any) -> None:
        validator_for(document)({**document, "$ref": f"#/$defs/{definition}"}).validate(value)

    for status, outcome in ((PromiseStatus.WORKING, None), (PromiseStatus.COMPLETED, ERROR)):
        snapshot = promise(status, outcome, message="Indexing")
        check("CreateTaskResult", handshake("tools/call", snapshot)["result"])
        check("GetTaskResult", handshake("tasks/get", Answer(snapshot))["result"])
        check("CancelTaskResult", handshake("tasks/cancel", Answer(snapshot))["result"])
    check("GetTaskPayloadResult", handshake("tasks/result", DONE)["result"])
    check("CallToolResult", handshake("tasks/result", DONE)["result"])


# Reading


def test_2025_11_25_asks_for_a_task_in_the_call():
    assert read_handshake("tools/call", name="print").promise is None
    assert read_handshake("tools/call", name="print", task=None).promise is None
    assert read_handshake("tools/call", name="print", task={}).promise == PromiseWish(at_once=True)
    timed = read_handshake("tools/call", name="print", task={"ttl": 1500, "pollInterval": 3})
    assert timed.promise == PromiseWish(at_once=True, seconds=1.5)


@pytest.mark.parametrize("task", [3, [], {"ttl": -1}, {"ttl": "1"}, {"ttl": True}, {"ttl": 10**400}])
def test_a_malformed_task_parameter_is_refused(task):
    refused = read_handshake("tools/call", name="print", task=task)
    assert isinstance(refused, Failure)
    assert (refused.fault, refused.message.startswith("params.task")) == (Fault.INVALID_PARAMS, True)


def test_the_methods_of_2025_11_25():
    assert read_handshake("tasks/get", taskId="t") == GetPromise("t")
    assert read_handshake("tasks/result", taskId="t") == RedeemPromise("t", wait_seconds=None)
    assert read_handshake("tasks/cancel", taskId="t") == CancelPromise("t")
    for method in ("tasks/list", "tasks/update"):
        assert read_handshake(method, taskId="t").fault is Fault.UNKNOWN_METHOD


@pytest.mark.parametrize("version", [version for version in versions.HANDSHAKE if version != OLD])
def test_earlier_versions_have_no_tasks(version):
    assert read_handshake("tools/call", version, name="print", task={"ttl": 1}).promise is None
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert read_handshake(method, version, taskId="t").fault is Fault.UNKNOWN_METHOD


def test_delta_mcp_has_no_tasks_though_its_baseline_has():
    assert read_handshake("tools/call", dialect=DeltaMcp(), name="print", task={"ttl": 1}).promise is None
    assert read_handshake("tasks/get", dialect=DeltaMcp(), taskId="t").fault is Fault.UNKNOWN_METHOD


def test_a_modern_client_takes_promises_if_it_declares_the_extension_in_the_request():
    assert read_modern("tools/call", name="print") == CallTool("print", {}, promise=PROMISE_ALLOWED)
    assert read_modern("tools/call", declared=False, name="print").promise is None
    # A hint of 2025-11-25 says nothing here.
    assert read_modern("tools/call", declared=False, name="print", task={"ttl": 1}).promise is None
    assert read_modern("tools/call", name="print", task={"ttl": 1}).promise == PROMISE_ALLOWED


def test_a_modern_client_with_the_extension_may_name_its_call():
    for declared, wish in ((True, PromiseWish(idempotency_key="k1")), (False, None)):
        assert read_modern("tools/call", declared=declared, meta={IDEMPOTENCY_KEY: "k1"}, name="print").promise == wish
    for wrong in ("", 7, "k" * 257):
        refused = read_modern("tools/call", meta={IDEMPOTENCY_KEY: wrong}, name="print")
        assert (refused.fault, IDEMPOTENCY_KEY in refused.message) == (Fault.INVALID_PARAMS, True)


def test_the_methods_of_the_extension():
    assert read_modern("tasks/get", taskId="t") == GetPromise("t")
    answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    assert read_modern("tasks/update", taskId="t", inputResponses=answers) == AnswerPromise("t", Inputs(answers))
    assert read_modern("tasks/cancel", taskId="t") == CancelPromise("t")
    for method in ("tasks/result", "tasks/list"):
        assert read_modern(method, taskId="t").fault is Fault.UNKNOWN_METHOD
        assert read_modern(method, declared=False, taskId="t").fault is Fault.UNKNOWN_METHOD


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_methods_need_the_extension_and_a_task_id(method):
    refused = read_modern(method, declared=False, taskId="t", inputResponses={})
    assert refused.fault is Fault.MISSING_CAPABILITY
    assert refused.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    assert read_modern(method, inputResponses={}).fault is Fault.INVALID_PARAMS
    assert read_modern(method, taskId=3).fault is Fault.INVALID_PARAMS


def test_a_subscription_to_tasks_needs_the_extension():
    wanted = {"taskIds": ["b", "a"], "toolsListChanged": True}
    assert read_modern("subscriptions/listen", notifications=wanted) == Listen(
        Filter(frozenset({Kind.TOOLS}), frozenset(), frozenset({"a", "b"}))
    )
    assert read_modern("subscriptions/listen", declared=False, notifications=wanted).fault is Fault.MISSING_CAPABILITY
    for declared in (True, False):
        assert isinstance(read_modern("subscriptions/listen", declared=declared, notifications={"taskIds": []}), Listen)
    for ids in ("a", [1], [str(number) for number in range(101)]):
        refused = read_modern("subscriptions/listen", notifications={"taskIds": ids})
        assert refused.fault is Fault.INVALID_PARAMS
        assert "taskIds" in refused.message


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_header_mcp_name_repeats_the_task_id_if_it_is_there(method):
    request = Request(1, method, {"taskId": "t", "_meta": {"io.modelcontextprotocol/protocolVersion": NEW}})
    headers = {b"mcp-protocol-version": NEW.encode(), b"mcp-method": method.encode()}
    understood = Terms(Era.MODERN, NEW, {}, {}, {}), GetPromise("t")
    for right in ({b"mcp-name": b"t"}, {}):
        assert check_headers(request, understood, {**headers, **right}, (), {}) is understood
    refused = check_headers(request, understood, {**headers, b"mcp-name": b"u"}, (), {})
    assert isinstance(refused, Failure)
    assert refused.fault is Fault.HEADER_MISMATCH


# Capabilities and lists


@pytest.mark.parametrize("version", versions.HANDSHAKE)
@pytest.mark.parametrize("gives", [True, False])
def test_2025_11_25_declares_tasks_if_a_tool_gives_promises(version, gives):
    about = About({"name": "x", "version": "1"}, {"tools": {}}, None, gives_promises=gives)
    declared = json.loads(HANDSHAKE.write(Request(1, "initialize", {}), Answer(about), version))["result"]
    expected: Any = {"cancel": {}, "requests": {"tools": {"call": {}}}} if gives and version == OLD else None
    assert declared["capabilities"].get("tasks") == expected


@pytest.mark.parametrize("capabilities", [{"tools": {}}, {"prompts": {}}])
def test_2026_07_28_declares_the_extension_if_a_tool_gives_promises(capabilities):
    for gives in (True, False):
        about = About({"name": "x", "version": "1"}, capabilities, None, gives_promises=gives)
        declared = modern("server/discover", Answer(about))["result"]["capabilities"]
        assert "tasks" not in declared
        assert (EXTENSION in declared.get("extensions", {})) is gives


@pytest.mark.parametrize(("policy", "support"), [("never", None), ("auto", "optional"), ("always", "required")])
def test_only_2025_11_25_lists_whether_a_tool_can_be_called_as_a_task(policy, support):
    async def print_it() -> str:
        return "printed"

    operation = FunctionOperation(print_it, Context, promise=policy)
    for version in versions.HANDSHAKE:
        page = Page(Kind.TOOLS, (operation.tool,), None, {})
        listed = json.loads(HANDSHAKE.write(Request(1, "tools/list", {}), Answer(page), version))["result"]["tools"][0]
        expected = {"taskSupport": support} if support and version == OLD else None
        assert listed.get("execution") == expected
    page = Page(Kind.TOOLS, (operation.tool,), None, {})
    assert "execution" not in modern("tools/list", Answer(page))["result"]["tools"][0]
    assert "execution" not in operation.plain_tool


def test_the_manifest_of_a_tool_does_not_depend_on_when_it_gives_promises():
    async def print_it() -> str:
        return "printed"

    always, auto = (
        FunctionOperation(print_it, Context, promise="always"),
        FunctionOperation(print_it, Context, promise="auto"),
    )
    assert always.manifest_entry(ResultShape.MCP) == auto.manifest_entry(ResultShape.MCP)
