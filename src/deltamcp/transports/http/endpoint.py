"""The MCP endpoint over HTTP: finds the dialect of a request, serves it, and sends event streams.

`McpEndpoint` serves the modern era, whose requests have no session; their headers must agree with their bodies.
`SessionRequests` serves the handshake era, whose requests belong to a session, all but an `initialize`. The server
cancels a request whose client disconnects. The exception is a request of the handshake era whose response has begun as
an event stream: its events have ids, and the client may reconnect.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable

from deltamcp.calls.engine import Engine
from deltamcp.calls.failures import encode_response
from deltamcp.dialects import versions
from deltamcp.dialects.dialect import StatelessDialect
from deltamcp.dialects.modern import check_headers
from deltamcp.dialects.progressive_disclosure import ENCODINGS
from deltamcp.errors import Fault, InputDeclinedError
from deltamcp.limits import Limits
from deltamcp.runtime.quota import TOO_MANY_CALLS
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Headers
from deltamcp.transports.http.exchange import (
    ONLY_JSON,
    BodyReader,
    Exchange,
    HttpAnswer,
    choose_codecs,
    read_accept,
    refusal,
    refuse_message,
)
from deltamcp.transports.http.reply import RETRY_MS, CallsInFlight, HttpReply, respond, serve
from deltamcp.transports.sessions.directory import (
    SESSION_HEADER,
    HttpSession,
    SessionDirectory,
    is_primed,
)
from deltamcp.transports.sessions.session import FOLLOWED_BYTES, FollowedPromises, Subscription, cancelled_id
from deltamcp.transports.sessions.shared_streams import watched_bytes
from deltamcp.transports.sessions.streams import FollowedStream, StoredStream, SubscriptionStream
from deltamcp.values import (
    JSON,
    Failure,
    Listen,
    Malformed,
    Message,
    Notification,
    Outcome,
    Request,
    RequestId,
    Response,
    SetLevel,
    Watch,
)
from deltamcp.wire import frames, jsonrpc

_BATCH_TOO_LARGE = Failure(
    Fault.TOO_LARGE, "The responses to this batch are too large together, so this one was dropped; send fewer at once."
)
_ENDED = Failure(Fault.SESSION_UNKNOWN, "The session ended before the whole batch was served.")
_FORGOTTEN = Failure(Fault.INTERNAL, "The response is too large to be stored for a client that reconnects; call again.")


class SessionReply(HttpReply):
    """Sends the response to a request of a session, which stores the events, so that the client can reconnect.

    While the call waits, the session is in use, and its client can cancel the request by its id.
    """

    unasked = "This server keeps no sessions, so it cannot ask its clients anything."
    _stream: StoredStream | None = None

    def __init__(
        self, exchange: Exchange, limits: Limits, opened: HttpSession, sessions: SessionDirectory, request: RequestId
    ) -> None:
        """`request` is the id of the request that the reply answers."""
        super().__init__(exchange, limits, opened.account, opened.id)
        self.opened = opened
        self._sessions = sessions
        self._request = request

    def on_wait(self) -> None:
        super().on_wait()
        assert self._task is not None, "ASGI applications run in tasks"
        self.opened.in_flight[self._request] = self._task
        self._sessions.begin_use(self.opened)

    def on_end(self) -> None:
        super().on_end()
        self.opened.in_flight.pop(self._request, None)
        self._sessions.end_use(self.opened)

    @property
    def outlives_client(self) -> bool:
        return self._stream is not None

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        if not self._sessions.are_kept:
            raise InputDeclinedError(self.unasked)
        if not self.exchange.accepts.events:
            raise InputDeclinedError("The client does not accept event streams, so it cannot be asked.")
        session = self.opened.session
        message, future, id_ = session.open_request(method, params)
        await self._send_message(message)
        try:
            return await session.await_response(id_, future, self._limits.input_seconds)
        except (asyncio.CancelledError, InputDeclinedError):
            await self._send_message(session.withdraw_request(id_))
            raise

    async def detach(self) -> None:
        is_resumable = self._sessions.are_kept and self.exchange.accepts.events and is_primed(self.opened)
        if not is_resumable or self._detached:
            return
        await self._start()
        self._detached = True
        await asgi.end_events(self.exchange.send)

    async def abandon(self) -> None:
        if self._stream is not None:
            self._stream.end()
        await super().abandon()

    async def _open_stream(self) -> None:
        if self._sessions.are_kept:
            self._stream = self.opened.streams.open()
            if self._stream.copy is not None:
                await self._stream.copy.begin(self._request)
        await super()._open_stream()
        if self._stream is not None and is_primed(self.opened):
            await asgi.send_event(self.exchange.send, frames.encode_priming_event(self._stream.event_id(0), RETRY_MS))

    def _make_event(self, message: bytes, instead: bytes | None) -> bytes:
        if self._stream is None:
            return super()._make_event(message, instead)
        return self._stream.append(message, instead)


class SessionRequests:
    """Opens sessions, serves the requests in them, and closes them."""

    def __init__(self, engine: Engine, calls: CallsInFlight, sessions: SessionDirectory) -> None:
        self._engine = engine
        self._calls = calls
        self._sessions = sessions

    # POST

    async def answer(self, message: Message | list[Message], exchange: Exchange) -> None:
        """Serves the body of a POST and sends the response."""
        if isinstance(message, Malformed):
            await exchange.refuse(refuse_message(message))
            return
        is_named = SESSION_HEADER in exchange.headers and self._sessions.are_kept
        if isinstance(message, Request) and message.method == "initialize" and not is_named:
            await self._initialize(message, exchange)
            return
        opened = await self._sessions.find(exchange)
        if type(opened) is Failure:
            await exchange.refuse(refusal(opened, message.id if isinstance(message, Request) else None))
            return
        match message:
            case Request():
                reply = SessionReply(exchange, self._engine.limits, opened, self._sessions, message.id)
                await serve(reply, self._perform(message, reply), functools.partial(_write_in_session, message, opened))
            case Notification() | Response():
                failure = await self._receive(message, opened)
                if failure is None:
                    await asgi.respond_accepted(exchange.send)
                else:
                    await exchange.refuse(refusal(failure))
            case list():
                async with exchange.place_of_batch(self._engine.limits.body_seconds) as is_free:
                    if is_free:
                        await self._serve_batch(message, opened, exchange)
                    else:
                        await exchange.refuse(refusal(TOO_MANY_CALLS))

    async def _initialize(self, request: Request, exchange: Exchange) -> None:
        dialects = self._engine.dialects
        dialect = dialects.find_session(request) if self._sessions.are_kept else dialects.default
        agreement = dialect.agree(request.params, ENCODINGS)
        if isinstance(agreement, Failure):
            await exchange.answer(HttpAnswer(200, dialect.write(request, agreement, versions.HANDSHAKE[0])))
            return
        opened = await self._sessions.open(dialect, agreement, exchange.caller.principal, exchange.caller.account)
        if isinstance(opened, Failure):
            await exchange.refuse(refusal(opened, request.id))
            return
        about = self._sessions.describe(self._engine.capabilities.about(exchange.caller.principal))
        body = opened.session.dialect.introduce(request, about, agreement, ENCODINGS)
        headers = ((SESSION_HEADER, opened.id.encode()),) if self._sessions.are_kept else ()
        await exchange.answer(HttpAnswer(200, body, headers))

    async def _receive(self, message: Notification | Response, opened: HttpSession) -> Failure | None:
        if isinstance(message, Response):
            return await self._sessions.resolve(opened, message)
        if message.method == "notifications/initialized":
            self._sessions.start_listening(opened)
        elif message.method == "notifications/cancelled":
            id_ = cancelled_id(message, self._engine.limits)
            if id_ is not None:
                await self._engine.withdraw_reply(opened.session.caller, id_)
            return await self._sessions.cancel(opened, id_)
        return None

    def _perform(self, request: Request, reply: SessionReply) -> Awaitable[Outcome | None]:
        """Performs a request. Await what it returns."""
        opened, id_ = reply.opened, request.id
        understood = opened.session.read(request)
        if id_ in opened.in_flight:
            understood = Failure(Fault.INVALID_REQUEST, f"A request with the id {id_!r} is still in progress.")
        if type(understood) is not Failure and isinstance(understood[1], (SetLevel, Watch)):
            return self._sessions.apply(opened, understood[1])
        return self._calls.perform(understood, reply, id_)

    async def _serve_batch(self, messages: list[Message], opened: HttpSession, exchange: Exchange) -> None:
        """Serves a batch, which only MCP 2025-03-26 has, and sends its responses as one batch."""
        if opened.session.agreement.version != versions.BATCHES_IN:
            await exchange.refuse(refuse_message(messages))
            return
        exchange.accepts = ONLY_JSON
        bodies: list[bytes] = []
        caller = opened.session.caller
        for message in messages:
            await self._engine.computations.take_turn(exchange.caller.account)
            if opened.streams.is_closed:
                await exchange.refuse(refusal(_ENDED))
                return
            match message:
                case Request():
                    reply = SessionReply(exchange, self._engine.limits, opened, self._sessions, message.id)
                    # Meanwhile another token of the same principal, with other scopes, may have used the session.
                    opened.session.caller = caller
                    room = self._engine.limits.message_bytes - sum(map(len, bodies))
                    write = functools.partial(_write_within, room, message, opened)
                    response = await respond(exchange, self._perform(message, reply), write)
                    if response is None:
                        return
                    bodies.append(response.body)
                case Notification() | Response():
                    failure = await self._receive(message, opened)
                    if failure is not None:
                        await exchange.refuse(refusal(failure))
                        return
                case Malformed():
                    bodies.append(jsonrpc.encode_malformed(message))
        await exchange.answer_batch(bodies)

    # GET and DELETE

    async def listen(self, exchange: Exchange) -> FollowedStream | Failure:
        """Serves GET: returns the stream of messages outside requests, or the one that `Last-Event-ID` resumes."""
        accepts = read_accept(exchange.headers.get(b"accept", b"*/*"))
        if accepts is None or not accepts.events:
            return Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
        opened = await self._sessions.find(exchange)
        if isinstance(opened, Failure):
            return opened
        streams, account = exchange.quotas.streams, exchange.caller.account
        if not streams.take(account):
            return Failure(Fault.OVERLOADED, "Too many streams are open; close one first.")
        self._sessions.begin_use(opened)
        last = exchange.headers.get(b"last-event-id")
        followed: FollowedStream | Failure | None = None

        def leave() -> None:
            if isinstance(followed, FollowedStream):
                followed.on_leave()
            streams.give_back(account)
            self._sessions.end_use(opened)

        try:
            followed = await self._sessions.listen(opened, None if last is None else last.decode("latin-1"))
        finally:
            if not isinstance(followed, FollowedStream):
                leave()
        return followed._replace(on_leave=leave) if isinstance(followed, FollowedStream) else followed

    async def end(self, exchange: Exchange) -> Failure | None:
        """Serves DELETE: ends the session."""
        opened = await self._sessions.find(exchange)
        return opened if isinstance(opened, Failure) else await self._sessions.end(opened)


def _write_in_session(request: Request, opened: HttpSession, outcome: Outcome) -> HttpAnswer:
    session = opened.session
    body, instead = session.write(request, outcome), functools.partial(session.write, request, _FORGOTTEN)
    if type(outcome) is Failure:
        return HttpAnswer(session.dialect.http_status(outcome), body, failure=outcome, instead=instead)
    return HttpAnswer(200, body, instead=instead)


def _write_within(room: int, request: Request, opened: HttpSession, outcome: Outcome) -> HttpAnswer:
    """Writes a response of a batch, whose responses have so many bytes left."""
    response = _write_in_session(request, opened, outcome)
    return response if len(response.body) <= room else _write_in_session(request, opened, _BATCH_TOO_LARGE)


_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in versions.HANDSHAKE)


class McpEndpoint:
    """Serves the requests that `HttpApp` has admitted."""

    def __init__(self, engine: Engine, calls: CallsInFlight, bodies: BodyReader, sessions: SessionRequests) -> None:
        self._engine = engine
        self._calls = calls
        self._bodies = bodies
        self._in_sessions = sessions
        self._closers: set[Callable[[], None]] = set()

    def serve(self, exchange: Exchange) -> Awaitable[None]:
        """Sends the response to a request. Await what it returns."""
        return self._post(exchange) if exchange.method == "POST" else self._serve_other(exchange)

    async def _serve_other(self, exchange: Exchange) -> None:
        if exchange.method not in ("GET", "DELETE") or _is_modern_version(exchange.headers):
            wrong = Failure(Fault.WRONG_HTTP_METHOD, f"This endpoint does not take {exchange.method}; send POST.")
            await exchange.refuse(refusal(wrong))
        elif exchange.method == "GET":
            await self._follow(await self._in_sessions.listen(exchange), exchange)
        else:
            failure = await self._in_sessions.end(exchange)
            if failure is None:
                await asgi.respond(exchange.send, 200, b"")
            else:
                await exchange.refuse(refusal(failure))

    def drain(self) -> None:
        """Ends the streams that do not end by themselves."""
        for close in tuple(self._closers):
            close()

    async def _post(self, exchange: Exchange) -> None:
        codec = choose_codecs(exchange)
        if type(codec) is Failure:
            await exchange.refuse(refusal(codec))
            return
        message = self._bodies.read_arrived(exchange, codec) or await self._bodies.read(exchange, codec)
        if type(message) is Failure:
            await exchange.refuse(refusal(message))
            return
        dialects = self._engine.dialects
        dialect = dialects.find_stateless(message) if isinstance(message, Request) else None
        if dialect is None and _is_modern_version(exchange.headers):
            dialect = dialects.newest
        if dialect is None:
            await self._in_sessions.answer(message, exchange)
        elif not isinstance(message, Request):
            await self._take_no_request(message, exchange)
        else:
            understood = dialect.read(message, exchange.caller)
            operations = self._engine.catalog.view(exchange.caller.principal).operations
            understood = check_headers(message, understood, exchange.headers, exchange.repeated, operations)
            version = versions.MODERN[0]
            if type(understood) is not Failure:
                version, ask = understood[0].version, understood[1]
                if type(ask) is Listen:
                    await self._follow(await self._listen(message, dialect, version, ask, exchange), exchange, message)
                    return
            reply = HttpReply(exchange, self._engine.limits)
            performing = self._calls.perform(understood, reply, message.id)
            await serve(reply, performing, functools.partial(_write, message, dialect, version))

    # The modern era

    async def _take_no_request(self, message: Message | list[Message], exchange: Exchange) -> None:
        if isinstance(message, Notification):
            await asgi.respond_accepted(exchange.send)
        else:
            await exchange.refuse(refuse_message(message))

    async def _listen(
        self, request: Request, dialect: StatelessDialect, version: str, ask: Listen, exchange: Exchange
    ) -> FollowedStream | Failure:
        if not exchange.accepts.events:
            return Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
        quotas, account, hub = exchange.quotas, exchange.caller.account, self._engine.hub
        accepted = await self._engine.accept_filter(ask.filter, exchange.caller)
        size = watched_bytes(accepted.uris) + FOLLOWED_BYTES * len(accepted.tokens) + 1
        if not quotas.watched.take(account, size):
            return Failure(Fault.OVERLOADED, "Too much is subscribed to; end a subscription first.")
        if not quotas.streams.take(account):
            quotas.watched.give_back(account, size)
            return Failure(Fault.OVERLOADED, "Too many streams are open; close one first.")
        stream = SubscriptionStream(self._engine.limits, quotas.responses, account)
        subscription = Subscription(dialect, request, version, accepted, stream.append, exchange.caller.principal)
        subscription.acknowledge()
        hub.subscribe(subscription)
        followed = FollowedPromises(self._engine, accepted.tokens, exchange.caller, subscription.notify_of_promise)

        def close() -> None:
            subscription.end()
            stream.end()

        def leave() -> None:
            hub.unsubscribe(subscription)
            followed.stop()
            stream.forget()
            quotas.streams.give_back(account)
            quotas.watched.give_back(account, size)

        return FollowedStream(stream, 0, close=close, on_leave=leave)

    # Streams

    async def _follow(
        self, followed: FollowedStream | Failure, exchange: Exchange, request: Request | None = None
    ) -> None:
        """Sends the events of a stream until it ends, the client disconnects, or the client's token expires."""
        if isinstance(followed, Failure):
            await exchange.refuse(refusal(followed, None if request is None else request.id))
            return
        stream, after, primed, close, on_leave = followed
        receive, send, expires_at = exchange.receive, exchange.send, exchange.caller.principal.expires_at
        follower = stream.follow()
        leaving = asyncio.ensure_future(asgi.wait_for_disconnect(receive))
        leaving.add_done_callback(lambda _: follower.wake())
        self._closers.add(close)
        try:
            await asgi.start_events(send)
            if primed:
                await asgi.send_event(send, frames.encode_priming_event(stream.event_id(after), RETRY_MS))
            if self._calls.draining:
                close()
            while not leaving.done():
                if time.time() >= expires_at:
                    close()
                for number, event in stream.events_after(after):
                    if number > after + 1:
                        await asgi.send_event(send, b": %d events are forgotten\n\n" % (number - after - 1))
                    after = stream.sent = number
                    await asgi.send_event(send, event)
                if stream.ended or stream.follower is not follower:
                    break
                if not await follower.wait(self._engine.limits.ping_seconds):
                    await asgi.send_event(send, frames.KEEP_ALIVE)
        finally:
            leaving.cancel()
            stream.unfollow(follower)
            self._closers.discard(close)
            on_leave()
        await asgi.end_events(send)


def _write(request: Request, dialect: StatelessDialect, version: str, outcome: Outcome) -> HttpAnswer:
    body = encode_response(dialect, request, outcome, version)
    if type(outcome) is Failure:
        return HttpAnswer(dialect.http_status(outcome), body, failure=outcome)
    return HttpAnswer(200, body)


def _is_modern_version(headers: Headers) -> bool:
    """Whether the version header names a modern or an unknown version; the modern era has an error for the latter."""
    version = headers.get(b"mcp-protocol-version")
    return version is not None and version not in _HANDSHAKE_VERSIONS and version.strip() not in _HANDSHAKE_VERSIONS
