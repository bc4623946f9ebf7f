"""The services of MCP-lite over gRPC: a request becomes the JSON-RPC request that it stands for."""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any

import grpc
import msgspec

from deltamcp.calls.engine import Engine
from deltamcp.calls.failures import log_failure
from deltamcp.context import Channel, ProgressReport
from deltamcp.dialects.mcp_lite import LiteOptions, Stamp
from deltamcp.dialects.mcp_lite_bodies import LiteResponse
from deltamcp.errors import Fault, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.quota import SHUTTING_DOWN, TOO_MANY_CALLS, UNREAD, UNREAD_PARTS, Quota
from deltamcp.stores.store import StoreError
from deltamcp.transports.grpc.admission import GrpcAdmission, GrpcRequest, TakeCall
from deltamcp.transports.grpc.requests import DETAILS_KEY, PROMPTS_SERVICE, SERVICE, GrpcRequests, ReceivedMessage
from deltamcp.transports.grpc.responses import (
    COUNTED_BYTES,
    GrpcEncoder,
    ResponseForm,
    encode_prompts,
    encode_tools,
    encode_whole_tools,
    grpc_error,
    promise_update,
)
from deltamcp.transports.http.mcp_lite import make_stamp
from deltamcp.transports.options import GrpcOptions, read_settings
from deltamcp.values import (
    JSON,
    Answer,
    CallTool,
    EngineAsk,
    Failure,
    ListItems,
    Outcome,
    Page,
    Promise,
    RedeemPromise,
    Request,
    Terms,
)

logger: logging.Logger = logging.getLogger("deltamcp.grpc")


class GrpcReply(Channel):
    """The `Channel` of a call with one response. gRPC itself cancels the call's task when the client goes away."""

    unasked = "MCP-lite has no requests to clients."

    def __init__(self, request: GrpcRequest) -> None:
        self.fairness_key: str = request.caller.account
        self.headers: dict[bytes, bytes] = request.headers


class GrpcStreamReply(GrpcReply):
    """The `Channel` of a call that sends what it makes at once.

    A write returns when gRPC has room for the next one, so that a slow reader makes the tool wait.
    """

    takes_every_progress = True

    def __init__(
        self, request: GrpcRequest, context: Any, form: ResponseForm, encoder: GrpcEncoder, send_seconds: float
    ) -> None:
        """Large parts count for the caller until they are sent; each waits `send_seconds` for its turn."""
        super().__init__(request)
        self._account = request.caller.account
        self._encoder = encoder
        self._send_seconds = send_seconds
        self._context = context
        self._form = form
        self._lock = asyncio.Lock()  # gRPC takes one write at a time, and a tool may report from several tasks
        self._task = asyncio.current_task()

    async def report(self, progress: ProgressReport) -> None:
        await self.send({"progress": progress.fields()})

    async def send_part(self, part: JSON) -> None:
        await self.send({"partial": part})

    async def send(self, result: dict[str, JSON]) -> None:
        """Sends a response without `meta`; cancels the call if the client is gone."""
        account, unsent = self._account, self._encoder.unsent
        encoded = await self._encoder.write_part(account, result, self._form, self._send_seconds)
        if encoded is not None and len(encoded) <= COUNTED_BYTES:
            await self._write(encoded)
            return
        size = 0 if encoded is None else min(len(encoded), unsent.share)
        if encoded is None or not await unsent.take_in_turn(account, size, self._send_seconds):
            raise ToolError(UNREAD_PARTS)
        try:
            await self._write(encoded)
        finally:
            unsent.give_back(account, size)

    async def _write(self, encoded: bytes) -> None:
        async with self._lock:
            try:
                await self._context.write(encoded)
            except Exception as error:  # gRPC has several, and cancels the task itself a little later
                logger.debug("a response cannot be sent: %s", error)
                assert self._task is not None, "calls are served in tasks"
                self._task.cancel()
                await asyncio.sleep(0)  # where the cancellation arrives, unless another task of the tool is here


class RunningCall:
    """A request that is served."""

    __slots__ = ("follows_promise", "is_stopped", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = asyncio.current_task()
        self.follows_promise: bool = False
        """Whether the request only tells of a call that goes on without it."""
        self.is_stopped: bool = False

    def stop(self) -> None:
        """Ends the request because the server shuts down."""
        if not self.is_stopped and self.task is not None:
            self.is_stopped = True
            self.task.cancel()

    def undo_cancel(self) -> None:
        assert self.task is not None, "requests are served in tasks"
        self.task.uncancel()


class RunningCalls:
    """All of them."""

    def __init__(self) -> None:
        self._calls: set[RunningCall] = set()
        self.are_ending: bool = False
        """Whether the server shuts down."""

    def begin(self) -> RunningCall:
        """Returns a call that the current task serves from now on."""
        call = RunningCall()
        self._calls.add(call)
        return call

    def end(self, call: RunningCall) -> None:
        self._calls.discard(call)

    async def drain(self, seconds: float) -> None:
        """Ends calls that follow promises now, and others once they had so many seconds."""
        self.are_ending = True
        for call in tuple(self._calls):
            if call.follows_promise:
                call.stop()
        tasks = [call.task for call in self._calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for call in tuple(self._calls):
            call.stop()


_REPLY_SECONDS = 0.25
"""How long before a client's deadline the server replies with a promise."""
_CACHE_KEY = "grpc"


_Requests = AsyncIterable[bytes]
_Handler = Callable[[ReceivedMessage, GrpcRequest, Any, RunningCall], Awaitable[bytes | Failure]]


def max_calls(limits: Limits) -> int:
    """Returns how many calls may be in progress over gRPC, half as many as over HTTP.

    One takes 36 kB: with 1,250 of an address, and 32 MB of parts that they had yielded, memory grew by 81 MB.
    """
    return max(1, limits.calls // 2)


class GrpcService:
    """Serves the methods of both services; `methods` gives them to a gRPC server."""

    def __init__(self, engine: Engine, options: GrpcOptions, take_call: TakeCall) -> None:
        limits = engine.limits
        settings = read_settings(options.get("mcp_lite", {}))
        lite_options = LiteOptions() if settings is None else settings.dialect
        self._engine = engine
        self._dialect = engine.dialects.mcp_lite(lite_options)
        self._has_prompts = lite_options.prompts
        self._admission = GrpcAdmission(engine, options, take_call)
        self._metrics = options.get("metrics")
        self._calls = Quota(max_calls(limits), limits.account_share)
        self._encoder = GrpcEncoder(limits)
        self._numbers = itertools.count(1)
        self._running = RunningCalls()
        self._requests = GrpcRequests(limits)

    @property
    def names(self) -> list[str]:
        """The full names of the services."""
        return [SERVICE, PROMPTS_SERVICE] if self._has_prompts else [SERVICE]

    def methods(self) -> dict[str, dict[str, "grpc.RpcMethodHandler[Any, Any]"]]:
        """Returns the methods of each service, which take and return serialized messages."""
        # As methods that take streams, which are the same on the wire: gRPC would wait without end for the message of
        # any other, before anything here knows of the call.
        methods = {
            "GetTools": grpc.stream_unary_rpc_method_handler(self.get_tools),
            "CallTool": grpc.stream_unary_rpc_method_handler(self.call_tool),
            "CallToolStream": grpc.stream_stream_rpc_method_handler(self.call_tool_stream),
        }
        found = {SERVICE: methods}
        if self._has_prompts:
            found[PROMPTS_SERVICE] = {"GetPrompts": grpc.stream_unary_rpc_method_handler(self.get_prompts)}
        return found

    async def drain(self, seconds: float) -> None:
        """Ends streams that follow promises now, and other requests once they had so many seconds."""
        await self._running.drain(seconds)

    # Methods: they take and return serialized messages

    async def get_tools(self, requests: _Requests, context: Any) -> bytes:
        return await self._serve(requests, context, self._get_tools)

    async def get_prompts(self, requests: _Requests, context: Any) -> bytes:
        return await self._serve(requests, context, self._get_prompts)

    async def call_tool(self, requests: _Requests, context: Any) -> bytes:
        return await self._serve(requests, context, self._call_tool)

    async def call_tool_stream(self, requests: _Requests, context: Any) -> None:
        last = await self._serve(requests, context, self._call_tool_stream)
        try:
            await context.write(last)
        except Exception as error:  # gRPC would log it with a traceback
            logger.debug("the last response cannot be sent: %s", error)

    async def _serve(self, requests: _Requests, context: Any, handler: _Handler) -> bytes:
        """Admits a request and returns the handler's message; or ends the call with the status of a failure."""
        running = self._running.begin()
        found: bytes | Failure
        try:
            found = await self._handle(requests, context, handler, running)
        except asyncio.CancelledError:
            if not running.is_stopped:
                raise
            running.undo_cancel()
            found = SHUTTING_DOWN
        except Exception as error:
            found = Failure(Fault.INTERNAL, log_failure("The request", error))
        finally:
            self._running.end(running)
        if isinstance(found, Failure):
            await self._abort(found, context)
        return found  # type: ignore[return-value]  # `_abort` raises

    async def _handle(
        self, requests: _Requests, context: Any, handler: _Handler, running: RunningCall
    ) -> bytes | Failure:
        request = await self._admission.admit(context)
        if isinstance(request, Failure):
            return request
        account = request.caller.account
        if not self._calls.take(account):
            return TOO_MANY_CALLS
        # Until the response is sent too: a client that does not read it would hold a place of the server's.
        context.add_done_callback(lambda _: self._calls.give_back(account))
        message = ReceivedMessage(account)
        found: bytes | Failure
        try:
            refused = await self._requests.receive(requests, message)
            found = await handler(message, request, context, running) if refused is None else refused
        finally:
            message.release()
        if isinstance(found, bytes) and len(found) > COUNTED_BYTES:
            return self._count(found, account, context)
        return found

    def _count(self, message: bytes, account: str, context: Any) -> bytes | Failure:
        """Counts a large response for its account until it is sent; returns a failure if too many are unread."""
        unsent = self._encoder.unsent
        size = min(len(message), unsent.share)  # so that the largest response can be sent, if alone
        if not unsent.take(account, size):
            return UNREAD
        context.add_done_callback(lambda _: unsent.give_back(account, size))
        return message

    async def _abort(self, failure: Failure, context: Any) -> None:
        if self._metrics is not None:
            self._metrics.count_refusal(failure)
        error = grpc_error(failure)
        metadata = [*(context.trailing_metadata() or ()), (DETAILS_KEY, error.details)]
        challenge = self._admission.challenge(failure)
        if challenge is not None:
            metadata.append(("www-authenticate", challenge))
        await context.abort(error.code, error.text, tuple(metadata))

    # Lists

    async def _get_tools(
        self, message: ReceivedMessage, request: GrpcRequest, context: Any, running: RunningCall
    ) -> bytes | Failure:
        return await self._list("tools/list", encode_whole_tools if request.takes_json else encode_tools, request)

    async def _get_prompts(
        self, message: ReceivedMessage, request: GrpcRequest, context: Any, running: RunningCall
    ) -> bytes | Failure:
        return await self._list("prompts/list", encode_prompts, request)

    async def _list(
        self, method: str, encode: Callable[[list[dict[str, JSON]]], bytes], request: GrpcRequest
    ) -> bytes | Failure:
        asked = self._read(Request(next(self._numbers), method, {}), request)
        if isinstance(asked, Failure):
            return asked
        rpc, terms, ask = asked
        assert isinstance(ask, ListItems), "the method is a list's"
        ask = msgspec.structs.replace(ask, whole=True)
        outcome = await self._engine.perform(ask, terms, GrpcReply(request), rpc.id)
        cached = outcome.value.encoded if isinstance(outcome, Answer) and isinstance(outcome.value, Page) else {}
        key = f"{_CACHE_KEY} {encode.__name__}"
        if key not in cached:
            response = self._dialect.respond(rpc, outcome)
            if isinstance(response, Failure):
                return response
            cached[key] = encode(response.result[ask.kind.value])
        return cached[key]

    # Calls

    def _call_tool(
        self, message: ReceivedMessage, request: GrpcRequest, context: Any, running: RunningCall
    ) -> Awaitable[bytes | Failure]:
        return self._perform_call(message, request, context, running, GrpcReply(request))

    def _call_tool_stream(
        self, message: ReceivedMessage, request: GrpcRequest, context: Any, running: RunningCall
    ) -> Awaitable[bytes | Failure]:
        reply = GrpcStreamReply(request, context, self._form(request), self._encoder, self._engine.limits.send_seconds)
        return self._perform_call(message, request, context, running, reply)

    async def _perform_call(
        self, message: ReceivedMessage, request: GrpcRequest, context: Any, running: RunningCall, reply: GrpcReply
    ) -> bytes | Failure:
        started = time.monotonic()
        asked = await self._read_call(message, request)
        if isinstance(asked, Failure):
            return asked
        rpc, terms, ask = asked
        outcome = await self._engine.perform(_within(ask, context.time_remaining()), terms, reply, rpc.id)
        if isinstance(outcome, Promise) and isinstance(reply, GrpcStreamReply):
            outcome = await self._follow(outcome, rpc, terms, reply, context, running)
        return await self._finish(rpc, outcome, started, request)

    async def _follow(
        self, promise: Promise, rpc: Request, terms: Terms, reply: GrpcStreamReply, context: Any, running: RunningCall
    ) -> Outcome:
        """Tells the client of every change of a promise; returns its outcome, or the promise if the time is up."""
        running.follows_promise = True
        promises = self._engine.promise_calls
        assert promises is not None, "one of its promises is followed"
        caller = terms.caller
        remaining = context.time_remaining()
        seconds = caller.principal.expires_at - time.time()
        if remaining is not None:
            seconds = min(seconds, remaining - _REPLY_SECONDS)
        try:
            async with (
                asyncio.timeout(None if seconds == math.inf else seconds),
                contextlib.aclosing(promises.follow(promise.token, caller)) as changes,
            ):
                async for promise in changes:
                    if self._running.are_ending or promise.status.is_final or promise.requests:
                        return promise
                    response = self._dialect.respond(rpc, promise, Stamp(time.time(), 0))
                    if isinstance(response, LiteResponse):
                        await reply.send(promise_update(response))
        except TimeoutError:
            return promise
        except asyncio.CancelledError:
            if not running.is_stopped:
                raise
            running.undo_cancel()
            return promise
        except StoreError as error:
            logger.debug("a promise cannot be followed: %s", error)
        return await self._engine.perform(RedeemPromise(promise.token), terms, reply, rpc.id)

    def _form(self, request: GrpcRequest) -> ResponseForm:
        return ResponseForm(request.takes_json, request.is_strict, self._engine.limits.message_bytes)

    async def _read_call(
        self, message: ReceivedMessage, request: GrpcRequest
    ) -> tuple[Request, Terms, EngineAsk] | Failure:
        operations = self._engine.catalog.view(request.caller.principal).operations
        params = await self._requests.read_call(message, operations)
        if isinstance(params, Failure):
            return params
        return self._read(Request(next(self._numbers), "tools/call", params), request)

    def _read(self, rpc: Request, request: GrpcRequest) -> tuple[Request, Terms, EngineAsk] | Failure:
        understood = self._dialect.read(rpc, request.caller)
        if isinstance(understood, Failure):
            return understood
        terms, ask = understood
        return rpc, terms, ask

    async def _finish(self, rpc: Request, outcome: Outcome, started: float, request: GrpcRequest) -> bytes | Failure:
        stamp = make_stamp(started)
        response = self._dialect.respond(rpc, outcome, stamp)
        if isinstance(response, Failure):
            return response
        account, form = request.caller.account, self._form(request)
        try:
            return await self._encoder.write_response(account, response, stamp, form) or UNREAD
        except ValueError as error:
            return Failure(Fault.INTERNAL, log_failure("The response", error))


def _within(ask: EngineAsk, remaining: float | None) -> EngineAsk:
    """Returns the ask with waits that end before the client's deadline."""
    if remaining is None:
        return ask
    seconds = max(0.0, remaining - _REPLY_SECONDS)
    if isinstance(ask, CallTool) and ask.promise is not None:
        return msgspec.structs.replace(ask, promise=msgspec.structs.replace(ask.promise, reply_seconds=seconds))
    if isinstance(ask, RedeemPromise):
        wait = seconds if ask.wait_seconds is None else min(ask.wait_seconds, seconds)
        return msgspec.structs.replace(ask, wait_seconds=wait)
    return ask
