"""HTTP requests of the handshake era: POST, GET and DELETE. All but an `initialize` belong to a session."""

import asyncio

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.progressive_disclosure import ENCODINGS
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import AcceptedTypes, HttpRequest
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.event_streams import FollowedStream
from deltamcp.transports.handshake_session import cancelled_id
from deltamcp.transports.http_reply import HttpReply
from deltamcp.transports.http_sessions import HttpSession, HttpSessions
from deltamcp.transports.no_sessions import NoSessions
from deltamcp.transports.quota import TOO_MANY_CALLS, UNREAD, HttpQuotas
from deltamcp.transports.session_directory import SESSION_HEADER, SessionDirectory
from deltamcp.transports.shared_sessions import SharedSessions
from deltamcp.transports.stream_copies import StreamCopies
from deltamcp.values import (
    Caller,
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

    def __init__(self, engine: Engine, calls: CallsInFlight, quotas: HttpQuotas, keep_sessions: bool) -> None:
        self._engine = engine
        self._calls = calls
        self._sessions = make_directory(engine, quotas, keep_sessions)

    async def _find(self, incoming: HttpRequest) -> HttpSession | Failure:
        return await self._sessions.find(incoming)

    # POST

    def count_sessions(self) -> int:
        """Returns how many sessions this process holds."""
        return len(self._sessions)

    async def answer(self, message: Message | list[Message], incoming: HttpRequest) -> None:
        """Serves the body of a POST and sends the response."""
        if isinstance(message, Malformed):
            await asgi_messages.refuse_message(message, incoming)
            return
        id_: RequestId | None = None
        if isinstance(message, Request):
            id_ = message.id
            is_named = SESSION_HEADER in incoming.headers and self._sessions.are_kept
            if message.method == "initialize" and not is_named:
                await self._initialize(message, incoming)
                return
        opened = await self._find(incoming)
        if isinstance(opened, Failure):
            await asgi_messages.refuse(incoming, opened, id_)
            return
        match message:
            case Request():
                await self._serve(message, opened, incoming)
            case Notification() | Response():
                failure = await self._receive(message, opened)
                if failure is None:
                    await asgi_messages.respond_accepted(incoming.send)
                else:
                    await asgi_messages.refuse(incoming, failure)
            case list():
                async with incoming.place_of_batch(self._engine.limits.body_seconds) as is_free:
                    if is_free:
                        await self._serve_batch(message, opened, incoming)
                    else:
                        await asgi_messages.refuse(incoming, TOO_MANY_CALLS)

    async def _initialize(self, request: Request, incoming: HttpRequest) -> None:
        dialects = self._engine.dialects
        dialect = dialects.find_session(request) if self._sessions.are_kept else dialects.default
        agreement = dialect.agree(request.params, ENCODINGS)
        if isinstance(agreement, Failure):
            await asgi_messages.respond_to(incoming, 200, dialect.write(request, agreement, versions.HANDSHAKE[0]))
            return
        opened = await self._sessions.open(dialect, agreement, incoming.caller.principal, incoming.account)
        if isinstance(opened, Failure):
            await asgi_messages.refuse(incoming, opened, request.id)
            return
        about = self._sessions.describe(self._engine.capabilities.about(incoming.caller.principal))
        body = opened.session.dialect.introduce(request, about, agreement, ENCODINGS)
        headers = ((SESSION_HEADER, opened.id.encode()),) if self._sessions.are_kept else ()
        await asgi_messages.respond_to(incoming, 200, body, *headers)

    async def _receive(self, message: Notification | Response, opened: HttpSession) -> Failure | None:
        if isinstance(message, Response):
            return await self._sessions.resolve(opened, message)
        if message.method == "notifications/initialized":
            self._sessions.start_listening(opened)
        elif message.method == "notifications/cancelled":
            return await self._sessions.cancel(opened, cancelled_id(message, self._engine.limits))
        return None

    async def _serve(self, request: Request, opened: HttpSession, incoming: HttpRequest) -> None:
        session = opened.session
        reply = self._reply(opened, incoming, incoming.accepts or asgi_messages.ONLY_JSON, request.id)
        outcome = await self._perform(request, opened, reply)
        if outcome is None:
            await reply.abandon()
            return
        body = session.write(request, outcome)
        if not reply.reserve(len(body)):
            outcome = UNREAD
            body = session.write(request, outcome)
        failure = outcome if isinstance(outcome, Failure) else None
        status = 200 if failure is None else session.dialect.http_status(failure)
        instead = session.write(request, _FORGOTTEN) if reply.is_stream(status) else None
        incoming.release()
        await reply.finish(body, status, instead, failure)

    def _reply(
        self, opened: HttpSession, incoming: HttpRequest, accepts: AcceptedTypes, id_: RequestId | None = None
    ) -> HttpReply:
        streams = opened.streams if self._sessions.are_kept else None
        key = opened.id or opened.account
        return HttpReply(incoming, accepts, key, self._engine.limits, opened.session, streams, id_)

    async def _perform(self, request: Request, opened: HttpSession, reply: HttpReply) -> Outcome | None:
        if request.id in opened.in_flight:
            return Failure(Fault.INVALID_REQUEST, f"A request with the id {request.id!r} is still in progress.")
        understood = opened.session.read(request)
        if isinstance(understood, Failure):
            return understood
        terms, ask = understood
        match ask:
            case SetLevel() | Watch():
                return await self._sessions.apply(opened, ask)
            case Listen():
                raise AssertionError("a session has no subscriptions of this kind")
            case _:
                task = asyncio.current_task()
                assert task is not None, "ASGI applications run in tasks"
                opened.in_flight[request.id] = task
                self._sessions.begin_use(opened)
                try:
                    return await self._calls.perform(ask, terms, reply, request.id, opened.account)
                finally:
                    opened.in_flight.pop(request.id, None)
                    self._sessions.end_use(opened)

    async def _serve_batch(self, messages: list[Message], opened: HttpSession, incoming: HttpRequest) -> None:
        """Serves a batch, which only MCP 2025-03-26 has, and sends its responses as one batch."""
        if opened.session.agreement.version != versions.BATCHES_IN:
            await asgi_messages.refuse_message(messages, incoming)
            return
        responses: list[bytes] = []
        size = 0
        caller = opened.session.caller
        for message in messages:
            await self._engine.computations.take_turn(incoming.account)
            if opened.streams.is_closed:
                await asgi_messages.refuse(incoming, _ENDED)
                return
            match message:
                case Request():
                    reply = self._reply(opened, incoming, asgi_messages.ONLY_JSON)
                    # Meanwhile another token of the same principal, with other scopes, may have used the session.
                    opened.session.caller = caller
                    outcome = await self._perform(message, opened, reply)
                    if outcome is None:
                        return
                    body = opened.session.write(message, outcome)
                    if size + len(body) > self._engine.limits.message_bytes:
                        body = opened.session.write(message, _BATCH_TOO_LARGE)
                    elif not reply.reserve(len(body), in_batch=True):
                        body = opened.session.write(message, UNREAD)
                    size += len(body)
                    responses.append(body)
                case Notification() | Response():
                    failure = await self._receive(message, opened)
                    if failure is not None:
                        await asgi_messages.refuse(incoming, failure)
                        return
                case Malformed():
                    responses.append(jsonrpc.encode_malformed(message))
        if not responses:
            await asgi_messages.respond_accepted(incoming.send)
            return
        reply = self._reply(opened, incoming, asgi_messages.ONLY_JSON)
        await reply.finish(b"[%b]" % b",".join(responses), 200)

    # GET and DELETE

    async def listen(self, incoming: HttpRequest) -> FollowedStream | Failure:
        """Serves GET: returns the stream of messages outside requests, or the one that `Last-Event-ID` resumes."""
        if incoming.accepts is None or not incoming.accepts.events:
            return Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
        opened = await self._find(incoming)
        if isinstance(opened, Failure):
            return opened
        streams, account = incoming.quotas.streams, incoming.account
        if not streams.take(account):
            return Failure(Fault.OVERLOADED, "Too many streams are open; close one first.")
        self._sessions.begin_use(opened)
        last = incoming.headers.get(b"last-event-id")
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

    async def end(self, incoming: HttpRequest) -> Failure | None:
        """Serves DELETE: ends the session."""
        opened = await self._find(incoming)
        return opened if isinstance(opened, Failure) else await self._sessions.end(opened)


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
