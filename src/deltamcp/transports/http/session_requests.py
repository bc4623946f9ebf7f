"""HTTP requests of the handshake era: POST, GET and DELETE. All but an `initialize` belong to a session."""

import asyncio
import functools

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.progressive_disclosure import ENCODINGS
from deltamcp.errors import Fault
from deltamcp.transports.http import asgi
from deltamcp.transports.http.exchange import (
    ONLY_JSON,
    AcceptedTypes,
    Exchange,
    HttpAnswer,
    read_accept,
    refusal,
    refuse_message,
)
from deltamcp.transports.http.reply import CallsInFlight, HttpReply, respond, serve
from deltamcp.transports.quota import TOO_MANY_CALLS, HttpQuotas
from deltamcp.transports.sessions.directory import SESSION_HEADER, NoSessions, SessionDirectory
from deltamcp.transports.sessions.live import HttpSession, HttpSessions
from deltamcp.transports.sessions.records import StreamCopies
from deltamcp.transports.sessions.session import cancelled_id
from deltamcp.transports.sessions.shared import SharedSessions
from deltamcp.transports.sessions.streams import FollowedStream
from deltamcp.values import (
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
from deltamcp.wire import jsonrpc

_BATCH_TOO_LARGE = Failure(
    Fault.TOO_LARGE, "The responses to this batch are too large together, so this one was dropped; send fewer at once."
)
_ENDED = Failure(Fault.SESSION_UNKNOWN, "The session ended before the whole batch was served.")
_FORGOTTEN = Failure(Fault.INTERNAL, "The response is too large to be stored for a client that reconnects; call again.")


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
                reply = self._reply(opened, exchange, exchange.accepts, message.id)
                await serve(reply, self._perform(message, opened, reply), functools.partial(_write, message, opened))
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
            await exchange.respond(HttpAnswer(200, dialect.write(request, agreement, versions.HANDSHAKE[0])))
            return
        opened = await self._sessions.open(dialect, agreement, exchange.caller.principal, exchange.caller.account)
        if isinstance(opened, Failure):
            await exchange.refuse(refusal(opened, request.id))
            return
        about = self._sessions.describe(self._engine.capabilities.about(exchange.caller.principal))
        body = opened.session.dialect.introduce(request, about, agreement, ENCODINGS)
        headers = ((SESSION_HEADER, opened.id.encode()),) if self._sessions.are_kept else ()
        await exchange.respond(HttpAnswer(200, body, headers))

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

    def _reply(
        self, opened: HttpSession, exchange: Exchange, accepts: AcceptedTypes, id_: RequestId | None = None
    ) -> HttpReply:
        streams = opened.streams if self._sessions.are_kept else None
        key = opened.id or opened.account
        return HttpReply(exchange, accepts, self._engine.limits, key, opened.session, streams, id_)

    async def _perform(self, request: Request, opened: HttpSession, reply: HttpReply) -> Outcome | None:
        if request.id in opened.in_flight:
            return Failure(Fault.INVALID_REQUEST, f"A request with the id {request.id!r} is still in progress.")
        understood = opened.session.read(request)
        if not isinstance(understood, Failure) and isinstance(understood[1], (SetLevel, Watch)):
            return await self._sessions.apply(opened, understood[1])
        task = asyncio.current_task()
        assert task is not None, "ASGI applications run in tasks"
        opened.in_flight[request.id] = task
        self._sessions.begin_use(opened)
        try:
            return await self._calls.perform(understood, reply, request.id, opened.account)
        finally:
            opened.in_flight.pop(request.id, None)
            self._sessions.end_use(opened)

    async def _serve_batch(self, messages: list[Message], opened: HttpSession, exchange: Exchange) -> None:
        """Serves a batch, which only MCP 2025-03-26 has, and sends its responses as one batch."""
        if opened.session.agreement.version != versions.BATCHES_IN:
            await exchange.refuse(refuse_message(messages))
            return
        bodies: list[bytes] = []
        caller = opened.session.caller
        for message in messages:
            await self._engine.computations.take_turn(exchange.caller.account)
            if opened.streams.is_closed:
                await exchange.refuse(refusal(_ENDED))
                return
            match message:
                case Request():
                    reply = self._reply(opened, exchange, ONLY_JSON)
                    # Meanwhile another token of the same principal, with other scopes, may have used the session.
                    opened.session.caller = caller
                    room = self._engine.limits.message_bytes - sum(map(len, bodies))
                    write = functools.partial(_write_within, room, message, opened)
                    response = await respond(exchange, self._perform(message, opened, reply), write)
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
        await exchange.respond_batch(bodies)

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
