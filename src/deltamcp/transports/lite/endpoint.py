"""MCP-lite over HTTP: its paths, what they take, and the status of each response.

Every path takes JSON-RPC. Those of lists, and `await`, also take the parameters alone and then return the result alone.
Nothing here has a session.
"""

import enum
import functools
import math
import re
import time
from collections.abc import Awaitable

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.catalog.lite_tools import MAX_WAIT_MS
from deltamcp.dialects.mcp_lite_bodies import PROMISE, LiteResponse
from deltamcp.errors import Fault
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import HeaderList, Headers
from deltamcp.transports.http.exchange import ONLY_JSON, BodyReader, Exchange, HttpAnswer
from deltamcp.transports.http.reply import CallsInFlight, HttpReply, respond, serve
from deltamcp.transports.lite.responses import MAX_BATCH, make_stamp, why_refused, write_response
from deltamcp.transports.lite.stream import LiteStream, wait_to_end, write_last_event
from deltamcp.transports.options import McpLiteSettings
from deltamcp.transports.quota import TOO_MANY_CALLS
from deltamcp.values import (
    JSON,
    Answer,
    EngineAsk,
    Failure,
    Message,
    Notification,
    Outcome,
    Page,
    RedeemPromise,
    Request,
    RequestId,
    Terms,
)
from deltamcp.wire import jsonrpc

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
        self.paths = {f"{place}/{name}": use for place in places for name, use in names.items()}
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
            performing = self._calls.perform(
                wait_to_end(understood, request), stream, request.id, exchange.caller.account
            )
            await serve(stream, performing, functools.partial(write_last_event, self._lite, request, started))
        finally:
            self._streams.discard(stream)
            await stream.close()

    def _perform(
        self, request: Request, asked: tuple[Terms, EngineAsk] | Failure, exchange: Exchange
    ) -> tuple[HttpReply, Awaitable[Outcome | None]]:
        reply = HttpReply(exchange, ONLY_JSON, self._engine.limits)
        return reply, self._calls.perform(asked, reply, request.id, exchange.caller.account)

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
        await exchange.respond_batch(bodies)

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
