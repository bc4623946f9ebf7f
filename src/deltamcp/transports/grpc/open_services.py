"""The services that need no credentials, health and reflection: limits how many of their calls are open at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.transports.grpc.admission import GONE, TakeCall
from deltamcp.transports.grpc.errors import grpc_error
from deltamcp.transports.grpc.messages import DETAILS_KEY, PROMPTS_SERVICE, SERVICE
from deltamcp.transports.http.asgi import client_address
from deltamcp.values import Failure

_SHARE_OF_CALLS = 1 / 8
"""The part of the calls of a server that may be to these services; `Health.Watch` lasts as long as its client wants."""
_MESSAGE_BYTES = 4096
"""What a request may have, which is the name of a service, of a file or of a symbol."""
_TOO_MANY = Failure(Fault.OVERLOADED, "Too many calls of this address to health and reflection are open.")
_TOO_LARGE = Failure(Fault.TOO_LARGE, f"A request to health or reflection may have at most {_MESSAGE_BYTES} bytes.")
_MALFORMED = Failure(Fault.PARSE, "The message is not the one that the method takes.")


async def read_message(requests: AsyncIterable[bytes], seconds: float) -> bytes | Failure:
    """Returns the message of a call that has one."""
    # gRPC's generator has its last message and is in a cycle: unclosed, it would leave that to the garbage collector.
    messages: Any = aiter(requests)
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(messages):
            async for message in messages:
                return bytes(message)
    except TimeoutError:
        return Failure(Fault.TOO_SLOW, f"The message of the request has not come within {seconds:g} s.")
    return Failure(Fault.INVALID_REQUEST, "The request has no message.")


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
