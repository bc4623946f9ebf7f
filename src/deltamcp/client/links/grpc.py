"""The link to an MCP-lite server over gRPC: each request is a call of one of its three methods."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from deltamcp.auth.safe_url import is_loopback
from deltamcp.client.links.http import check_header_name, check_header_value
from deltamcp.client.links.link import (
    NO_HEADERS,
    MessageReceiver,
    RefusedForNowError,
    TokenSource,
    peer_error,
    too_large_error,
)
from deltamcp.dialects.mcp_lite_bodies import LITE_FAULTS, RESPONSE_TYPES
from deltamcp.errors import (
    ArgumentsError,
    ClientError,
    ConnectionLostError,
    DeadlineError,
    Fault,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.limits import Limits
from deltamcp.transports.grpc.requests import DETAILS_KEY, SERVICE, lite_messages
from deltamcp.values import JSON, Malformed, Message, Notification, RequestId, Response
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical import format_time
from deltamcp.wire.codecs import JSON_CODEC
from deltamcp.wire.protobuf import StructError, read_struct, restore_pointers, write_struct

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


_Code = grpc.StatusCode
_ACCEPT = ("mcplite-accept", "result-json")
"""Asks our servers for results as JSON, which has every integer exactly; others send a Struct all the same."""
_MAX_RENEWALS = 2
"""How many further tokens a request is sent with: one that another request or process got meanwhile, and a new one."""
_UNKNOWN_METHOD = {"code": -32601, "message": "MCP-lite over gRPC has tools only."}
_UNSENT = ("failed to connect", "DNS resolution failed", "name resolution", "Connection refused")
"""How gRPC begins to tell that it could not connect."""
_BROKEN = ("RST_STREAM", "GOAWAY", "Stream removed", "Socket closed", "Connection reset")
"""How gRPC tells of a broken connection where the status is one that servers use, too."""
_ADDRESS = re.compile(r"^[A-Z_]+: (ipv[46]:\S+: )?")
"""What gRPC puts before the reason: a status, and an address that the label has."""
_FOR_NOW = ("RATE_LIMITED", "OVERLOADED", "SERVER_SHUTDOWN")
"""The reasons of a server that has done nothing, and can be asked again."""


class GrpcLink:
    """A link to one server; gRPC itself connects, and connects again."""

    carries_headers = True
    pid: int | None = None

    def __init__(
        self,
        label: str,
        host: str,
        port: int,
        secure: bool,
        headers: Mapping[str, str],
        tokens: TokenSource | None,
        limits: Limits,
    ) -> None:
        self.codec = JSON_CODEC
        self.ended: bool = False
        self._label, self._host, self._port, self._secure = label, host, port, secure
        self._metadata = [(check_header_name(name), check_header_value(value, name)) for name, value in headers.items()]
        self._tokens, self._limits = tokens, limits
        self._bearer: str | None = None
        self._channel: grpc.aio.Channel | None = None

    async def open(self, receiver: MessageReceiver) -> None:
        self._receiver = receiver
        if self._tokens is not None:
            self._bearer = await self._tokens.token()
        address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        options = _channel_options(self._host, self._limits.message_bytes)
        if self._secure:
            credentials = grpc.ssl_channel_credentials(await asyncio.to_thread(_root_certificates))
            self._channel = grpc.aio.secure_channel(address, credentials, options)
        else:
            self._channel = grpc.aio.insecure_channel(address, options)

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        method, id_, params = message.get("method"), message.get("id"), message.get("params", {})
        if self.ended or self._channel is None:
            raise ConnectionLostError(f"{self._label}: the connection was closed.", maybe_done=False)
        if id_ is None or method is None:
            return  # MCP-lite has neither notifications of clients nor requests of servers
        match method:
            case "tools/list":
                await self._request(id_, lambda seconds: self._get_tools(id_, seconds), ends_at)
            case "tools/call" if "progressToken" in params.get("_meta", {}):
                body = encode_call(params)
                await self._request(id_, lambda seconds: self._call_with_progress(id_, body, seconds), ends_at)
            case "tools/call":
                body = encode_call(params)
                await self._request(id_, lambda seconds: self._call(id_, body, seconds), ends_at)
            case _:
                self._receiver.receive(Response(id_, error=dict(_UNKNOWN_METHOD)))
        if self._receiver.is_awaiting(id_):
            raise ConnectionLostError(f"{self._label} ended its answer before it was complete.")

    async def _request(
        self, id_: RequestId, exchange: Callable[[float | None], Awaitable[None]], ends_at: float | None
    ) -> None:
        """Makes an exchange, which takes the seconds that are left; again with another token if this one is refused.

        Raises:
            ClientError: no response came.
        """
        bearer = self._bearer
        for renewals_left in range(_MAX_RENEWALS, -1, -1):
            try:
                await exchange(None if ends_at is None else max(0.0, ends_at - asyncio.get_running_loop().time()))
                return
            except grpc.aio.AioRpcError as error:
                challenge = _challenge(error)
                if challenge is None or self._tokens is None or not renewals_left:
                    self._receive_error(id_, error)
                    return
                bearer = await self._tokens.renew(bearer, challenge)
                if bearer is None:
                    self._receive_error(id_, error)
                    return
                self._bearer = check_header_value(bearer, "the token")

    async def _get_tools(self, id_: RequestId, seconds: float | None) -> None:
        data = await self._unary("GetTools")(b"", timeout=seconds, metadata=self._request_metadata())
        self._receiver.receive(read_tools(data, id_, self._limits))

    async def _call(self, id_: RequestId, body: bytes, seconds: float | None) -> None:
        data = await self._unary("CallTool")(body, timeout=seconds, metadata=self._request_metadata())
        received = read_response(data, id_, self._limits)
        if received is not None:
            self._receiver.receive(received)

    async def _call_with_progress(self, id_: RequestId, body: bytes, seconds: float | None) -> None:
        assert self._channel is not None, "the link is open"
        call = self._channel.unary_stream(f"/{SERVICE}/CallToolStream")
        stream = call(body, timeout=seconds, metadata=self._request_metadata())
        try:
            async for data in stream:
                received = read_response(data, id_, self._limits)
                if received is not None:
                    self._receiver.receive(received)
                if not self._receiver.is_awaiting(id_):
                    return  # a promise is redeemed by its token, which survives a broken stream
        finally:
            stream.cancel()

    def _unary(self, method: str) -> Any:
        assert self._channel is not None, "the link is open"
        return self._channel.unary_unary(f"/{SERVICE}/{method}")

    def _request_metadata(self) -> tuple[tuple[str, str], ...]:
        bearer = [] if self._bearer is None else [("authorization", f"Bearer {self._bearer}")]
        return (_ACCEPT, *bearer, *self._metadata)

    def _receive_error(self, id_: RequestId, error: grpc.aio.AioRpcError) -> None:
        """Passes the error that a status stands for to the receiver.

        Raises:
            ClientError: the server did not answer, or not now.
        """
        code, text = error.code(), error.details() or ""
        challenge = _challenge(error)
        if challenge is not None:
            wanted = "a" if self._bearer is None else "another"
            wanted += " token that allows more" if code is _Code.PERMISSION_DENIED else " token"
            raise UnauthorizedError(
                f"{self._label} wants {wanted} ({code.name}); give one, or ask who runs it.", challenge
            )
        reported = read_error(error)
        if reported is None:
            self._check_transport(code, text)
            reported = plain_error(error)
        data: Any = reported.get("data", {})
        if data.get("reason") in _FOR_NOW:
            wait_ms = data.get("retry_after_ms")
            raise RefusedForNowError(peer_error(reported), wait_ms / 1000 if isinstance(wait_ms, int) else 0.0)
        self._receiver.receive(Response(id_, error=reported))

    def _check_transport(self, code: grpc.StatusCode, text: str) -> None:
        """
        Raises:
            ClientError: the status is one that gRPC itself reports, and not the server.
        """
        match code:
            case _Code.DEADLINE_EXCEEDED:
                raise DeadlineError(f"{self._label} did not answer in time; the call was cancelled.")
            case _Code.RESOURCE_EXHAUSTED if "larger than max" in text:
                raise too_large_error(f"An answer of {self._label}", self._limits.message_bytes)
            case _Code.UNIMPLEMENTED:
                raise UnreachableError(f"{self._label} has no service {SERVICE}; is it an MCP-lite server?")
            case _Code.UNAVAILABLE | _Code.CANCELLED:
                raise self._lost_error(text)
            case _:
                if any(mark in text for mark in _BROKEN):
                    raise self._lost_error(text)

    def _lost_error(self, text: str) -> ClientError:
        sent = not any(mark in text for mark in _UNSENT)
        reason = _ADDRESS.sub("", text.partition("; last error: ")[2] or text)[:200].rstrip(" :.")
        return ConnectionLostError(f"{self._label} cannot be reached: {reason or 'it says nothing'}.", maybe_done=sent)

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Returns False: MCP-lite servers send nothing that was not asked for."""
        on_open()
        return False

    async def close(self) -> None:
        self.ended = True
        if self._channel is not None:
            await self._channel.close()


def _challenge(error: grpc.aio.AioRpcError) -> str | None:
    """Returns what the server says of the token that it wants; None if it does not want another one."""
    if error.code() not in (_Code.UNAUTHENTICATED, _Code.PERMISSION_DENIED):
        return None
    for key, value in error.trailing_metadata() or ():
        if key == "www-authenticate":
            return value if isinstance(value, str) else value.decode("latin-1")
    return "" if error.code() is _Code.UNAUTHENTICATED else None


def _channel_options(host: str, max_bytes: int) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_retries", 0),  # only the connector knows which request may be sent again
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.enable_http_proxy", 0 if is_loopback(host) else 1),
        ("grpc.use_local_subchannel_pool", 1),  # a link's connections end with it
    ]


def _root_certificates() -> bytes | None:
    """Returns the certificates that SSL_CERT_FILE names, as over HTTP; None for the system's."""
    file = os.environ.get("SSL_CERT_FILE")
    return Path(file).read_bytes() if file else None
