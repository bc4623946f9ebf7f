"""MCP-lite over HTTP: its paths, what they take, its responses, and its event streams.

Events: `message` has a part of the result and its number; `heartbeat` says that the server is at work, and how far it
has come; `done` has the whole result; `error` an error of the protocol.

Every path takes JSON-RPC. Those of lists, and `await`, also take the parameters alone and then return the result alone.
Nothing here has a session.
"""

import asyncio
import enum
import functools
import logging
import math
import re
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.catalog.items.operation import MAX_WAIT_MS
from deltamcp.context import ProgressReport
from deltamcp.dialects.mcp_lite import McpLite, Stamp
from deltamcp.dialects.mcp_lite_bodies import FAILURE, PROMISE, LiteResponse
from deltamcp.errors import Fault, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.quota import TOO_MANY_CALLS, UNREAD_PARTS
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import HeaderList, Headers
from deltamcp.transports.http.exchange import BodyReader, Exchange, HttpAnswer
from deltamcp.transports.http.reply import CallsInFlight, HttpReply, WatchedChannel, respond, serve
from deltamcp.transports.options import McpLiteSettings
from deltamcp.values import (
    JSON,
    Answer,
    EngineAsk,
    Failure,
    Malformed,
    Message,
    Notification,
    Outcome,
    Page,
    RedeemPromise,
    Request,
    RequestId,
    Response,
    Terms,
)
from deltamcp.wire import frames, jsonrpc
from deltamcp.wire.canonical import format_time

logger: logging.Logger = logging.getLogger("deltamcp")


def make_stamp(started: float) -> Stamp:
    """Returns the stamp of a response that is made now; `started` is by the monotonic clock."""
    return Stamp(time.time(), int((time.monotonic() - started) * 1000))


def write_response(
    lite: McpLite, request: Request, outcome: Outcome, started: float
) -> tuple[bytes, LiteResponse | Failure | None]:
    """Returns the response with an outcome, and what it says; None for a list, which is written once for all.

    If JSON cannot express the outcome, the response is a failure.
    """
    if isinstance(outcome, Answer) and isinstance(outcome.value, Page):
        return lite.write(request, outcome), None
    return write_stamped_response(lite, request, outcome, started)


def write_stamped_response(
    lite: McpLite, request: Request, outcome: Outcome, started: float
) -> tuple[bytes, LiteResponse | Failure]:
    """Returns the response with an outcome, and what it says; also that of a list has the time."""
    response = lite.respond(request, outcome, make_stamp(started))
    try:
        return lite.encode(request.id, response), response
    except ValueError as error:
        logger.error("a result could not be written as JSON: %s", error)
        failure = lite.respond(request, Failure(Fault.INTERNAL, "The result could not be written as JSON."))
        return lite.encode(request.id, failure), failure


MAX_BATCH = 16
"""The messages of a batch, each of which may be a call."""


def why_refused(message: Malformed | Response) -> tuple[Failure, RequestId | None]:
    """Returns why a message gets an error."""
    if isinstance(message, Malformed):
        return Failure(message.fault, message.reason), message.id
    return Failure(Fault.INVALID_REQUEST, "MCP-lite asks clients nothing, so that they answer nothing."), None


_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def wait_to_end(understood: tuple[Terms, EngineAsk] | Failure, request: Request) -> tuple[Terms, EngineAsk] | Failure:
    """Returns a request that waits for a promise until its call has ended, unless the arguments say a time."""
    if isinstance(understood, Failure) or type(understood[1]) is not RedeemPromise:
        return understood
    return (
        understood
        if "wait_ms" in request.params["arguments"]
        else (understood[0], replace(understood[1], wait_seconds=None))
    )


def write_last_event(lite: McpLite, request: Request, started: float, outcome: Outcome) -> HttpAnswer:
    """Writes an outcome as the data of the event that ends a stream."""
    body, response = write_stamped_response(lite, request, outcome, started)
    if not isinstance(response, Failure):
        return HttpAnswer(200, _with_meta(body, response.meta))
    meta: dict[str, Any] = {"response_type": FAILURE}
    lite.add_stamp(meta, make_stamp(started))
    return HttpAnswer(200, _with_meta(body, meta), failure=response)


def _with_meta(body: bytes, meta: dict[str, Any]) -> bytes:
    """Returns a JSON-RPC response that has `_meta` beside its result or error too."""
    return b'%b,"_meta":%b}' % (body[:-1], jsonrpc.encode(meta))


class LiteStream(WatchedChannel):
    """One event stream, and the `Channel` of the call that it answers.

    Whoever sends an event waits until the client has read what was sent before, so that a slow reader slows down the
    call and does not fill the memory. Close it in any case.
    """

    takes_every_progress = True
    unasked = "MCP-lite's clients are asked by the result of a call."

    def __init__(self, exchange: Exchange, limits: Limits) -> None:
        super().__init__(exchange, limits)
        self._asgi_send = exchange.send
        self._sending = asyncio.Lock()
        self._parts = 0
        self._is_open = False
        self._sent_at = 0.0
        self._end_timer: asyncio.TimerHandle | None = None
        self._heart: asyncio.Task[None] | None = None

    # The stream

    async def open(self) -> None:
        """Sends the headers and a first heartbeat, so that proxies pass on the headers at once."""
        await self._asgi_send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._is_open = True
        await self._send("heartbeat", _heartbeat())

    async def finish(self, response: HttpAnswer) -> None:
        """Sends the event that ends the stream; what comes later is dropped."""
        kind = "done"
        if response.failure is not None:
            kind = "error"
            if self.exchange.metrics is not None:
                self.exchange.metrics.count_refusal(response.failure)
        await self._end(frames.encode_named_event(kind, response.body))

    async def abandon(self) -> None:
        await self._end(b"")

    async def _end(self, event: bytes) -> None:
        async with self._sending:
            if self._is_open:
                self._is_open = False
                await asgi.send_event(self._asgi_send, event)
                await asgi.end_events(self._asgi_send)

    async def close(self) -> None:
        """Ends the stream, if nothing has ended it."""
        if self._end_timer is not None:
            self._end_timer.cancel()
        await self._end(b"")

    # The call

    def on_wait(self) -> None:
        super().on_wait()
        self._heart = asyncio.get_running_loop().create_task(self._send_heartbeats())

    def on_end(self) -> None:
        super().on_end()
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    def end_after(self, seconds: float) -> None:
        """Cancels the call if it has not ended after so many seconds."""
        if self._end_timer is None:
            self._end_timer = asyncio.get_running_loop().call_later(seconds, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send_heartbeats(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            silence = clock() - self._sent_at
            if silence >= self._limits.ping_seconds:
                await self._send("heartbeat", _heartbeat())
                silence = 0.0
            await asyncio.sleep(self._limits.ping_seconds - silence)

    # The channel

    async def report(self, progress: ProgressReport) -> None:
        await self._send("heartbeat", _heartbeat(progress.fields()))

    async def send_part(self, part: JSON) -> None:
        self._parts += 1
        data = jsonrpc.encode_finite({"partial": part, "seq": self._parts})
        if len(data) <= asgi.PIECE_BYTES:
            await self._send("message", data)
            return
        quota, account = self.exchange.quotas.responses, self.exchange.caller.account
        size = min(len(data), quota.share)
        if not await quota.take_in_turn(account, size, self._limits.send_seconds):
            raise ToolError(UNREAD_PARTS)
        # A call that is cancelled here must not leave half of an event in the stream.
        await asyncio.shield(self._send_large(data, size))

    async def _send_large(self, data: bytes, size: int) -> None:
        try:
            await self._send("message", data)
        finally:
            self.exchange.quotas.responses.give_back(self.exchange.caller.account, size)

    async def _send(self, kind: str, data: bytes) -> None:
        async with self._sending:
            if self._is_open:
                await asgi.send_event(self._asgi_send, frames.encode_named_event(kind, data))
                self._sent_at = asyncio.get_running_loop().time()


def _heartbeat(fields: Mapping[str, JSON] | None = None) -> bytes:
    return jsonrpc.encode({"ts": format_time(time.time()), **(fields or {})})


_MAX_CACHED_BYTES = 256
_JSON_RANGES = (b"application/json", b"application/*", b"*/*")
_EVENT_RANGES = (b"text/event-stream", b"text/*", b"*/*")
_QUALITY = re.compile(rb"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
_CHARSET = re.compile(rb'charset\s*=\s*"?([^\s";]+)')
_WAIT = re.compile(rb'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)


class ReplyForm(enum.Enum):
    """What a client prefers as the response."""

    JSON = "json"
    EVENTS = "events"


def check_media_type(headers: Headers) -> Failure | None:
    """Returns a failure if a body is no JSON in UTF-8; a request without a body needs no media type."""
    content_type = headers.get(b"content-type")
    if content_type == b"application/json" and b"content-encoding" not in headers:
        return None
    if content_type is None:
        length = headers.get(b"content-length", b"0" if b"transfer-encoding" not in headers else b"")
        is_json = length == b"0"
    else:
        is_json = _is_json(content_type[:_MAX_CACHED_BYTES])
    if is_json and b"content-encoding" not in headers:
        return None
    return Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json in UTF-8, not compressed.")


@functools.lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    type_, _, parameters = content_type.lower().partition(b";")
    charset = _CHARSET.search(parameters)
    return type_.strip() == b"application/json" and (charset is None or charset[1] in (b"utf-8", b"utf8", b"us-ascii"))


def preferred_form(accept: bytes) -> ReplyForm | None:
    """Returns what an `Accept` header prefers, JSON if it prefers neither; None if it has no type of MCP-lite."""
    return _preferred_form(accept) if len(accept) <= _MAX_CACHED_BYTES else _preferred_form.__wrapped__(accept)


def accepts_json(accept: bytes) -> bool:
    """Whether an `Accept` header has JSON, though perhaps not as what it prefers."""
    return _quality(_read_ranges(accept), _JSON_RANGES) > 0


@functools.lru_cache(maxsize=256)
def _preferred_form(accept: bytes) -> ReplyForm | None:
    ranges = _read_ranges(accept)
    json, events = _quality(ranges, _JSON_RANGES), _quality(ranges, _EVENT_RANGES)
    if not json and not events:
        return None
    return ReplyForm.EVENTS if events > json else ReplyForm.JSON


def _read_ranges(accept: bytes) -> dict[bytes, float]:
    return dict(map(_read_range, accept.lower().split(b",")))


def _read_range(part: bytes) -> tuple[bytes, float]:
    type_, *parameters = (piece.strip() for piece in part.split(b";"))
    given = next((piece[2:] for piece in parameters if piece.startswith(b"q=")), b"1")
    return type_, float(given) if _QUALITY.fullmatch(given) else 0.0


def _quality(ranges: dict[bytes, float], names: tuple[bytes, ...]) -> float:
    """Returns the quality of the most specific range, RFC 9110, 12.5.1."""
    return next((ranges[name] for name in names if name in ranges), 0.0)


def preferred_wait(headers: Headers) -> int | None:
    """Returns the seconds of `Prefer: wait=10` (RFC 7240), up to what the server waits; None without one."""
    header = headers.get(b"prefer")
    found = None if header is None else _WAIT.search(header)
    return None if found is None else min(int(found[1]), MAX_WAIT_MS // 1000)


_ALLOW = (b"allow", b"POST")
_ONLY_JSON = Failure(Fault.NOT_ACCEPTABLE, "Accept application/json; only a single request is answered by events.")
_DRAIN_SHARE = 0.9
"""The part of the time to drain after which an event stream ends: the rest is for its last event."""


class LitePath(enum.Enum):
    """What a path is for."""

    CALLS = "calls"
    TOOLS = "tools"
    """Returns an object with the tools."""
    TOOL_ARRAY = "tool array"
    PROMPTS = "prompts"
    AWAIT = "await"


_PATHS: dict[str, LitePath] = {
    "listtools": LitePath.TOOL_ARRAY,
    "tools": LitePath.TOOLS,
    "tools/list": LitePath.TOOLS,
    "calltools": LitePath.CALLS,
    "calltool": LitePath.CALLS,
    "rpc": LitePath.CALLS,
    "tools/call": LitePath.CALLS,
    # The heading of MCP-lite 0.042, 4.2.2, read literally.
    "calltoolsEndpoint": LitePath.CALLS,
}


class McpLiteEndpoint:
    """Serves the requests that `HttpApp` has admitted."""

    def __init__(self, engine: Engine, calls: CallsInFlight, bodies: BodyReader, settings: McpLiteSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._lite = engine.dialects.mcp_lite(settings.dialect)
        self._calls = calls
        self._bodies = bodies
        self._streams: set[LiteStream] = set()
        names = dict(_PATHS)
        if settings.prompts:
            names["prompts"] = LitePath.PROMPTS
        if settings.await_tool:
            names["await"] = LitePath.AWAIT
        self._prefix = f"/{settings.prefix.strip('/')}"
        places = (self._prefix.rstrip("/"), "") if settings.root_aliases else (self._prefix.rstrip("/"),)
        self.paths: dict[str, LitePath] = {f"{place}/{name}": use for place in places for name, use in names.items()}
        """The paths, relative to where the application is mounted, and what each is for."""
        self._no_path = Failure(
            Fault.WRONG_PATH,
            f"There is no such path; send JSON-RPC to {self._prefix}/rpc, or {{}} to {self._prefix}/listtools.",
        )

    def owns(self, path: str) -> bool:
        """Whether a path is one of MCP-lite, or would be if there were such a path."""
        return path in self.paths or path == self._prefix or path.startswith(f"{self._prefix}/")

    def drain(self) -> None:
        """Ends the calls of open event streams that do not end by themselves in time."""
        for stream in self._streams:
            stream.end_after(self._engine.limits.drain_seconds * _DRAIN_SHARE)

    async def serve(self, exchange: Exchange) -> None:
        """Sends the response to a request at a path that this endpoint owns."""
        use = self.paths.get(asgi.path_within(exchange.scope))
        refused = self._no_path if use is None else _check_head(exchange)
        if refused is not None:
            await exchange.refuse(self.refusal(refused))
        elif use is None or use is LitePath.CALLS:
            await self._answer(await self._bodies.read(exchange, exchange.codec), exchange)
        else:
            parsed = await self._bodies.read_object(exchange)
            if not isinstance(parsed, dict):
                await self._answer(parsed, exchange)
            elif accepts_json(_accept(exchange)):
                await self._answer_object(parsed, use, exchange)
            else:
                await exchange.refuse(self.refusal(_ONLY_JSON))

    def refusal(self, failure: Failure, id_: RequestId | None = None) -> HttpAnswer:
        """Returns what refuses a request that no tool has seen."""
        headers = (_ALLOW,) if failure.fault is Fault.WRONG_HTTP_METHOD else ()
        return HttpAnswer(self._lite.http_status(failure), self._lite.refuse(failure, id_), headers, failure)

    # JSON-RPC

    async def _answer(self, message: Message | list[Message] | Failure, exchange: Exchange) -> None:
        match message:
            case Request():
                await self._answer_request(message, exchange)
            case list() if accepts_json(_accept(exchange)):
                async with exchange.place_of_batch(self._engine.limits.body_seconds) as is_free:
                    if is_free:
                        await self._answer_batch(message, exchange)
                    else:
                        await exchange.refuse(self.refusal(TOO_MANY_CALLS))
            case list():
                await exchange.refuse(self.refusal(_ONLY_JSON))
            case Notification():
                await asgi.respond_accepted(exchange.send)
            case Failure():
                await exchange.refuse(self.refusal(message))
            case _:
                await exchange.refuse(self.refusal(*why_refused(message)))

    async def _answer_request(self, request: Request, exchange: Exchange) -> None:
        started = time.monotonic()
        understood = self._lite.read(request, exchange.caller)
        if _wants_events(exchange, understood):
            await self._answer_by_events(request, understood, exchange, started)
            return
        asked, applied = _wait_as_preferred(understood, exchange.headers, request)
        reply, performing = self._perform(request, asked, exchange)
        await serve(reply, performing, functools.partial(self._write, request, started, applied))

    async def _answer_by_events(
        self, request: Request, understood: tuple[Terms, EngineAsk] | Failure, exchange: Exchange, started: float
    ) -> None:
        stream = LiteStream(exchange, self._engine.limits)
        self._streams.add(stream)
        try:
            await stream.open()
            performing = self._calls.perform(wait_to_end(understood, request), stream, request.id)
            await serve(stream, performing, functools.partial(write_last_event, self._lite, request, started))
        finally:
            self._streams.discard(stream)
            await stream.close()

    def _perform(
        self, request: Request, asked: tuple[Terms, EngineAsk] | Failure, exchange: Exchange
    ) -> tuple[HttpReply, Awaitable[Outcome | None]]:
        reply = HttpReply(exchange, self._engine.limits)
        return reply, self._calls.perform(asked, reply, request.id)

    def _write(self, request: Request, started: float, headers: HeaderList, outcome: Outcome) -> HttpAnswer:
        body, response = write_response(self._lite, request, outcome, started)
        if isinstance(response, Failure):
            return HttpAnswer(self._lite.http_status(response), body, headers, response)
        return self._with_status(response, body, headers)

    def _with_status(self, response: LiteResponse | None, body: bytes, headers: HeaderList) -> HttpAnswer:
        if response is None or response.response_type != PROMISE:
            return HttpAnswer(200, body, headers)
        seconds = math.ceil(response.meta["retry_after_ms"] / 1000)
        headers = (*headers, (b"retry-after", b"%d" % seconds))  # when to ask for the promise again
        return HttpAnswer(self._settings.promise_http_status, body, headers)

    async def _answer_batch(self, messages: list[Message], exchange: Exchange) -> None:
        """Performs the requests of a batch one after the other, and sends their responses as one body."""
        if not self._settings.batches or len(messages) > MAX_BATCH:
            most = f"A batch may have at most {MAX_BATCH} messages."
            reason = most if self._settings.batches else "This server takes no batches."
            await exchange.refuse(self.refusal(Failure(Fault.INVALID_REQUEST, reason)))
            return
        bodies: list[bytes] = []
        for message in messages:
            await self._engine.computations.take_turn(exchange.caller.account)
            if isinstance(message, Request):
                write = functools.partial(self._write, message, time.monotonic(), ())
                understood = self._lite.read(message, exchange.caller)
                asked, _ = _wait_as_preferred(understood, exchange.headers, message)
                _, performing = self._perform(message, asked, exchange)
                response = await respond(exchange, performing, write)
                if response is None:
                    return
                bodies.append(response.body)
            elif not isinstance(message, Notification):
                bodies.append(self._lite.refuse(*why_refused(message)))
        await exchange.answer_batch(bodies)

    # Parameters alone

    async def _answer_object(self, params: dict[str, JSON], use: LitePath, exchange: Exchange) -> None:
        """Performs the request that a path stands for, and sends its result alone."""
        started = time.monotonic()
        request = _named_request(use, params)
        shape = params.get("shape", "array" if use is LitePath.TOOL_ARRAY else "object")
        is_array = shape == "array" and use is not LitePath.AWAIT
        understood = self._lite.read(request, exchange.caller)
        if shape not in ("array", "object"):
            understood = Failure(Fault.INVALID_PARAMS, 'shape must be "array" or "object".')
        elif is_array and not isinstance(understood, Failure):
            understood = understood[0], replace(understood[1], whole=True)  # an array has no place for a cursor
        asked, applied = _wait_as_preferred(understood, exchange.headers, request)
        reply, performing = self._perform(request, asked, exchange)
        await serve(reply, performing, functools.partial(self._write_object, request, started, applied, is_array))

    def _write_object(
        self, request: Request, started: float, headers: HeaderList, is_array: bool, outcome: Outcome
    ) -> HttpAnswer:
        """Writes a result alone; an error has a status that says so, because 200 is for errors with a request's id."""
        if isinstance(outcome, Answer) and isinstance(outcome.value, Page):
            return HttpAnswer(200, self._lite.write_list(outcome.value, is_array), headers)
        response = self._lite.respond(request, outcome, make_stamp(started))
        if isinstance(response, Failure):
            status = self._lite.http_status(response)
            return HttpAnswer(400 if status == 200 else status, self._lite.refuse(response), (), response)
        return self._with_status(response, jsonrpc.encode({**response.result, "_meta": response.meta}), headers)


def _check_head(exchange: Exchange) -> Failure | None:
    method, headers = exchange.method, exchange.headers
    if method != "POST":
        return Failure(Fault.WRONG_HTTP_METHOD, f"MCP-lite does not take {method}; send POST.")
    refused = check_media_type(headers)
    if refused is None and preferred_form(_accept(exchange)) is None:
        refused = Failure(Fault.NOT_ACCEPTABLE, "Accept application/json or text/event-stream.")
    return refused


def _accept(exchange: Exchange) -> bytes:
    return exchange.headers.get(b"accept", b"*/*")


def _wants_events(exchange: Exchange, understood: tuple[Terms, EngineAsk] | Failure) -> bool:
    """Whether the client prefers an event stream, by its headers or by `_meta.stream`."""
    if preferred_form(_accept(exchange)) is ReplyForm.EVENTS:
        return True
    return not isinstance(understood, Failure) and understood[0].meta.get("stream") is True


def _named_request(use: LitePath, params: dict[str, JSON]) -> Request:
    """Returns the JSON-RPC request that parameters alone stand for at a path; nobody sees its id."""
    if use is LitePath.AWAIT:
        return Request(0, "tools/call", {"name": "await", "arguments": params})
    return Request(0, "prompts/list" if use is LitePath.PROMPTS else "tools/list", params)


def _wait_as_preferred(
    understood: tuple[Terms, EngineAsk] | Failure, headers: Headers, request: Request
) -> tuple[tuple[Terms, EngineAsk] | Failure, HeaderList]:
    """Returns a request with the time of the `Prefer` header, unless the arguments say one, and what tells so."""
    if isinstance(understood, Failure) or type(understood[1]) is not RedeemPromise:
        return understood, ()
    seconds = preferred_wait(headers)
    if seconds is None or "wait_ms" in request.params["arguments"]:
        return understood, ()
    terms, ask = understood
    return (terms, replace(ask, wait_seconds=float(seconds))), ((b"preference-applied", b"wait=%d" % seconds),)
