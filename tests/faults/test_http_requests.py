"""Requests over HTTP that are wrong in what they ask or in the headers that they carry."""

import base64
from typing import Any

import pytest

from tests.support.http_faults import (
    META,
    MODERN,
    FaultServer,
    HttpEra,
    HttpWire,
    both_eras,
    call_params,
    in_modern,
    message,
    modern_headers,
    notification,
    open_session,
    request_bytes,
    send_http,
)

# Requests that are wrong in what they ask

UNKNOWN: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "method": ("tools/cal", {}, -32601, 404),
    "method of the other side": ("sampling/createMessage", {}, -32601, 404),
    "tool": ("tools/call", call_params("ad", a=1, b=2), -32602, 400),
    "prompt": ("prompts/get", {"name": "great"}, -32602, 400),
    "resource": ("resources/read", {"uri": "fault://nowhere"}, -32602, 400),
    "tool without a name": ("tools/call", {"arguments": {}}, -32602, 400),
    "tool with a number for a name": ("tools/call", {"name": 7}, -32602, 400),
    "arguments an array": ("tools/call", {"name": "add", "arguments": [1, 2]}, -32602, 400),
    "arguments text": ("tools/call", {"name": "add", "arguments": "a=1"}, -32602, 400),
    "resource without an address": ("resources/read", {}, -32602, 400),
    "resource with an object for an address": ("resources/read", {"uri": {}}, -32602, 400),
    "cursor nobody gave out": ("tools/list", {"cursor": "nonsense"}, -32602, 400),
    "cursor a number": ("tools/list", {"cursor": 5}, -32602, 400),
    "completion of nothing": ("completion/complete", {}, -32602, 400),
    "completion of rubbish": ("completion/complete", {"ref": 1, "argument": []}, -32602, 400),
}


@both_eras
@pytest.mark.parametrize("case", UNKNOWN)
async def test_a_request_for_what_is_not_there_says_so(served: FaultServer, era: HttpEra, case: str) -> None:
    method, params, code, status = UNKNOWN[case]
    if case == "resource" and not era.modern:
        code = -32002
    reply = await era.ask(served.port, method, params, "the id")
    assert (reply.status, reply.error()["code"]) == (status if era.modern else 200, code), reply
    assert reply.json()["id"] == "the id"


@both_eras
async def test_an_unknown_tool_is_answered_with_the_nearest_names(served: FaultServer, era: HttpEra) -> None:
    for wrong, right in (("ad", "add"), ("plain_slep", "plain_sleep"), ("ADD", "add")):
        reply = await era.call(served.port, wrong)
        assert right in reply.error()["message"], reply.body


@both_eras
@pytest.mark.parametrize("name", ["x" * 100_000, "\x00", "é" * 50, "'; drop table--", ""])
async def test_a_name_nobody_would_choose_is_unknown_and_not_repeated_at_length(
    served: FaultServer, era: HttpEra, name: str
) -> None:
    params = {"name": name, "arguments": {}}
    headers = await era.headers(served.port, "tools/call", params)
    if era.modern:
        headers["Mcp-Name"] = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        if len(headers["Mcp-Name"]) > 20_000:
            pytest.skip("the header alone is refused")
    reply = await send_http(served.port, era.body("tools/call", params), headers)
    assert reply.error()["code"] == -32602, reply.body[:300]
    assert len(reply.body) < 2_000


ARGUMENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "text for a number": ({"a": "one", "b": 2}, ["a"]),
    "null for a number": ({"a": 1, "b": None}, ["b"]),
    "a list and an object": ({"a": [], "b": {}}, ["a", "b"]),
    "a fraction": ({"a": 1.5, "b": 2}, ["a"]),
    "one missing": ({"a": 1}, ["b"]),
    "all missing": ({}, ["a", "b"]),
    "one too many": ({"a": 1, "b": 2, "carry": 3}, ["carry"]),
}


@both_eras
@pytest.mark.parametrize("case", ARGUMENTS)
async def test_a_wrong_argument_is_named_to_the_model(served: FaultServer, era: HttpEra, case: str) -> None:
    arguments, fields = ARGUMENTS[case]
    reply = await era.call(served.port, "add", **arguments)
    assert (reply.status, reply.result()["isError"]) == (200, True)
    text = reply.text()
    for field in fields:
        assert f"{field}:" in text or f"'{field}'" in text or f'"{field}"' in text.split("expected")[0], text
    assert "integer" in text or "expected int." in text or case == "one too many", "the schema's relevant part"
    assert not any(noise in text for noise in ("pydantic", "errors.pydantic.dev", "Traceback", "type=", "\n\n")), text


@both_eras
async def test_a_wrong_argument_of_a_megabyte_is_not_sent_back(served: FaultServer, era: HttpEra) -> None:
    reply = await era.call(served.port, "add", a="x" * 1_000_000, b=2)
    assert reply.result()["isError"]
    assert len(reply.body) < 5_000


# Modern requests and their headers


def modern_case(**changes: str | None) -> dict[str, str | None]:
    return {**modern_headers("tools/call", call_params("add")), **changes}


MISMATCHES: dict[str, dict[str, str | None]] = {
    "another method": modern_case(**{"Mcp-Method": "tools/list"}),
    "no method": modern_case(**{"Mcp-Method": None}),
    "method in capitals": modern_case(**{"Mcp-Method": "TOOLS/CALL"}),
    "empty method": modern_case(**{"Mcp-Method": ""}),
    "another name": modern_case(**{"Mcp-Name": "echo"}),
    "no name": modern_case(**{"Mcp-Name": None}),
    "empty name": modern_case(**{"Mcp-Name": ""}),
    "name in capitals": modern_case(**{"Mcp-Name": "ADD"}),
    "name in bad base64": modern_case(**{"Mcp-Name": "=?base64?YWRk!!?="}),
    "name in base64 of another": modern_case(**{"Mcp-Name": "=?base64?ZWNobw==?="}),
    "name with bytes": modern_case(**{"Mcp-Name": "add\xff"}),
    "another version": modern_case(**{"MCP-Protocol-Version": "2027-01-01"}),
    "a list of versions": modern_case(**{"MCP-Protocol-Version": "2026-07-28, 2025-11-25"}),
}


@pytest.mark.parametrize("case", MISMATCHES)
async def test_headers_that_say_something_else_than_the_body_get_32020(served: FaultServer, case: str) -> None:
    body = in_modern.body("tools/call", call_params("add", a=668, b=1), 77)
    reply = await send_http(served.port, body, MISMATCHES[case])
    assert (reply.status, reply.error()["code"]) == (400, -32020), reply
    assert reply.json()["id"] == 77
    assert "add 668 1" not in served.trace_lines()


async def test_a_header_given_twice_is_a_mismatch(served: FaultServer) -> None:
    request = request_bytes(served.port, in_modern.body("tools/call", call_params("add", a=1, b=2)), modern_case())
    for line in (b"Mcp-Method: tools/call\r\n", b"Mcp-Method: tools/list\r\n", b"Mcp-Name: echo\r\n"):
        first, rest = request.split(b"\r\n", 1)
        async with HttpWire.open(served.port) as wire:
            await wire.send(first + b"\r\n" + line + rest)
            reply = await wire.reply()
        assert (reply.status, reply.error()["code"]) == (400, -32020), line


@pytest.mark.parametrize("name", ["  add  ", "=?base64?YWRk?="])
async def test_other_ways_to_write_a_header_are_taken(served: FaultServer, name: str) -> None:
    body = in_modern.body("tools/call", call_params("add", a=1, b=2))
    assert (await send_http(served.port, body, modern_case(**{"Mcp-Name": name}))).text() == "3"


METAS: dict[str, tuple[Any, int]] = {
    "none": (None, -32602),
    "a number": (7, -32602),
    "an array": ([], -32602),
    "empty": ({}, -32602),
    "no version": ({k: v for k, v in META.items() if "protocolVersion" not in k}, -32602),
    "no capabilities": ({k: v for k, v in META.items() if "clientCapabilities" not in k}, -32602),
    "capabilities an array": ({**META, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
    "version a number": ({**META, "io.modelcontextprotocol/protocolVersion": 2026}, -32602),
    "another version": ({**META, "io.modelcontextprotocol/protocolVersion": "v999"}, -32020),
}


@pytest.mark.parametrize("case", METAS)
async def test_a_modern_request_must_carry_its_meta(served: FaultServer, case: str) -> None:
    meta, code = METAS[case]
    params = call_params("add", a=669, b=1) if meta is None else {**call_params("add", a=669, b=1), "_meta": meta}
    reply = await send_http(served.port, message("tools/call", params, "m"), modern_case())
    assert (reply.status, reply.error()["code"]) == (400, code), reply
    assert reply.json()["id"] == "m"
    assert "add 669 1" not in served.trace_lines()


async def test_a_version_from_the_future_is_told_what_there_is(served: FaultServer) -> None:
    params = {**call_params("add", a=1, b=2), "_meta": {**META, "io.modelcontextprotocol/protocolVersion": "v999.0.0"}}
    reply = await send_http(
        served.port, message("tools/call", params, 5), modern_case(**{"MCP-Protocol-Version": "v999.0.0"})
    )
    assert (reply.status, reply.error()["code"]) == (400, -32022)
    assert reply.error()["data"]["requested"] == "v999.0.0"
    assert MODERN in reply.error()["data"]["supported"]


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "nonsense"]
)
async def test_methods_the_modern_era_has_dropped_get_404(served: FaultServer, method: str) -> None:
    reply = await in_modern.ask(served.port, method, {}, 9)
    assert (reply.status, reply.error()["code"], reply.json()["id"]) == (404, -32601, 9)


async def test_what_the_client_cannot_be_asked_gets_32021(served: FaultServer) -> None:
    reply = await in_modern.call(served.port, "ask")
    assert (reply.status, reply.error()["code"]) == (400, -32021)
    assert reply.error()["data"]["requiredCapabilities"]["elicitation"] == {}


@pytest.mark.parametrize("declared", [7, True, "form", ["form"], 0, "", {}])
async def test_a_capability_that_is_no_object_is_one_without_settings(served: FaultServer, declared: Any) -> None:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": declared}}
    params = {**call_params("ask"), "_meta": meta}
    logged = len(served.log_text())
    reply = await send_http(served.port, message("tools/call", params), modern_headers("tools/call", params))
    assert reply.result()["resultType"] == "input_required"
    assert "Traceback" not in served.log_text()[logged:]


@pytest.mark.parametrize("state", ["nonsense", "", "v1." + "A" * 500, 7, None, {"a": 1}, "\U0001f600"])
async def test_a_forged_state_is_never_taken(served: FaultServer, state: Any) -> None:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    answers = {"go": {"action": "accept", "content": {"ok": True}}}
    params = {**call_params("ask"), "_meta": meta, "requestState": state, "inputResponses": answers}
    reply = await send_http(served.port, message("tools/call", params), modern_headers("tools/call", params))
    if state is None:
        assert reply.status in {200, 400}
    else:
        assert (reply.status, reply.error()["code"]) == (400, -32602), reply


LISTENS: dict[str, Any] = {
    "missing": {},
    "an array": {"notifications": []},
    "text": {"notifications": "all"},
    "a flag that is no flag": {"notifications": {"toolsListChanged": "yes"}},
    "addresses that are none": {"notifications": {"resourceSubscriptions": [1, None]}},
    "an address for addresses": {"notifications": {"resourceSubscriptions": "fault://secret"}},
}


@pytest.mark.parametrize("case", LISTENS)
async def test_a_subscription_to_rubbish_is_refused_before_a_stream_begins(served: FaultServer, case: str) -> None:
    reply = await in_modern.ask(served.port, "subscriptions/listen", LISTENS[case])
    assert (reply.status, reply.error()["code"]) == (400, -32602), reply


NOTIFICATIONS = {
    "unknown": notification("notifications/nonsense", {}),
    "cancelled without an id": notification("notifications/cancelled", {}),
    "cancelled with an object for an id": notification("notifications/cancelled", {"requestId": {"a": [1]}}),
    "cancelled with null for an id": notification("notifications/cancelled", {"requestId": None}),
    "cancelled for nobody": notification("notifications/cancelled", {"requestId": "nobody"}),
    "progress without a token": notification("notifications/progress", {}),
    "progress for nobody": notification("notifications/progress", {"progressToken": [], "progress": "x"}),
    "a request's method": notification("tools/call", call_params("add", a=670, b=1)),
    "an answer to nothing": b'{"jsonrpc":"2.0","id":5,"result":{}}',
    "an error to nothing": b'{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"x"}}',
    "an error that is none": b'{"jsonrpc":"2.0","id":5,"error":7}',
    "an answer that is both": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
    "an answer with an id of its own": b'{"jsonrpc":"2.0","id":{"a":1},"result":{}}',
}


@pytest.mark.parametrize("case", NOTIFICATIONS)
async def test_what_needs_no_answer_gets_none_and_harms_nothing(served: FaultServer, case: str) -> None:
    headers = await open_session(served.port)
    reply = await send_http(served.port, NOTIFICATIONS[case], headers)
    assert reply.status in {202, 400}
    if reply.status == 202:
        assert reply.body == b""
    else:
        assert reply.error()
    assert (await send_http(served.port, message("ping", {}), headers)).result() == {}
    assert "add 670 1" not in served.trace_lines()
