"""Writes what gRPC requests are responded, large ones in a thread, and the status of a failure."""

import datetime
from typing import Any, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from msgspec import Struct

from deltamcp.dialects import mcp_lite_bodies as bodies
from deltamcp.dialects.mcp_lite import Stamp
from deltamcp.dialects.mcp_lite_bodies import LITE_FAULTS, LiteResponse
from deltamcp.errors import Fault, ToolErrorCode
from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.runtime.threads import Threads
from deltamcp.transports.grpc.requests import lite_messages
from deltamcp.values import JSON, ErrorInfo, Failure, Text, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.wire.message_bounds import estimate_bytes, least_bytes
from deltamcp.wire.protobuf import StructError, TooDeepError, write_struct

_NUMBERS = {kind: number for number, kind in enumerate(bodies.RESPONSE_TYPES)}
_TEXTS = ("promise_token", "server_version", "request_state")
_TIMES = {"expires_at": "expires_at_ms", "estimated_completion": "estimated_completion_ms"}
_ELSEWHERE = frozenset({"response_type", "timestamp", "processing_time_ms", "retry_after_ms", *_TEXTS, *_TIMES})
"""Keys of `_meta` that have fields of their own; `extra` has all others."""
_JSON_BYTES_PER_VALUE, _STRUCT_BYTES_PER_VALUE = 1, 2
"""What the smallest value, or the name of a field, takes in both forms."""
_MAX_INT32 = 2**31 - 1


class ResponseForm(Struct, frozen=True, gc=False):
    """How a client takes responses."""

    takes_json: bool = False
    is_strict: bool = False
    max_bytes: int = 4 * 1024 * 1024

    def is_exceeded_by(self, result: dict[str, JSON]) -> bool:
        """Whether a result is surely too large: to write 20 MB only to drop them takes 20 ms, and as much memory."""
        per_value = _JSON_BYTES_PER_VALUE if self.takes_json else _STRUCT_BYTES_PER_VALUE
        return least_bytes(result, per_value, self.max_bytes + 1) > self.max_bytes


def encode_response(response: LiteResponse, stamp: Stamp, form: ResponseForm) -> bytes:
    """Returns a `ToolResponse` with `meta`; a failure in its place if the result is too deep or too large for it.

    Raises:
        ValueError: the result contains a value that JSON cannot express.
    """
    try:
        encoded = None if form.is_exceeded_by(response.result) else _encode(response, stamp, form)
    except TooDeepError as error:
        text = f"{error} The metadata mcplite-accept: result-json asks for a result of any depth."
        return _encode(_failure(ToolErrorCode.RESULT_TOO_DEEP, text, response), stamp, form)
    if encoded is not None and len(encoded) <= form.max_bytes:
        return encoded
    text = f"The result has more than the {form.max_bytes} bytes that one message may have; ask for less."
    return _encode(_failure(ToolErrorCode.RESULT_TOO_LARGE, text, response), stamp, form)


def encode_part(result: dict[str, JSON], form: ResponseForm) -> bytes:
    """Returns a `ToolResponse` without `meta`: something that a call has made before it ends.

    Raises:
        ValueError: it contains a value that JSON cannot express, is too deep or too large.
    """
    encoded = b""
    is_too_large = form.is_exceeded_by(result)
    if not is_too_large:
        message = lite_messages().ToolResponse()
        _write_result(message, result, form)
        encoded = message.SerializeToString()
    if is_too_large or len(encoded) > form.max_bytes:
        raise StructError("A part of the result is larger than a message may be.")
    return encoded


def promise_update(response: LiteResponse) -> dict[str, JSON]:
    """Returns what a stream tells of a promise while its call goes on."""
    return {"promise": response.result["promise"]}


def _failure(code: ToolErrorCode, text: str, instead_of: LiteResponse) -> LiteResponse:
    failure = bodies.tool_result(ToolResult([Text(text)], is_error=True, error=ErrorInfo(code)), "mcp")
    version = instead_of.meta.get("server_version")
    return failure if version is None else LiteResponse(failure.result, {**failure.meta, "server_version": version})


def _encode(response: LiteResponse, stamp: Stamp, form: ResponseForm) -> bytes:
    message = lite_messages().ToolResponse()
    result = response.result
    is_promise = response.response_type == bodies.PROMISE
    # MCP-lite, A.3: a promise has an empty result; what HTTP has in the body is in the fields of `meta`.
    large = _write_result(message, {} if is_promise else result, form)
    extra = _write_meta(message.meta, response, stamp, form)
    if is_promise:
        extra |= _write_promise(message.meta, result["promise"])
    if large:
        extra["stringified"] = large
    if extra:
        write_struct(extra, message.meta.extra)
    encoded: bytes = message.SerializeToString()
    return encoded


def _write_result(message: Any, result: dict[str, JSON], form: ResponseForm) -> list[str]:
    if form.takes_json:
        message.result_json = jsonrpc.encode(result)
        return []
    message.result.SetInParent()
    return write_struct(result, message.result)


def _write_meta(target: Any, response: LiteResponse, stamp: Stamp, form: ResponseForm) -> dict[str, JSON]:
    """Fills `ResponseMeta`, and returns what it has no field for."""
    meta = response.meta
    kind = response.response_type
    target.response_type = _NUMBERS[bodies.ELICITATION if kind == bodies.RESOURCE_REQUEST and form.is_strict else kind]
    target.timestamp = round(stamp.time * 1000)
    target.processing_time_ms = min(stamp.milliseconds, _MAX_INT32)
    for key in _TEXTS:
        if meta.get(key):
            setattr(target, key, meta[key])
    if "expires_at" in meta or "estimated_completion" in meta:
        for key, field in _TIMES.items():
            if key in meta:
                setattr(target, field, milliseconds(meta[key]))
    if "retry_after_ms" in meta:
        target.retry_after_ms = min(meta["retry_after_ms"], _MAX_INT32)
    return {key: value for key, value in meta.items() if key not in _ELSEWHERE}


def _write_promise(target: Any, promise: dict[str, JSON]) -> dict[str, JSON]:
    target.progress = promise.get("progress", 0.0)
    target.message = promise.get("message", "")
    return {"status": promise["status"]}


def milliseconds(text: str) -> int:
    """Returns an RFC 3339 time in milliseconds since 1970."""
    return round(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


# Lists


def encode_tools(tools: list[dict[str, JSON]]) -> bytes:
    """Returns a `ToolsList`."""
    message = lite_messages().ToolsList()
    for tool in tools:
        item = message.tools.add(name=tool["name"], type=tool.get("@type", ""), description=tool.get("description", ""))
        _write_schema(tool["inputSchema"], item)
    encoded: bytes = message.SerializeToString()
    return encoded


def encode_whole_tools(tools: list[dict[str, JSON]]) -> bytes:
    """Returns a `ToolsList` with the definitions as JSON."""
    message = lite_messages().ToolsList()
    for tool in tools:
        message.tools.add(name=tool["name"], definition_json=jsonrpc.encode(tool))
    encoded: bytes = message.SerializeToString()
    return encoded


def _write_schema(schema: dict[str, JSON], item: Any) -> None:
    item.input_schema.SetInParent()
    try:
        large = write_struct(schema, item.input_schema)
    except TooDeepError:  # the server checks arguments all the same
        large = []
        item.input_schema.Clear()
        write_struct({"type": "object"}, item.input_schema)
    if large:
        item.input_schema.Clear()
        write_struct(_with_doubles(schema), item.input_schema)


def _with_doubles(value: JSON) -> JSON:
    """Returns a schema whose bounds are doubles: as strings, no validator would take them."""
    if isinstance(value, dict):
        return {key: _with_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_doubles(item) for item in value]
    return float(value) if type(value) is int else value


def encode_prompts(prompts: list[dict[str, JSON]]) -> bytes:
    """Returns a `PromptsList`."""
    message = lite_messages().PromptsList()
    for prompt in prompts:
        item = message.prompts.add(
            name=prompt["name"], title=prompt.get("title", ""), description=prompt.get("description", "")
        )
        for argument in prompt.get("arguments", ()):
            item.arguments.add(
                name=argument["name"],
                description=argument.get("description", ""),
                required=argument.get("required", False),
            )
    encoded: bytes = message.SerializeToString()
    return encoded


COUNTED_BYTES = 64 * 1024
"""Responses up to this size need not be counted; a client's flow control has as much on the way."""
_BYTES_PER_VALUE_AT_ONCE = 64
"""A response of a thousand values is written on the event loop, in about 1 ms."""
_BYTES_PER_VALUE = 8
"""What a small value takes in a message, about."""


class GrpcEncoder:
    """Writes the responses of one server. Large ones count for their accounts from before they are written."""

    def __init__(self, limits: Limits) -> None:
        self.unsent: Quota = Quota(limits.response_bytes, limits.account_share)
        """Bytes of the responses that wait to be written, or that clients have yet to read."""
        self._threads = Threads(1)

    async def write_response(
        self, account: str, response: LiteResponse, stamp: Stamp, form: ResponseForm
    ) -> bytes | None:
        """Returns a `ToolResponse` with `meta`; None if too many large responses of the account wait.

        Raises:
            ValueError: the result contains a value that JSON cannot express.
        """
        if _is_small(response):
            return encode_response(response, stamp, form)
        size = self._estimate(response, form)
        if not self.unsent.take(account, size):
            return None
        arguments = {"response": response, "stamp": stamp, "form": form}
        try:
            encoded: bytes = await self._threads.run(account, encode_response, arguments)
        finally:
            self.unsent.give_back(account, size)
        return encoded

    async def write_part(
        self, account: str, result: dict[str, JSON], form: ResponseForm, seconds: float
    ) -> bytes | None:
        """Returns a `ToolResponse` without `meta`; None if the account's turn did not come within `seconds`.

        Raises:
            ValueError: it contains a value that JSON cannot express, is too deep or too large.
        """
        if _is_small(result):
            return encode_part(result, form)
        size = self._estimate(result, form)
        if not await self.unsent.take_in_turn(account, size, seconds):
            return None
        try:
            encoded: bytes = await self._threads.run(account, encode_part, {"result": result, "form": form})
        finally:
            self.unsent.give_back(account, size)
        return encoded

    def _estimate(self, value: LiteResponse | dict[str, JSON], form: ResponseForm) -> int:
        return max(1, min(estimate_bytes(value, _BYTES_PER_VALUE), form.max_bytes, self.unsent.share))


def _is_small(value: Struct | dict[str, JSON]) -> bool:
    return least_bytes(value, _BYTES_PER_VALUE_AT_ONCE, COUNTED_BYTES) < COUNTED_BYTES


DOMAIN = "mcplite"
"""The domain of the reasons in `google.rpc.ErrorInfo`."""

# Trailing metadata of more than 8 kB is refused by clients. A text is there twice, once with three bytes for each of
# its bytes that is not ASCII.
_TEXT_BYTES = 800
_VALUE_BYTES = 2000
_MAX_VIOLATIONS = 8
_VIOLATION_BYTES = 150
_KEYWORD_BYTES = 40
_RETRY_SECONDS = 1.0
"""When to try again what may succeed later, where nothing says so."""
_IN_OTHER_DETAILS = frozenset({"reason", "retryable", "errors", "retry_after_ms"})
"""Keys of an error's data that are in other fields of the details."""


class GrpcError(NamedTuple):
    """The status of a response that reports a failure."""

    code: grpc.StatusCode
    text: str
    details: bytes
    """A serialized `google.rpc.Status`, which clients read under `grpc_messages.DETAILS_KEY`."""


def grpc_error(failure: Failure) -> GrpcError:
    """Returns what a client is told of a failure."""
    row = LITE_FAULTS[failure.fault]
    data = failure.data if isinstance(failure.data, dict) else {}
    code = getattr(grpc.StatusCode, row.grpc_status)
    text = _flat(_text(failure, data), _TEXT_BYTES)
    status = status_pb2.Status(code=code.value[0], message=text)
    metadata = {key: _flat(value) for key, value in data.items() if key not in _IN_OTHER_DETAILS}
    if data.get("reason", row.reason) != row.reason:
        metadata["detail"] = _flat(data["reason"])  # such as what is wrong with a token
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN, metadata=metadata))
    if errors := data.get("errors"):
        status.details.add().Pack(_bad_request(errors))
    if failure.fault is Fault.NOT_FOUND:
        name = _flat(data.get("requested_tool", ""))
        status.details.add().Pack(error_details_pb2.ResourceInfo(resource_type="tool", resource_name=name))
    if failure.fault in (Fault.RATE_LIMITED, Fault.TOO_LARGE):
        subject = _flat(data.get("limit", "message size" if failure.fault is Fault.TOO_LARGE else "rate"))
        violation = error_details_pb2.QuotaFailure.Violation(subject=subject, description=text)
        status.details.add().Pack(error_details_pb2.QuotaFailure(violations=[violation]))
    if row.retryable:
        delay = Duration()
        delay.FromMilliseconds(round((failure.retry_seconds or _RETRY_SECONDS) * 1000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return GrpcError(code, text, status.SerializeToString())


def _text(failure: Failure, data: dict[str, JSON]) -> str:
    if failure.fault is Fault.NOT_FOUND and "requested_tool" in data:
        return f"Tool not found: {data['requested_tool']}"  # MCP-lite, A.5
    return failure.message


def _bad_request(errors: list[dict[str, JSON]]) -> error_details_pb2.BadRequest:
    violations = [
        error_details_pb2.BadRequest.FieldViolation(
            field=_flat(error.get("pointer", ""), _VIOLATION_BYTES),
            description=_flat(error.get("message", ""), _VIOLATION_BYTES),
            reason=_flat(error.get("keyword", ""), _KEYWORD_BYTES),
        )
        for error in errors[:_MAX_VIOLATIONS]
        if isinstance(error, dict)
    ]
    return error_details_pb2.BadRequest(field_violations=violations)


def _flat(value: JSON, max_bytes: int = _VALUE_BYTES) -> str:
    """Returns a value of an error's data as a text of limited length."""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return str(value)[:max_bytes].encode(errors="replace")[:max_bytes].decode(errors="ignore")
