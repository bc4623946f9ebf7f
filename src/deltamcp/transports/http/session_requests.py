"""HTTP requests of the handshake era: POST, GET and DELETE. All but an `initialize` belong to a session."""

import asyncio
import functools
from collections.abc import Awaitable

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.progressive_disclosure import ENCODINGS
from deltamcp.errors import Fault, InputDeclinedError
from deltamcp.limits import Limits
from deltamcp.transports.http import asgi
from deltamcp.transports.http.exchange import (
    ONLY_JSON,
    Exchange,
    HttpAnswer,
    read_accept,
    refusal,
    refuse_message,
)
from deltamcp.transports.http.reply import RETRY_MS, CallsInFlight, HttpReply, respond, serve
from deltamcp.transports.quota import TOO_MANY_CALLS, HttpQuotas
from deltamcp.transports.sessions.directory import SESSION_HEADER, NoSessions, SessionDirectory, is_primed
from deltamcp.transports.sessions.live import HttpSession, HttpSessions
from deltamcp.transports.sessions.records import StreamCopies
from deltamcp.transports.sessions.session import cancelled_id
from deltamcp.transports.sessions.shared import SharedSessions
from deltamcp.transports.sessions.streams import FollowedStream, StoredStream
from deltamcp.values import (
    JSON,
    Caller,
    Failure,
    Malformed,
    Message,
    Notification,
    Outcome,
    Principal,
    Request,
    RequestId,
    Response,
    SetLevel,
    Watch,
)
from deltamcp.wire import jsonrpc, sse

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
            await asgi.send_event(self.exchange.send, sse.encode_priming_event(self._stream.event_id(0), RETRY_MS))

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
        if isinstance(opened, Failure):
            await exchange.refuse(refusal(opened, message.id if isinstance(message, Request) else None))
            return
        match message:
            case Request():
                reply = SessionReply(exchange, self._engine.limits, opened, self._sessions, message.id)
                await serve(reply, self._perform(message, reply), functools.partial(_write, message, opened))
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
        if not isinstance(understood, Failure) and isinstance(understood[1], (SetLevel, Watch)):
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


def _write(request: Request, opened: HttpSession, outcome: Outcome) -> HttpAnswer:
    session = opened.session
    body, instead = session.write(request, outcome), functools.partial(session.write, request, _FORGOTTEN)
    if isinstance(outcome, Failure):
        return HttpAnswer(session.dialect.http_status(outcome), body, failure=outcome, instead=instead)
    return HttpAnswer(200, body, instead=instead)


def _write_within(room: int, request: Request, opened: HttpSession, outcome: Outcome) -> HttpAnswer:
    """Writes a response of a batch, whose responses have so many bytes left."""
    response = _write(request, opened, outcome)
    return response if len(response.body) <= room else _write(request, opened, _BATCH_TOO_LARGE)


def make_directory(engine: Engine, quotas: HttpQuotas, keep_sessions: bool = True) -> SessionDirectory:
    """Returns the sessions of a server: its own, those that it shares with its replicas, or none."""
    replica = engine.replica
    if replica is None or not keep_sessions:
        live = HttpSessions(engine.limits, quotas, engine.hub, engine.identify)
        if keep_sessions:
            return SessionDirectory(live, engine.hub)
        return NoSessions(live, engine.hub, engine.limits, quotas, engine.dialects)
    copies = StreamCopies(replica, engine.limits)

    def identify(principal: Principal, id_: str, address: str, opener: str) -> Caller:
        return replace(engine.identify(principal, id_, address, opener), moves=True)

    live = HttpSessions(engine.limits, quotas, engine.hub, identify, copies)
    shared = SharedSessions(live, engine.hub, copies, engine.limits, quotas, engine.dialects, engine.capabilities)
    engine.lifespan.add_task(shared.run)
    return shared
