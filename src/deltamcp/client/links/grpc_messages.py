"""MCP-lite's messages of gRPC as those of JSON-RPC, which the client knows: requests, results and errors."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from deltamcp.dialects.mcp_lite_bodies import RESPONSE_TYPES
from deltamcp.dialects.mcp_lite_faults import LITE_FAULTS
from deltamcp.errors import ArgumentsError, Fault
from deltamcp.limits import Limits
from deltamcp.transports.grpc.messages import DETAILS_KEY, lite_messages
from deltamcp.values import JSON, Malformed, Message, Notification, RequestId, Response
from deltamcp.wire import jsonrpc
from deltamcp.wire.struct_values import StructError, read_struct, restore_pointers, write_struct
from deltamcp.wire.timestamps import format_time

_ANSWER_KEYS = {"inputResponses": "input_responses", "requestState": "request_state"}
"""Where MCP-lite has answers to questions in `_meta`, which is all that a `ToolRequest` has beside the arguments."""
_TIMES = {"expires_at_ms": "expires_at", "estimated_completion_ms": "estimated_completion", "timestamp": "timestamp"}
_PLAIN = ("promise_token", "server_version", "request_state", "retry_after_ms", "processing_time_ms")
_CODES: Mapping[str, int] = MappingProxyType(
    {
        "INVALID_ARGUMENT": -32602,
        "NOT_FOUND": -32601,
        "UNIMPLEMENTED": -32601,
    }
)
"""The JSON-RPC code of a status that says no reason; `_INTERNAL` for all others."""
_INTERNAL = -32603
_DETAILS_ELSEWHERE = frozenset({"retryable", "retry_after_ms", "errors"})
"""Keys of an error's data that are no texts: other details than `ErrorInfo` have them."""
_REASON_CODES = {row.reason: row.code for row in reversed([*LITE_FAULTS.values()])}


# Requests


def encode_call(params: Mapping[str, Any]) -> bytes:
    """Returns the `ToolRequest` of the parameters of `tools/call`.

    Raises:
        ArgumentsError: a `ToolRequest` cannot hold the arguments.
    """
    message = lite_messages().ToolRequest(name=params["name"])
    meta = {own: params[key] for key, own in _ANSWER_KEYS.items() if key in params}
    meta |= {key: value for key, value in params.get("_meta", {}).items() if key != "progressToken"}
    try:
        message.arguments.SetInParent()
        write_struct(params.get("arguments", {}), message.arguments)
        if meta:
            write_struct(meta, message.meta)
    except StructError as error:
        raise ArgumentsError(f"The arguments cannot be sent over gRPC. {error}") from None
    encoded: bytes = message.SerializeToString()
    return encoded


# Responses


def read_tools(data: bytes, id_: RequestId, limits: Limits) -> Message:
    """Reads a `ToolsList` as the response to `tools/list`."""
    try:
        tools = [_tool(tool, limits) for tool in lite_messages().ToolsList.FromString(data).tools]
    except (DecodeError, StructError):
        return Malformed(Fault.PARSE, "It is no list of tools.", id_)
    return Response(id_, {"tools": tools})


def _tool(tool: Any, limits: Limits) -> dict[str, JSON]:
    if tool.definition_json:
        whole = _read_object(tool.definition_json, limits)
        if isinstance(whole, Malformed):
            raise DecodeError(whole.reason)
        return whole
    definition: dict[str, JSON] = {"name": tool.name, "description": tool.description}
    if tool.type:
        definition["@type"] = tool.type
    return {**definition, "inputSchema": read_struct(tool.input_schema, limits.values)}


def read_response(data: bytes, id_: RequestId, limits: Limits) -> Response | Malformed | Notification | None:
    """Reads a `ToolResponse`: a response, if it has `meta`; else what a call tells before it ends.

    That is its progress, as a notification; or the promise that it became, as a response; or a part of its result,
    which the response has again, so that None stands for it.
    """
    try:
        message = lite_messages().ToolResponse.FromString(data)
        result = _result(message, limits)
        if isinstance(result, Malformed):
            return Malformed(result.fault, result.reason, id_)
        if message.HasField("meta"):
            return Response(id_, _with_meta(result, message.meta, limits))
    except (DecodeError, StructError):
        return Malformed(Fault.PARSE, "It is no response of a tool.", id_)
    progress, promise = result.get("progress"), result.get("promise")
    if result.keys() == {"progress"} and isinstance(progress, dict):
        return Notification("notifications/progress", {**progress, "progressToken": id_})
    if result.keys() == {"promise"} and isinstance(promise, dict):
        meta = {"response_type": "promise", "promise_token": promise.get("token")}
        return Response(id_, {**result, "_meta": meta})
    return None if result.keys() == {"partial"} else Response(id_, result)


def _result(message: Any, limits: Limits) -> dict[str, JSON] | Malformed:
    if not message.result_json:
        return read_struct(message.result, limits.values)
    return _read_object(message.result_json, limits)


def _read_object(encoded: bytes, limits: Limits) -> dict[str, JSON] | Malformed:
    read = jsonrpc.read_reply(b'{"jsonrpc":"2.0","id":1,"result":%b}' % encoded, limits)
    if isinstance(read, Response) and isinstance(read.result, dict):
        return read.result
    return read if isinstance(read, Malformed) else Malformed(Fault.PARSE, "It is no object.")


def _with_meta(result: dict[str, JSON], meta: Any, limits: Limits) -> dict[str, JSON]:
    number = meta.response_type
    told: dict[str, JSON] = read_struct(meta.extra, limits.values)
    pointers, own = told.pop("stringified", None), result.get("_meta")
    if isinstance(pointers, list):
        restore_pointers(result, [pointer for pointer in pointers if isinstance(pointer, str)])
    told["response_type"] = RESPONSE_TYPES[number] if 0 <= number < len(RESPONSE_TYPES) else number
    told |= {key: getattr(meta, key) for key in _PLAIN if getattr(meta, key)}
    told |= {key: format_time(getattr(meta, field) / 1000) for field, key in _TIMES.items() if getattr(meta, field)}
    if told["response_type"] == "promise":
        promise = {"status": told.pop("status", None), "progress": meta.progress, "message": meta.message}
        result = {**result, "promise": {key: value for key, value in promise.items() if value}}
    return {**result, "_meta": {**told, **(own if isinstance(own, dict) else {})}}


# Errors


def read_error(error: grpc.aio.AioRpcError) -> dict[str, JSON] | None:
    """Returns the JSON-RPC error that a server reports by a status; None if the server gives no details."""
    details = status_details(error)
    if details is None:
        return None
    data = _error_data(details)
    code = _REASON_CODES.get(data.get("reason", ""), _CODES.get(error.code().name, _INTERNAL))
    return {"code": code, "message": details.message or error.details() or "", "data": data}


def plain_error(error: grpc.aio.AioRpcError) -> dict[str, JSON]:
    """Returns the JSON-RPC error of a status without details."""
    return {"code": _CODES.get(error.code().name, _INTERNAL), "message": error.details() or error.code().name}


def status_details(error: grpc.aio.AioRpcError) -> Any | None:
    """Returns the `google.rpc.Status` of an error."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None


def _error_data(status: Any) -> dict[str, JSON]:
    """Returns the details of an error as MCP-lite has them over HTTP."""
    data: dict[str, JSON] = {"retryable": False}
    for detail in status.details:
        match detail.TypeName():
            case "google.rpc.ErrorInfo":
                info = _unpack(detail, error_details_pb2.ErrorInfo())
                data |= {key: text for key, text in info.metadata.items() if key not in _DETAILS_ELSEWHERE}
                data["reason"] = info.reason
                if "available_tools" in info.metadata:
                    data["available_tools"] = info.metadata["available_tools"].split(",")
            case "google.rpc.BadRequest":
                bad = _unpack(detail, error_details_pb2.BadRequest())
                data["errors"] = [
                    {"pointer": each.field, "message": each.description, "keyword": each.reason}
                    for each in bad.field_violations
                ]
            case "google.rpc.RetryInfo":
                delay = _unpack(detail, error_details_pb2.RetryInfo()).retry_delay
                data |= {"retryable": True, "retry_after_ms": delay.ToMilliseconds()}
            case _:
                pass
    return data


def _unpack(detail: Any, message: Any) -> Any:
    """Returns a detail, empty if it cannot be read: the status says enough."""
    with suppress(DecodeError):
        detail.Unpack(message)
    return message
