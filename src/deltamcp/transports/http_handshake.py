"""POST, GET and DELETE in the handshake era: everything but `initialize` belongs to a session."""

import asyncio

from deltamcp.calls.engine import Engine
from deltamcp.dialects import delta_mcp, handshake, versions
from deltamcp.errors import FAULTS, Fault
from deltamcp.transports import asgi
from deltamcp.transports.asgi import Accepts, Incoming
from deltamcp.transports.calls_in_flight import Calls
from deltamcp.transports.duplex import written
from deltamcp.transports.event_streams import Following
from deltamcp.transports.http_reply import Reply
from deltamcp.transports.http_sessions import OpenSession, Sessions
from deltamcp.transports.session import cancel
from deltamcp.values import (
    Failure,
    Malformed,
    Message,
    Notification,
    Outcome,
    Request,
    RequestId,
    Response,
)
from deltamcp.wire import jsonrpc


class HandshakeSessions:
    """Opens sessions, serves what is sent in them, closes them."""

    def __init__(self, engine: Engine, calls: Calls) -> None:
        self._engine = engine
        self._calls = calls
        self._sessions = Sessions(engine.limits, engine.hub)

    def _find(self, incoming: Incoming) -> OpenSession | Failure:
        return self._sessions.find(incoming.headers.get(b"mcp-session-id"), incoming.principal)

    # POST

    async def answer(self, message: Message | list[Message], incoming: Incoming) -> None:
        if isinstance(message, Malformed):
            await asgi.answer_no_request(message, incoming.send)
            return
        id_: RequestId | None = None
        if isinstance(message, Request):
            id_ = message.id
            if message.method == "initialize" and b"mcp-session-id" not in incoming.headers:
                await self._initialize(message, incoming)
                return
        opened = self._find(incoming)
        if isinstance(opened, Failure):
            await asgi.refuse(incoming.send, opened, id_)
            return
        match message:
            case Request():
                await self._serve(message, opened, incoming)
            case Notification():
                self._note(message, opened)
                await asgi.accept(incoming.send)
            case Response():
                opened.session.resolve(message)
                await asgi.accept(incoming.send)
            case list():
                await self._serve_batch(message, opened, incoming)

    async def _initialize(self, request: Request, incoming: Incoming) -> None:
        agreement = handshake.agree(request.params, delta_mcp.ENCODINGS)
        if isinstance(agreement, Failure):
            await asgi.answer(incoming, 200, handshake.write(request.id, agreement, versions.HANDSHAKE[0]))
            return
        opened = self._sessions.open(agreement, incoming.principal)
        body = handshake.introduce(request.id, self._engine.about(), agreement, delta_mcp.ENCODINGS)
        await asgi.answer(incoming, 200, body, (b"mcp-session-id", opened.id.encode()))

    def _note(self, notification: Notification, opened: OpenSession) -> None:
        if notification.method == "notifications/initialized":
            self._engine.hub.join(opened.session)
        elif notification.method == "notifications/cancelled":
            cancel(opened.in_flight, notification)

    async def _serve(self, request: Request, opened: OpenSession, incoming: Incoming) -> None:
        reply = self._reply(opened, incoming, incoming.accepts or asgi.ONLY_JSON)
        outcome = await self._outcome(request, opened, reply)
        if outcome is None:
            await reply.abandon()
            return
        outcome = opened.session.retold(request, outcome)
        status = FAULTS[outcome.fault].handshake_http if isinstance(outcome, Failure) else 200
        await reply.finish(written(handshake.write, request.id, outcome, opened.session.agreement.version), status)

    def _reply(self, opened: OpenSession, incoming: Incoming, accepts: Accepts) -> Reply:
        return Reply(incoming, accepts, opened.id, self._engine.limits, opened.session, opened.streams)

    async def _outcome(self, request: Request, opened: OpenSession, reply: Reply) -> Outcome | None:
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
            return await self._calls.perform(ask, terms, reply, request.id)
        finally:
            opened.finished(request.id)

    async def _serve_batch(self, messages: list[Message], opened: OpenSession, incoming: Incoming) -> None:
        """MCP 2025-03-26 is the one revision with batches; its answers come back as one."""
        version = opened.session.agreement.version
        if version != versions.BATCHES_IN:
            await asgi.answer_no_request(messages, incoming.send)
            return
        answers: list[bytes] = []
        for message in messages:
            match message:
                case Request():
                    reply = self._reply(opened, incoming, asgi.ONLY_JSON)
                    outcome = await self._outcome(message, opened, reply)
                    if outcome is None:
                        return
                    outcome = opened.session.retold(message, outcome)
                    answers.append(written(handshake.write, message.id, outcome, version))
                case Notification():
                    self._note(message, opened)
                case Response():
                    opened.session.resolve(message)
                case Malformed():
                    answers.append(jsonrpc.malformed(message))
        if answers:
            await asgi.answer(incoming, 200, b"[%b]" % b",".join(answers))
        else:
            await asgi.accept(incoming.send)

    # GET and DELETE

    def listen(self, incoming: Incoming) -> Following | Failure:
        """GET: the stream of what belongs to no request, or one that was lost, from its last event on."""
        if incoming.accepts is None or not incoming.accepts.events:
            return Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
        opened = self._find(incoming)
        if isinstance(opened, Failure):
            return opened
        primed = opened.session.agreement.version >= versions.PRIMING_SINCE
        last = incoming.headers.get(b"last-event-id")
        resumed = None if last is None else opened.streams.resume(last.decode("latin-1"))
        if resumed is not None:
            # It ends with the answer it is for; nobody needs to end it.
            return Following(*resumed, primed=primed)
        # Where nothing is kept of the stream any more, there is nothing to redeliver: the client listens on.
        stream = opened.open_standalone()
        return Following(stream, stream.sent, primed=primed, close=stream.end)

    def end(self, incoming: Incoming) -> Failure | None:
        """DELETE."""
        opened = self._find(incoming)
        if isinstance(opened, Failure):
            return opened
        self._sessions.forget(opened)
        return None
