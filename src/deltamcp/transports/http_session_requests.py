"""HTTP requests of the handshake era: POST, GET and DELETE. All but an `initialize` belong to a session."""

import asyncio

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.progressive_disclosure import ENCODINGS
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import AcceptedTypes, HttpRequest
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.event_streams import FollowedStream
from deltamcp.transports.handshake_session import cancel_request
from deltamcp.transports.http_reply import HttpReply
from deltamcp.transports.http_sessions import HttpSession, HttpSessions
from deltamcp.values import (
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
from deltamcp.wire import jsonrpc


class SessionRequests:
    """Opens sessions, serves the requests in them, and closes them."""

    def __init__(self, engine: Engine, calls: CallsInFlight) -> None:
        self._engine = engine
        self._calls = calls
        self._sessions = HttpSessions(engine.limits, engine.hub, engine.identify)

    def _find(self, incoming: HttpRequest) -> HttpSession | Failure:
        return self._sessions.find(incoming.headers.get(b"mcp-session-id"), incoming.principal)

    # POST

    async def answer(self, message: Message | list[Message], incoming: HttpRequest) -> None:
        """Serves the body of a POST and sends the response."""
        if isinstance(message, Malformed):
            await asgi_messages.refuse_message(message, incoming.send)
            return
        id_: RequestId | None = None
        if isinstance(message, Request):
            id_ = message.id
            if message.method == "initialize" and b"mcp-session-id" not in incoming.headers:
                await self._initialize(message, incoming)
                return
        opened = self._find(incoming)
        if isinstance(opened, Failure):
            await asgi_messages.refuse(incoming.send, opened, id_)
            return
        match message:
            case Request():
                await self._serve(message, opened, incoming)
            case Notification():
                self._receive_notification(message, opened)
                await asgi_messages.respond_accepted(incoming.send)
            case Response():
                opened.session.resolve(message)
                await asgi_messages.respond_accepted(incoming.send)
            case list():
                await self._serve_batch(message, opened, incoming)

    async def _initialize(self, request: Request, incoming: HttpRequest) -> None:
        dialect = self._engine.dialects.find_session(request)
        agreement = dialect.agree(request.params, ENCODINGS)
        if isinstance(agreement, Failure):
            await asgi_messages.respond_to(incoming, 200, dialect.write(request, agreement, versions.HANDSHAKE[0]))
            return
        opened = self._sessions.open(dialect, agreement, incoming.principal)
        body = dialect.introduce(request, self._engine.capabilities.about(), agreement, ENCODINGS)
        await asgi_messages.respond_to(incoming, 200, body, (b"mcp-session-id", opened.id.encode()))

    def _receive_notification(self, notification: Notification, opened: HttpSession) -> None:
        if notification.method == "notifications/initialized":
            self._engine.hub.subscribe(opened.session)
        elif notification.method == "notifications/cancelled":
            cancel_request(opened.in_flight, notification)

    async def _serve(self, request: Request, opened: HttpSession, incoming: HttpRequest) -> None:
        session = opened.session
        reply = self._reply(opened, incoming, incoming.accepts or asgi_messages.ONLY_JSON)
        outcome = await self._perform(request, opened, reply)
        if outcome is None:
            await reply.abandon()
            return
        status = session.dialect.http_status(outcome) if isinstance(outcome, Failure) else 200
        await reply.finish(session.write(request, outcome), status)

    def _reply(self, opened: HttpSession, incoming: HttpRequest, accepts: AcceptedTypes) -> HttpReply:
        return HttpReply(incoming, accepts, opened.id, self._engine.limits, opened.session, opened.streams)

    async def _perform(self, request: Request, opened: HttpSession, reply: HttpReply) -> Outcome | None:
        if request.id in opened.in_flight:
            return Failure(Fault.INVALID_REQUEST, f"A request with the id {request.id!r} is still in progress.")
        understood = opened.session.read(request)
        if isinstance(understood, Failure):
            return understood
        terms, ask = understood
        match ask:
            case SetLevel() | Watch():
                return opened.session.apply(ask)
            case Listen():
                raise AssertionError("a session has no subscriptions of this kind")
            case _:
                task = asyncio.current_task()
                assert task is not None, "ASGI applications run in tasks"
                opened.in_flight[request.id] = task
                try:
                    return await self._calls.perform(ask, terms, reply, request.id)
                finally:
                    opened.request_finished(request.id)

    async def _serve_batch(self, messages: list[Message], opened: HttpSession, incoming: HttpRequest) -> None:
        """Serves a batch, which only MCP 2025-03-26 has, and sends its responses as one batch."""
        if opened.session.agreement.version != versions.BATCHES_IN:
            await asgi_messages.refuse_message(messages, incoming.send)
            return
        responses: list[bytes] = []
        for message in messages:
            match message:
                case Request():
                    reply = self._reply(opened, incoming, asgi_messages.ONLY_JSON)
                    outcome = await self._perform(message, opened, reply)
                    if outcome is None:
                        return
                    responses.append(opened.session.write(message, outcome))
                case Notification():
                    self._receive_notification(message, opened)
                case Response():
                    opened.session.resolve(message)
                case Malformed():
                    responses.append(jsonrpc.encode_malformed(message))
        if responses:
            await asgi_messages.respond_to(incoming, 200, b"[%b]" % b",".join(responses))
        else:
            await asgi_messages.respond_accepted(incoming.send)

    # GET and DELETE

    def listen(self, incoming: HttpRequest) -> FollowedStream | Failure:
        """Serves GET: returns the stream of messages outside requests, or the one that `Last-Event-ID` resumes."""
        if incoming.accepts is None or not incoming.accepts.events:
            return Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
        opened = self._find(incoming)
        if isinstance(opened, Failure):
            return opened
        primed = opened.session.agreement.version >= versions.PRIMING_SINCE
        last = incoming.headers.get(b"last-event-id")
        resumed = None if last is None else opened.streams.resume(last.decode("latin-1"))
        if resumed is not None:
            # A resumed stream ends with its response, so it needs no `close`.
            return FollowedStream(*resumed, primed=primed)
        # The events of a forgotten stream cannot be sent again, so the client gets the GET stream.
        stream = opened.open_standalone()
        return FollowedStream(stream, stream.sent, primed=primed, close=stream.end)

    def end(self, incoming: HttpRequest) -> Failure | None:
        """Serves DELETE: ends the session."""
        opened = self._find(incoming)
        if isinstance(opened, Failure):
            return opened
        self._sessions.forget(opened)
        return None
