"""MCP's tasks: promises as 2025-11-25 writes them, and as the extension for 2026-07-28 does (SEP-2663).

The two are not compatible. In 2025-11-25 the client asks for a task, `tasks/result` waits for the result, and a tool's
error is a task that failed. In the extension the server decides, `tasks/get` has the result, and a task fails only by a
JSON-RPC error.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deltamcp.dialects import versions
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import (
    JSON,
    Answer,
    Era,
    Failure,
    InputRequest,
    Outcome,
    Promise,
    PromiseStatus,
    RawResult,
    ResourceRequired,
    ResultShape,
    Terms,
    Text,
    ToolResult,
)
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical import format_time

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED_KEY = "io.modelcontextprotocol/related-task"
"""The key of `_meta` by which messages of 2025-11-25 name the task that they belong to."""

IDEMPOTENCY_KEY = "io.github.delta-mcp/idempotency-key"
"""The key of a call's `_meta` by which a client of the extension names the call, to find it again; it is ours."""
MAX_IDEMPOTENCY_KEY_CHARS = 256
KEY_PREFIX = "key:"
"""Stands before an idempotency key with which a client that has no token yet cancels its call in place of the token."""

METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""The methods that the extension adds."""

HANDSHAKE_CAPABILITY: JSON = {"cancel": {}, "requests": {"tools": {"call": {}}}}
"""What a server of 2025-11-25 declares. It has no `tasks/list`: a client that nobody vouches for must not list any."""

_STATUS_MESSAGE_CHARS = 500


def is_declared(extensions: JSON) -> bool:
    """Whether a client declares the extension."""
    return isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict)


def missing_extension(subject: str) -> Failure:
    """Returns the failure of a request that only clients with the extension may send."""
    return Failure(
        Fault.MISSING_CAPABILITY,
        f"{subject} needs the extension {EXTENSION}; declare it in your capabilities.",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def refuse_call(name: str, terms: Terms) -> Failure | None:
    """Returns the failure of a call without a promise of a tool that always gives one; None if the client may wait.

    2025-11-25, "Tool-Level Negotiation", and the extension, "Capability Negotiation". Clients of versions and protocols
    that have no tasks can do nothing but wait.
    """
    if terms.result_shape is not ResultShape.MCP:
        return None
    if terms.era is Era.MODERN:
        return missing_extension(f"The tool {name}")
    if terms.version != versions.TASKS_IN:
        return None
    return Failure(Fault.UNKNOWN_METHOD, f"The tool {name} must be called as a task; send params.task.")


def refuse_task(name: str) -> Failure:
    """Returns the failure of a call as a task of a tool that gives no promises: 2025-11-25 as above."""
    return Failure(Fault.UNKNOWN_METHOD, f"The tool {name} cannot be called as a task; send no params.task.")


def refuse_ask(terms: Terms) -> Failure:
    """Returns the failure of a request about a promise to a server that gives none."""
    if terms.result_shape is ResultShape.MCP:
        return Failure(Fault.UNKNOWN_METHOD, "This server has no tasks.")
    return Failure(Fault.PROMISE_UNKNOWN, "There is no such promise.")


def task_fields(promise: Promise, version: str) -> dict[str, JSON]:
    """Returns the fields of a promise that MCP has in every task of a version."""
    in_extension = version >= versions.TASKS_EXTENSION_SINCE
    fields: dict[str, JSON] = {"taskId": promise.token, "status": _status(promise, in_extension)}
    message = _status_message(promise)
    if message:
        fields["statusMessage"] = message[:_STATUS_MESSAGE_CHARS]
    fields["createdAt"] = format_time(promise.created_at)
    fields["lastUpdatedAt"] = format_time(promise.updated_at)
    fields["ttlMs" if in_extension else "ttl"] = _milliseconds(promise.expires_at - promise.created_at)
    fields["pollIntervalMs" if in_extension else "pollInterval"] = _milliseconds(promise.retry_seconds)
    return fields


def detailed_task(promise: Promise, version: str, encode_result: Callable[[Outcome], Any]) -> dict[str, Any]:
    """Returns the fields of a task in the extension with what belongs to its status: questions, a result or an error.

    `encode_result` writes the result as the response to the call would have it.
    """
    fields: dict[str, Any] = task_fields(promise, version)
    outcome = promise.outcome
    if promise.status is PromiseStatus.INPUT_REQUIRED:
        fields["inputRequests"] = input_requests(promise.requests)
    elif promise.status is PromiseStatus.CANCELLED or outcome is None:
        pass
    elif isinstance(outcome, Failure):
        fields["error"] = jsonrpc.error_object(outcome.code or FAULTS[outcome.fault].modern, outcome)
    else:
        fields["result"] = encode_result(outcome)
    return fields


def input_requests(requests: Mapping[str, InputRequest]) -> dict[str, JSON]:
    """Returns questions as 2026-07-28 has them in results."""
    return {
        key: {"method": request.method, "params": request.params} if request.params else {"method": request.method}
        for key, request in requests.items()
    }


def with_related_task(body: dict[str, Any], token: JSON) -> dict[str, Any]:
    """Returns the result or the parameters of a message of 2025-11-25, with the task that it belongs to in `_meta`."""
    return {**body, "_meta": {**(body.get("_meta") or {}), RELATED_KEY: {"taskId": token}}}


def _status(promise: Promise, in_extension: bool) -> str:
    match promise.status:
        case PromiseStatus.QUEUED | PromiseStatus.WORKING:
            return "working"
        case PromiseStatus.COMPLETED | PromiseStatus.FAILED:
            failed = isinstance(promise.outcome, Failure) or (not in_extension and _is_error(promise.outcome))
            return "failed" if failed else "completed"
        case _:
            return promise.status.value


def _is_error(outcome: Outcome | None) -> bool:
    match outcome:
        case Answer(ToolResult(is_error=True)) | ResourceRequired():
            return True
        case Answer(RawResult(fields=fields)):
            return fields.get("isError") is True
        case _:
            return False


def _status_message(promise: Promise) -> str | None:
    """Returns why a call failed, else what its function last said, else how far it has come."""
    match promise.outcome:
        case Failure() | ResourceRequired():
            return promise.outcome.message
        case Answer(ToolResult(is_error=True) as result):
            return next((block.text for block in result.content if isinstance(block, Text)), None)
        case Answer(RawResult(fields=fields)) if fields.get("isError") is True:
            return next(_raw_texts(fields.get("content")), None)
        case _:
            pass
    if promise.message is not None or promise.progress is None or promise.status.is_final:
        return promise.message
    return f"{promise.progress:g}" if promise.total is None else f"{promise.progress:g} of {promise.total:g}"


def _raw_texts(blocks: JSON) -> Iterator[str]:
    """Yields the texts of content that another server sent."""
    for block in blocks if isinstance(blocks, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            yield text


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
