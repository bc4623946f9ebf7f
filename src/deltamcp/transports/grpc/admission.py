"""Admits calls over gRPC: requests, by what `Admission` asks for, and calls of services that need no credentials."""

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.transports.admission import Admission, Arrival
from deltamcp.transports.grpc.connection import CALL_KEY
from deltamcp.transports.grpc.requests import DETAILS_KEY, PROMPTS_SERVICE, SERVICE, read_message
from deltamcp.transports.grpc.responses import grpc_error
from deltamcp.transports.http.asgi import client_address
from deltamcp.transports.options import GrpcOptions
from deltamcp.values import Failure

TakeCall = Callable[[Any], str | None]
"""Takes a call by its context; returns the client's address, None if its connection has closed."""
GONE = Failure(Fault.INVALID_REQUEST, "The connection of this call has closed.")


class GrpcRequest(Arrival):
    """A request, whose headers are its metadata."""

    @property
    def takes_json(self) -> bool:
        """Whether the client reads results in `result_json`, and tools in `definition_json`."""
        return (b"mcplite-accept", b"result-json") in self.scope["headers"]

    @property
    def is_strict(self) -> bool:
        """Whether the client knows only the response types of the specification's own file."""
        return (b"mcplite-strict", b"1") in self.scope["headers"]


class GrpcAdmission:
    """Admits requests to one server."""

    def __init__(self, engine: Engine, options: GrpcOptions, take_call: TakeCall) -> None:
        proxies, request_ids = options.get("trusted_proxies", ()), options.get("request_ids", False)
        self._admission = Admission(engine, options.get("auth"), proxies, request_ids)
        self._take_call = take_call
        self.challenge: Callable[[Failure], str | None] = self._admission.challenge

    async def admit(self, context: Any) -> GrpcRequest | Failure:
        """Returns the request of a call, or why it is refused; sets the request id in the call's trailing metadata."""
        pairs = context.invocation_metadata() or ()
        headers = [(key.encode(), _bytes(value)) for key, value in pairs if key != CALL_KEY]
        by_name = dict(headers)
        peer = self._take_call(context)
        if peer is None:
            return GONE
        described = {"type": "grpc", "client": (peer, 0), "headers": headers}
        added, scope, (address, caller) = self._admission.begin(described, by_name)
        if added:
            context.set_trailing_metadata([(key.decode(), value.decode()) for key, value in added])
        await self._admission.turns.take(address)
        request = GrpcRequest(scope, by_name, address, caller)
        refused = await self._admission.check_rate(request) or await self._admission.identify(request)
        return request if refused is None else refused


def _bytes(value: str | bytes) -> bytes:
    return value.encode("latin-1", "replace") if isinstance(value, str) else value


_SHARE_OF_CALLS = 1 / 8
"""The part of the calls of a server that may be to these services; `Health.Watch` lasts as long as its client wants."""
_MESSAGE_BYTES = 4096
"""What a request may have, which is the name of a service, of a file or of a symbol."""
_TOO_MANY = Failure(Fault.OVERLOADED, "Too many calls of this address to health and reflection are open.")
_TOO_LARGE = Failure(Fault.TOO_LARGE, f"A request to health or reflection may have at most {_MESSAGE_BYTES} bytes.")
_MALFORMED = Failure(Fault.PARSE, "The message is not the one that the method takes.")


class OpenServices(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Passes the calls of other services than MCP-lite's to them, a limited number at once of each address."""

    def __init__(self, limits: Limits, take_call: TakeCall) -> None:
        self._take_call = take_call
        self._calls = Quota(max(1, int(limits.calls * _SHARE_OF_CALLS)), limits.account_share)
        self._seconds = limits.body_seconds

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.split("/")[1] in (SERVICE, PROMPTS_SERVICE):
            return handler
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._dialog(handler), None, handler.response_serializer)
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return make(self._single_request(handler), None, handler.response_serializer)

    def _single_request(self, handler: Any) -> Callable[[AsyncIterable[bytes], Any], Awaitable[Any]]:
        method = handler.unary_stream or handler.unary_unary

        async def serve(requests: AsyncIterable[bytes], context: Any) -> Any:
            async with self._counted(context):
                data = await read_message(requests, self._seconds)
                return await method(await _decode(data, handler, context), context)

        return serve

    def _dialog(self, handler: Any) -> Callable[[AsyncIterable[bytes], Any], AsyncIterator[Any]]:
        async def serve(requests: AsyncIterable[bytes], context: Any) -> AsyncIterator[Any]:
            async with self._counted(context):
                messages = (await _decode(data, handler, context) async for data in requests)
                async for response in handler.stream_stream(messages, context):
                    yield response

        return serve

    @contextlib.asynccontextmanager
    async def _counted(self, context: Any) -> AsyncIterator[None]:
        peer = self._take_call(context)
        if peer is None:
            await _abort(GONE, context)
        address = client_address({"client": (peer, 0)})
        if not self._calls.take(address):
            await _abort(_TOO_MANY, context)
        try:
            yield
        finally:
            self._calls.give_back(address)


async def _decode(data: bytes | Failure, handler: Any, context: Any) -> Any:
    if isinstance(data, bytes) and len(data) > _MESSAGE_BYTES:
        data = _TOO_LARGE
    if isinstance(data, Failure):
        await _abort(data, context)
    try:
        return handler.request_deserializer(data)
    except DecodeError:
        await _abort(_MALFORMED, context)


async def _abort(failure: Failure, context: Any) -> None:
    """Ends a call with the status of a failure: it raises."""
    error = grpc_error(failure)
    await context.abort(error.code, error.text, ((DETAILS_KEY, error.details),))
