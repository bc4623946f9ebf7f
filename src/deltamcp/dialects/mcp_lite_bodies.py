"""What MCP-lite responds: one body for each of its response types, and how each fault is reported.

MCP-lite leaves most shapes open. These have what MCP's clients read (`content`, `structuredContent`, `isError`) and
what clients of NLWeb read (`promise`, `elicitation`, `error`).

HTTP has status 200 for every response to a request whose id could be read, also for an error; other statuses report
what HTTP itself has one for.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, to_builtins

from deltamcp.dialects.questions import CONSENT_ANSWERS, Question, list_questions
from deltamcp.errors import Fault, ToolErrorCode
from deltamcp.values import (
    JSON,
    ErrorInfo,
    InputRequest,
    InputRequired,
    Promise,
    PromiseStatus,
    ResourceRequired,
    Text,
    ToolResult,
)
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical import format_time

ContentStyle = Literal["mcp", "raw", "both"]
"""What `content` has: MCP's blocks; the objects of the result themselves; or objects that are both."""

ANSWER, PROMISE, ELICITATION, FAILURE = "answer", "promise", "elicitation", "failure"
RESOURCE_REQUEST = "request-for-more-resource"
RESPONSE_TYPES = (ANSWER, PROMISE, ELICITATION, FAILURE, RESOURCE_REQUEST)
"""In the order of their numbers in gRPC."""

_UNNAMED_ERROR = ErrorInfo("TOOL_ERROR")
"""What programs read of an error to which neither the author nor the server gave a code."""


class LiteResponse(Struct, frozen=True):
    """A result: its body, whose content may have `values.Content`, and its `_meta`."""

    result: dict[str, Any]
    meta: dict[str, Any]

    @property
    def response_type(self) -> str:
        """One of `RESPONSE_TYPES`."""
        kind: str = self.meta["response_type"]
        return kind


def tool_result(value: ToolResult, style: ContentStyle) -> LiteResponse:
    """Returns an answer or, for a tool's error, a failure."""
    result: dict[str, Any] = {"content": value.content}
    if value.structured is not UNSET:
        result["structuredContent"] = value.structured
    if value.is_error:
        return LiteResponse(
            {"isError": True, **result, "error": _error(value)}, {**(value.meta or {}), **_kind(FAILURE)}
        )
    if style != "mcp":
        objects = _plain_objects(value)
        if objects is not None:
            result["content"] = objects if style == "raw" else [_as_block(item) for item in objects]
            if style == "raw":
                result.pop("structuredContent", None)
    return LiteResponse(result, _kind(ANSWER) if value.meta is None else {**value.meta, **_kind(ANSWER)})


def _kind(response_type: str) -> dict[str, Any]:
    return {"response_type": response_type}


def error_text(value: ToolResult) -> str:
    """Returns the text of a tool's error."""
    return "\n".join(block.text for block in value.content if isinstance(block, Text))


def _error(value: ToolResult) -> dict[str, Any]:
    info = value.error or _UNNAMED_ERROR
    return {"code": info.code, "message": error_text(value), "retryable": info.retryable, "details": info.details}


def _plain_objects(value: ToolResult) -> list[JSON] | None:
    """Returns the objects of a result that is an object or a list; None for any other."""
    found = value.structured
    if found is UNSET:
        if len(value.content) != 1 or not isinstance(value.content[0], Text):
            return None
        try:
            found = jsonrpc.decode(value.content[0].text.encode())
        except ValueError:
            return None
    if isinstance(found, list):
        return found
    return [found] if isinstance(found, dict) else None


def _as_block(item: JSON) -> dict[str, JSON]:
    """Returns an object that MCP's clients read as a text, and others as itself."""
    block: dict[str, JSON] = {"type": "text", "text": jsonrpc.encode(item).decode()}
    return {**item, **block} if isinstance(item, dict) else block


# Promises


def promise(value: Promise, now: float, is_cancelling: bool = False) -> LiteResponse:
    """Returns the promise of a call that goes on, or what it is at this moment."""
    status = "cancelling" if is_cancelling else value.status.value
    token, retry_ms = value.token, round(value.retry_seconds * 1000)
    body: dict[str, Any] = {"token": token, "status": status}
    meta: dict[str, Any] = {
        **_kind(PROMISE),
        "promise_token": token,
        "expires_at": format_time(value.expires_at),
        "retry_after_ms": retry_ms,
    }
    fraction = _fraction(value)
    if fraction is not None:
        body["progress"] = fraction
    if value.message is not None:
        body["message"] = value.message
    if fraction and not value.status.is_final:
        left = max(0.0, (now - value.created_at) * (1 - fraction) / fraction)
        body["estimated_time"] = round(left, 1)
        meta["estimated_completion"] = format_time(now + left)
    return LiteResponse({"content": [Text(_promise_text(value, status, fraction))], "promise": body}, meta)


def _fraction(value: Promise) -> float | None:
    """Returns how much of a call is done, from 0 to 1; None where the tool did not say of how much in all."""
    if value.progress is None or not value.total or value.total < 0:
        return None
    return min(1.0, max(0.0, value.progress / value.total))


def _promise_text(value: Promise, status: str, fraction: float | None) -> str:
    percent = "" if fraction is None else f" ({fraction:.0%})"
    if value.status.is_final:
        return f"The call has ended: {status}. Call redeem with promise {value.token} for its result."
    state = {"queued": "Waiting to start", "cancelling": "Being cancelled"}.get(status, "Still working")
    return f"{state}{percent}. Call redeem with promise {value.token} in {value.retry_seconds:.2g} s."


def cancelled_failure() -> LiteResponse:
    """Returns the failure of a call that was cancelled."""
    cancelled = ToolResult([Text("The call was cancelled.")], is_error=True, error=ErrorInfo("CANCELLED"))
    return tool_result(cancelled, "mcp")


# Questions


def elicitation(outcome: InputRequired, expires_at: float) -> LiteResponse:
    """Returns the questions of a call; the client sends its request again with the answers."""
    meta: dict[str, Any] = {**_kind(ELICITATION)}
    if outcome.state is not None:
        meta |= {"request_state": outcome.state, "expires_at": format_time(expires_at)}
    return LiteResponse(_questions(outcome.requests), meta)


def promise_questions(value: Promise) -> LiteResponse:
    """Returns the questions of a call behind a promise; the client answers them by `redeem` with `input`."""
    body = _questions(value.requests)
    body["content"].append(Text(f"Call redeem with promise {value.token} and the answers in input."))
    body["promise"] = {"token": value.token, "status": PromiseStatus.INPUT_REQUIRED.value}
    meta = {
        **_kind(ELICITATION),
        "promise_token": value.token,
        "expires_at": format_time(value.expires_at),
        "retry_after_ms": round(value.retry_seconds * 1000),
    }
    return LiteResponse(body, meta)


def _questions(requests: dict[str, InputRequest]) -> dict[str, Any]:
    texts = [str(request.params.get("message", request.method)) for request in requests.values()]
    links = [request.params["url"] for request in requests.values() if "url" in request.params]
    body = {
        "text": "\n".join(texts),
        "questions": [_question(question, requests[question.key]) for question in list_questions(requests)],
        "requests": {key: to_builtins(request) for key, request in requests.items()},
    }
    return {"content": [Text("\n".join((*texts, *links)))], "elicitation": body}


def _question(question: Question, request: InputRequest) -> dict[str, JSON]:
    """Returns a field of a form, or a form without fields, as NLWeb's question."""
    if question.field is None:
        text = request.params.get("message", request.method)
        return {
            "id": question.id,
            "text": text,
            "type": "single_select",
            "options": list(CONSENT_ANSWERS),
            "required": True,
        }
    field = request.params["requestedSchema"]["properties"][question.field]
    text = field.get("title") or field.get("description") or question.field
    return {"id": question.id, "text": text, **_choices(field), "required": question.required}


def _choices(field: dict[str, JSON]) -> dict[str, JSON]:
    if field.get("type") == "array":
        return {"type": "multi_select", "options": _options(field.get("items", {}))}
    if field.get("type") == "boolean":
        return {"type": "single_select", "options": [True, False]}
    options = _options(field)
    return {"type": "single_select", "options": options} if options else {"type": "text"}


def _options(field: dict[str, JSON]) -> list[JSON]:
    titled = field.get("oneOf") or field.get("anyOf") or ()
    return list(field.get("enum", ())) or [choice["const"] for choice in titled if "const" in choice]


def resource_request(outcome: ResourceRequired, expires_at: float) -> LiteResponse:
    """Returns the request for more of a resource; the client sends its own again once it can grant that."""
    body = {"message": outcome.message, "resources": to_builtins(outcome.resources)}
    meta: dict[str, Any] = {**_kind(RESOURCE_REQUEST)}
    if outcome.state is not None:
        meta |= {"request_state": outcome.state, "expires_at": format_time(expires_at)}
    return LiteResponse({"content": [Text(outcome.message)], "resource_request": body}, meta)


class LiteFault(NamedTuple):
    """A row of the table."""

    code: int
    """The JSON-RPC code; MCP-lite has the five of JSON-RPC itself."""
    http_status: int
    grpc_status: str
    """The name of a status code of gRPC."""
    reason: str
    """`error.data.reason`, which programs read."""
    retryable: bool = False
    """Whether the same request may succeed later."""


LITE_FAULTS: Mapping[Fault, LiteFault] = MappingProxyType(
    {
        Fault.PARSE: LiteFault(-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        Fault.INVALID_REQUEST: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.UNKNOWN_METHOD: LiteFault(-32601, 200, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
        Fault.INVALID_PARAMS: LiteFault(-32602, 200, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        # MCP-lite, A.5: an unknown tool has the code of an unknown method.
        Fault.NOT_FOUND: LiteFault(-32601, 200, "NOT_FOUND", "TOOL_NOT_FOUND"),
        Fault.RESOURCE_NOT_FOUND: LiteFault(-32602, 200, "NOT_FOUND", "RESOURCE_NOT_FOUND"),
        Fault.HEADER_MISMATCH: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.MISSING_CAPABILITY: LiteFault(-32603, 200, "FAILED_PRECONDITION", "MISSING_CAPABILITY"),
        Fault.UNSUPPORTED_VERSION: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.INTERNAL: LiteFault(-32603, 200, "INTERNAL", "INTERNAL"),
        Fault.TIMEOUT: LiteFault(-32603, 200, "DEADLINE_EXCEEDED", "TIMEOUT", retryable=True),
        Fault.OVERLOADED: LiteFault(-32603, 503, "UNAVAILABLE", "OVERLOADED", retryable=True),
        Fault.CANCELLED: LiteFault(-32603, 200, "CANCELLED", "CANCELLED"),
        Fault.TOO_LARGE: LiteFault(-32603, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE"),
        Fault.TOO_SLOW: LiteFault(-32600, 408, "DEADLINE_EXCEEDED", "TIMEOUT", retryable=True),
        Fault.WRONG_HOST: LiteFault(-32600, 421, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.WRONG_ORIGIN: LiteFault(-32600, 403, "PERMISSION_DENIED", "FORBIDDEN"),
        Fault.WRONG_PATH: LiteFault(-32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
        Fault.WRONG_HTTP_METHOD: LiteFault(-32600, 405, "UNIMPLEMENTED", "INVALID_REQUEST"),
        Fault.WRONG_MEDIA_TYPE: LiteFault(-32600, 415, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.NOT_ACCEPTABLE: LiteFault(-32600, 406, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.SESSION_REQUIRED: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.SESSION_UNKNOWN: LiteFault(-32600, 404, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.UNAUTHORIZED: LiteFault(-32600, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        Fault.INSUFFICIENT_SCOPE: LiteFault(-32600, 403, "PERMISSION_DENIED", "FORBIDDEN"),
        Fault.RATE_LIMITED: LiteFault(-32603, 429, "RESOURCE_EXHAUSTED", "RATE_LIMITED", retryable=True),
        Fault.PROMISE_UNKNOWN: LiteFault(-32602, 200, "NOT_FOUND", "PROMISE_UNKNOWN"),
        Fault.SHUTTING_DOWN: LiteFault(-32603, 503, "UNAVAILABLE", "SERVER_SHUTDOWN", retryable=True),
    }
)

FAULTS_OF_TOOL_ERRORS: Mapping[str, Fault] = MappingProxyType(
    {
        ToolErrorCode.INVALID_PARAMS: Fault.INVALID_PARAMS,
        ToolErrorCode.INTERNAL: Fault.INTERNAL,
        ToolErrorCode.TIMEOUT: Fault.TIMEOUT,
        ToolErrorCode.RATE_LIMITED: Fault.RATE_LIMITED,
    }
)
"""The errors that MCP reports as a tool's, so that a model reads them, and MCP-lite as the protocol's."""
