"""Streamable HTTP as an ASGI application: both eras on one endpoint.

A client that goes away cancels its request. The exception is a request of the handshake era whose
answer has begun as a stream of events: that stream has event ids, and the client may take it up again.
"""

import asyncio
import logging
from collections.abc import Callable

from deltamcp.dialects import handshake, modern, versions
from deltamcp.engine import Engine
from deltamcp.errors import FAULTS, Fault
from deltamcp.guard import guarded
from deltamcp.session import cancel
from deltamcp.transports import asgi
from deltamcp.transports.asgi import Accepts, Headers, Receive, Scope, Send
from deltamcp.transports.duplex import Subscription, written
from deltamcp.transports.reply import RETRY_MS, Departure, Reply
from deltamcp.transports.sessions import OpenSession, Sessions
from deltamcp.transports.streams import Stream
from deltamcp.values import (
    ANONYMOUS,
    Answer,
    Ask,
    Failure,
    Listen,
    Malformed,
    Message,
    Notification,
    Outcome,
    Principal,
    Request,
    RequestId,
    Response,
    Terms,
)
from deltamcp.wire import jsonrpc, sse

logger = logging.getLogger("deltamcp")

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in versions.HANDSHAKE)
_MIRRORED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-param-")


class HttpApp:
    """The ASGI application, to be served or mounted anywhere."""

    def __init__(
        self,
        engine: Engine,
        path: str = "/mcp",
        *,
        allowed_hosts: list[str] | None = None,
        allowed_origins: list[str] | None = None,
    ) -> None:
        """
        Args:
            path: the endpoint.
            allowed_hosts: `Host` values accepted, such as "tools.example" or "tools.example:8443"; "*" for all.
                The loopback names by default, which is right for a server on this machine only.
            allowed_origins: `Origin` values accepted besides the allowed hosts' own.
        """
        self._engine = engine
        self._path = path.rstrip("/")
        self._stamp = modern.Stamp(engine.info, engine.cache_seconds)
        self._hosts = frozenset(host.lower() for host in (allowed_hosts or LOOPBACK))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in (allowed_origins or ()))
        self._admitted: set[tuple[bytes | None, bytes | None]] = set()
        self._sessions = Sessions(engine.limits, engine.hub)
        self._calls = 0
        self._draining = False
        self._closers: set[Callable[[], None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        if not self._engine.life.started:
            await self._engine.life.start()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        # RFC 9112, 3.2: a second Host is an attempt at smuggling. A second anything is looked at where it matters.
        if len(headers) != len(scope["headers"]) and _repeats(scope["headers"], (b"host", b"origin")):
            headers[b"host"] = b""
        refused = self._admit(scope, headers)
        if refused is not None:
            await asgi.refuse(send, refused)
            return
        match scope["method"]:
            case "POST":
                await self._post(scope, headers, receive, send)
            case "GET":
                await self._get(scope, headers, receive, send)
            case "DELETE":
                await self._delete(scope, headers, send)
            case _:
                await asgi.refuse(send, Failure(Fault.WRONG_HTTP_METHOD, "Use POST, GET or DELETE."))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self._engine.life.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            logger.error("the server could not start or stop", exc_info=error)
            await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
            return
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Ends the streams that would stay open for ever; calls in flight go on."""
        self._draining = True
        for close in tuple(self._closers):
            close()

    # The door

    def _admit(self, scope: Scope, headers: Headers) -> Failure | None:
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        if path != self._path and path.rstrip("/") != self._path:
            return Failure(Fault.WRONG_PATH, f"The MCP endpoint is {self._path or '/'}.")
        names = (headers.get(b"host"), headers.get(b"origin"))
        if names not in self._admitted:
            refused = None
            if not self._is_host(names[0]):
                refused = Failure(Fault.WRONG_HOST, "This Host is not among the allowed_hosts.")
            elif names[1] is not None and not self._is_origin(names[1]):
                refused = Failure(Fault.WRONG_ORIGIN, "This Origin is not among the allowed_origins.")
            if refused is not None:
                logger.warning("refused Host %r, Origin %r: %s", *names, refused.message)
                return refused
            if len(self._admitted) < 1024:
                self._admitted.add(names)
        if sum(map(len, headers)) + sum(map(len, headers.values())) > self._engine.limits.header_bytes:
            return Failure(Fault.HEADERS_TOO_LARGE, "The header section is too large.")
        return None

    def _is_host(self, host: bytes | None) -> bool:
        if "*" in self._hosts:
            return True
        name = (host or b"").decode("latin-1").lower()
        bare, _, port = name.rpartition(":")
        return name in self._hosts or (port.isdigit() and bare in self._hosts)

    def _is_origin(self, origin: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        return text in self._origins or "*" in self._origins or self._is_host(text.partition("://")[2].encode())

    # POST

    async def _post(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        if not asgi.is_json(headers.get(b"content-type", b"")) or b"content-encoding" in headers:
            refused = Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json, not compressed.")
            await asgi.refuse(send, refused)
            return
        accepts = asgi.accepts(headers.get(b"accept", b"*/*"))
        if accepts is None:
            await asgi.refuse(send, Failure(Fault.NOT_ACCEPTABLE, "Accept application/json and text/event-stream."))
            return
        body = await asgi.read_body(headers, receive, self._engine.limits)
        if isinstance(body, Failure):
            await asgi.refuse(send, body)
            return
        message = jsonrpc.read(body, self._engine.limits)
        principal = _principal(scope)
        if self._is_modern(message, headers):
            await self._modern(message, scope, headers, principal, accepts, receive, send)
        else:
            await self._handshake(message, headers, principal, accepts, receive, send)

    def _is_modern(self, message: Message | list[Message], headers: Headers) -> bool:
        """By the version header, an unknown version included, or by the message's own `_meta`."""
        return _is_modern_version(headers) or (type(message) is Request and modern.is_modern(message))

    # POST, modern era

    async def _modern(
        self,
        message: Message | list[Message],
        scope: Scope,
        headers: Headers,
        principal: Principal,
        accepts: Accepts,
        receive: Receive,
        send: Send,
    ) -> None:
        if type(message) is not Request:
            await _answer_no_request(message, send)
            return
        understood = self._understand(message, scope, headers, principal)
        if isinstance(understood, Failure):
            row = FAULTS[understood.fault]
            await asgi.respond_json(send, row.modern_http, jsonrpc.error(message.id, row.modern, understood))
            return
        terms, ask = understood
        if isinstance(ask, Listen):
            if accepts.events:
                await self._listen(message.id, ask, receive, send)
            else:
                await asgi.refuse(send, Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream."), message.id)
            return
        caller = principal.id if principal is not ANONYMOUS else (scope.get("client") or ("",))[0]
        reply = Reply(send, accepts, caller, self._engine.limits)
        outcome = await self._perform(ask, terms, reply, message.id, receive)
        if outcome is None:
            await reply.abandon()
            return
        status = FAULTS[outcome.fault].modern_http if isinstance(outcome, Failure) else 200
        await reply.finish(written(outcome, lambda made: self._stamp.write(message.id, made, terms.version)), status)

    def _understand(
        self, request: Request, scope: Scope, headers: Headers, principal: Principal
    ) -> tuple[Terms, Ask] | Failure:
        repeated = len(headers) != len(scope["headers"]) and _repeats(scope["headers"], _MIRRORED)
        meta = modern.envelope(request)
        if isinstance(meta, Failure):
            return meta
        mismatch = modern.check_headers(request, meta, headers, repeated)
        if mismatch is not None:
            return mismatch
        understood = modern.read(request, meta, principal)
        if isinstance(understood, Failure):
            return understood
        return modern.check_parameter_headers(understood[1], headers, self._engine.catalog) or understood

    async def _listen(self, id_: RequestId, ask: Listen, receive: Receive, send: Send) -> None:
        wanted = self._engine.honoured(ask.filter)
        stream = Stream(None, self._engine.limits)
        stream.append(modern.acknowledge(id_, wanted))
        subscription = Subscription(id_, wanted, stream.append)

        def close() -> None:
            stream.append(modern.closing(id_))
            stream.end()

        self._engine.hub.join(subscription)
        try:
            await self._follow(stream, 0, False, close, receive, send)
        finally:
            self._engine.hub.leave(subscription)

    async def _perform(self, ask: Ask, terms: Terms, reply: Reply, id_: RequestId, receive: Receive) -> Outcome | None:
        """The engine's outcome; None where nobody waits for it any more."""
        if self._calls >= self._engine.limits.calls:
            return Failure(Fault.OVERLOADED, "Too many calls are in progress; try again later.")
        departure = Departure(receive, reply, self._engine.limits.ping_seconds)
        self._calls += 1
        try:
            return await guarded(self._engine.perform(ask, terms, reply, id_), departure)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "ASGI applications run in tasks"
            task.uncancel()
            if departure.happened:
                return None
            if self._draining:
                return Failure(Fault.OVERLOADED, "The server is shutting down.")
            return Failure(Fault.CANCELLED, "The request was cancelled.")
        finally:
            self._calls -= 1

    # POST, handshake era

    async def _handshake(
        self,
        message: Message | list[Message],
        headers: Headers,
        principal: Principal,
        accepts: Accepts,
        receive: Receive,
        send: Send,
    ) -> None:
        if isinstance(message, Malformed):
            await _answer_no_request(message, send)
            return
        id_: RequestId | None = None
        if isinstance(message, Request):
            id_ = message.id
            if message.method == "initialize" and b"mcp-session-id" not in headers:
                await self._initialize(message, principal, send)
                return
        found = self._sessions.find(headers.get(b"mcp-session-id"), principal)
        if isinstance(found, Failure):
            await asgi.refuse(send, found, id_)
            return
        match message:
            case Request():
                await self._serve(message, found, accepts, receive, send)
            case Notification():
                self._note(message, found)
                await asgi.accept(send)
            case Response():
                found.session.resolve(message)
                await asgi.accept(send)
            case list():
                await self._serve_batch(message, found, receive, send)

    async def _initialize(self, request: Request, principal: Principal, send: Send) -> None:
        agreement = handshake.agree(request.params)
        if isinstance(agreement, Failure):
            await asgi.respond_json(send, 200, handshake.write(request.id, agreement, versions.HANDSHAKE[0]))
            return
        opened = self._sessions.open(agreement, principal)
        body = handshake.write(request.id, Answer(self._engine.about()), agreement.version)
        await asgi.respond_json(send, 200, body, (b"mcp-session-id", opened.id.encode()))

    def _note(self, notification: Notification, opened: OpenSession) -> None:
        if notification.method == "notifications/initialized":
            self._engine.hub.join(opened.session)
        elif notification.method == "notifications/cancelled":
            cancel(opened.in_flight, notification)

    async def _serve(
        self, request: Request, opened: OpenSession, accepts: Accepts, receive: Receive, send: Send
    ) -> None:
        reply = Reply(send, accepts, opened.id, self._engine.limits, opened.session, opened.streams)
        outcome = await self._outcome(request, opened, reply, receive)
        if outcome is None:
            await reply.abandon()
            return
        version = opened.session.agreement.version
        status = FAULTS[outcome.fault].handshake_http if isinstance(outcome, Failure) else 200
        await reply.finish(written(outcome, lambda made: handshake.write(request.id, made, version)), status)

    async def _outcome(self, request: Request, opened: OpenSession, reply: Reply, receive: Receive) -> Outcome | None:
        if request.id in opened.in_flight:
            return Failure(Fault.INVALID_REQUEST, f"A request with the id {request.id!r} is still in progress.")
        understood = opened.session.read(request)
        if isinstance(understood, Failure):
            return understood
        terms, ask = understood
        settled = opened.session.settle(ask)
        if settled is not None:
            return settled
        task = asyncio.current_task()
        assert task is not None, "ASGI applications run in tasks"
        opened.in_flight[request.id] = task
        try:
            return await self._perform(ask, terms, reply, request.id, receive)
        finally:
            opened.in_flight.pop(request.id, None)

    async def _serve_batch(self, messages: list[Message], opened: OpenSession, receive: Receive, send: Send) -> None:
        """MCP 2025-03-26 is the one revision with batches; its answers come back as one."""
        version = opened.session.agreement.version
        if version != versions.BATCHES_IN:
            await asgi.refuse(send, Failure(Fault.INVALID_REQUEST, "Batches are not part of this protocol version."))
            return
        answers: list[bytes] = []
        for message in messages:
            match message:
                case Request(id=id_):
                    reply = Reply(send, asgi.ONLY_JSON, opened.id, self._engine.limits, opened.session, opened.streams)
                    outcome = await self._outcome(message, opened, reply, receive)
                    if outcome is None:
                        return
                    answers.append(written(outcome, lambda made, id_=id_: handshake.write(id_, made, version)))  # type: ignore[misc]
                case Notification():
                    self._note(message, opened)
                case Response():
                    opened.session.resolve(message)
                case Malformed():
                    answers.append(jsonrpc.malformed(message))
        if answers:
            await asgi.respond_json(send, 200, b"[%b]" % b",".join(answers))
        else:
            await asgi.accept(send)

    # GET and DELETE, handshake era

    async def _get(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        if _is_modern_version(headers):
            await asgi.refuse(send, Failure(Fault.WRONG_HTTP_METHOD, "This protocol version has no GET."))
            return
        accept = headers.get(b"accept", b"*/*")
        if b"text/event-stream" not in accept and b"*/*" not in accept:
            await asgi.refuse(send, Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream."))
            return
        opened = self._sessions.find(headers.get(b"mcp-session-id"), _principal(scope))
        if isinstance(opened, Failure):
            await asgi.refuse(send, opened)
            return
        last = headers.get(b"last-event-id")
        resumed = None if last is None else opened.streams.resume(last.decode("latin-1"))
        # Where nothing is kept of the stream any more, there is nothing to redeliver: the client listens on.
        stream, after = resumed or _from_now_on(opened.open_standalone())
        primed = opened.session.agreement.version >= versions.PRIMING_SINCE
        # A stream that answers a request ends with its answer; the other one must be told.
        close = stream.end if stream is opened.streams.standalone else _nothing
        await self._follow(stream, after, primed, close, receive, send)

    async def _delete(self, scope: Scope, headers: Headers, send: Send) -> None:
        if _is_modern_version(headers):
            await asgi.refuse(send, Failure(Fault.WRONG_HTTP_METHOD, "This protocol version has no DELETE."))
            return
        found = self._sessions.find(headers.get(b"mcp-session-id"), _principal(scope))
        if isinstance(found, Failure):
            await asgi.refuse(send, found)
            return
        self._sessions.forget(found)
        await asgi.respond(send, 200, b"")

    async def _follow(
        self, stream: Stream, after: int, primed: bool, close: Callable[[], None], receive: Receive, send: Send
    ) -> None:
        """Sends what a stream holds and will hold, until it ends or the client leaves. `close` ends it."""
        await asgi.start_events(send)
        if primed:
            await asgi.send_event(send, sse.priming(stream.event_id(after), RETRY_MS))
        follower = stream.follow()
        leaving = asyncio.ensure_future(asgi.gone(receive))
        leaving.add_done_callback(lambda _: follower.wake())
        self._closers.add(close)
        if self._draining:
            close()
        try:
            while not leaving.done():
                for number, event in stream.after(after):
                    after = stream.sent = number
                    await asgi.send_event(send, event)
                if stream.ended or stream.follower is not follower:
                    break
                if not await follower.wait(self._engine.limits.ping_seconds):
                    await asgi.send_event(send, sse.COMMENT)
        finally:
            leaving.cancel()
            stream.unfollow(follower)
            self._closers.discard(close)
        await asgi.end_events(send)


def _principal(scope: Scope) -> Principal:
    """Whoever the guard in front of this application has recognised."""
    found: Principal = scope.get("deltamcp.principal", ANONYMOUS)
    return found


def _is_modern_version(headers: Headers) -> bool:
    version = headers.get(b"mcp-protocol-version")
    return version is not None and version.strip() not in _HANDSHAKE_VERSIONS


def _repeats(headers: list[tuple[bytes, bytes]], watched: tuple[bytes, ...]) -> bool:
    names = [name for name, _ in headers if name.startswith(watched)]
    return len(names) != len(set(names))


def _from_now_on(stream: Stream) -> tuple[Stream, int]:
    return stream, stream.sent


def _nothing() -> None:
    return None


async def _answer_no_request(message: Message | list[Message], send: Send) -> None:
    match message:
        case Malformed():
            await asgi.respond_json(send, FAULTS[message.fault].modern_http, jsonrpc.malformed(message))
        case Notification():
            await asgi.accept(send)
        case list():
            await asgi.refuse(send, Failure(Fault.INVALID_REQUEST, "Batches are not part of this protocol version."))
        case _:
            await asgi.refuse(send, Failure(Fault.INVALID_REQUEST, "This protocol version has no client responses."))
