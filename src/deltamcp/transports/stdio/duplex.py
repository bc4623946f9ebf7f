"""The server's side of a two-way connection, over stdio or in memory, that carries whole messages of every dialect.

An `initialize` opens a handshake session for the connection; a request with the modern `_meta` is served without one.
If the handshake agrees on another encoding than JSON, all messages after its response have that encoding, both ways.
"""

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from deltamcp.calls.engine import Engine
from deltamcp.calls.failures import encode_response
from deltamcp.context import Channel, ProgressReport
from deltamcp.dialects import versions
from deltamcp.dialects.dialect import StatelessDialect
from deltamcp.dialects.progressive_disclosure import LINE_ENCODINGS
from deltamcp.errors import Fault, InputDeclinedError
from deltamcp.limits import Limits
from deltamcp.runtime.quota import SHUTTING_DOWN
from deltamcp.transports.sessions.session import (
    FollowedPromises,
    HandshakeSession,
    Subscription,
    cancel_request,
    cancelled_id,
)
from deltamcp.values import (
    JSON,
    LOCAL,
    Ask,
    Caller,
    EngineAsk,
    Failure,
    Listen,
    LogLevel,
    Malformed,
    Message,
    Notification,
    Outcome,
    Principal,
    Request,
    RequestId,
    Response,
    SetLevel,
    Terms,
    Watch,
)
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import CODECS, JSON_CODEC
from deltamcp.wire.message_bounds import estimate_memory

logger: logging.Logger = logging.getLogger("deltamcp")

_SMALL_BYTES = 1024
"""A request of up to this size counts only as one of `Limits.in_flight`."""
_MAX_HELD_BYTES = 64 * 1024 * 1024
"""The memory of larger requests in progress, such as sixteen files of 4 MB in text."""

Respond = Callable[[bytes | None], None]
"""Sends the response to one request; None if the request has no response because the client cancelled it."""


class Connection(Protocol):
    """The transport's side of a connection."""

    def write(self, message: bytes) -> None:
        """Sends a message, or buffers it until it can be sent."""
        ...

    writable: asyncio.Event
    """Set while the buffer has space."""

    async def wait_writable(self) -> None:
        """Returns when the buffer has space.

        Requests wait for it before they are performed and before they are answered, so that for a client that does not
        read, the buffer holds one response more than its size.
        """
        ...

    def request_finished(self) -> None:
        """Handles the end of a request, after which the connection may read the next one."""
        ...


class Duplex:
    """Serves requests concurrently, and writes each response as soon as it is ready."""

    def __init__(self, engine: Engine, connection: Connection, principal: Principal = LOCAL) -> None:
        """`principal` is whoever the connection is for: on a pipe and in memory, the user who started this process."""
        self._engine = engine
        self._principal = principal
        self._connection = connection
        self._write = connection.write
        self._codec = JSON_CODEC
        self._session: HandshakeSession | None = None
        self._local_session: _LocalDuplexSession | None = None
        self.in_flight: dict[RequestId, asyncio.Task[Any]] = {}
        """The requests in progress, by their ids."""
        self._listening: set[asyncio.Task[Any]] = set()
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._held_bytes = 0
        self._draining = False

    @functools.cached_property
    def caller(self) -> Caller:
        """The caller of every request; its conversation is this connection."""
        return self._engine.identify(self._principal, secrets.token_hex(8))

    def put(self, message: bytes) -> None:
        """Sends a JSON message that is no response, in the encoding of the connection."""
        self._write(message)

    async def wait_writable(self) -> None:
        await self._connection.wait_writable()

    def receive(self, body: bytes) -> None:
        """Handles one message from the client. It never raises."""
        message = self._codec.read_messages(body, self._engine.limits)
        held = 0 if len(body) <= _SMALL_BYTES else estimate_memory(body)
        if isinstance(message, list):
            self._receive_batch(message, held // len(message))
        else:
            self._receive_one(message, held, self._respond)

    def _respond(self, message: bytes | None) -> None:
        if message is not None:
            self._write(message)

    def _receive_one(self, message: Message, held: int, respond: Respond) -> None:
        match message:
            case Request():
                self._begin(message, held, respond)
            case Notification():
                self._receive_notification(message)
            case Response():
                if self._session is not None:
                    self._session.resolve(message)
            case Malformed():
                respond(self._refuse_message(message))

    def _refuse_message(self, message: Malformed) -> bytes:
        """Returns the response to a message that could not be read."""
        return jsonrpc.encode_malformed(message)

    @property
    def _takes_batches(self) -> bool:
        return self._session is not None and self._session.agreement.version == versions.BATCHES_IN

    def _receive_batch(self, messages: list[Message], held: int) -> None:
        """Handles a batch, which only MCP 2025-03-26 has, and writes its responses as one batch.

        `held` is the average memory of its messages.
        """
        if not self._takes_batches:
            refused = Malformed(Fault.INVALID_REQUEST, "Batches are not part of this protocol version.")
            self._write(self._refuse_message(refused))
            return
        expected = sum(isinstance(message, Request | Malformed) for message in messages)
        responses: list[bytes] = []

        def gather(response: bytes | None) -> None:
            nonlocal expected
            if response is None:
                expected -= 1
            else:
                responses.append(response)
            if responses and len(responses) == expected:
                self._write(b"[%b]" % b",".join(responses))

        for message in messages:
            self._receive_one(message, held, gather)

    # Requests

    def _begin(self, request: Request, held: int, respond: Respond) -> None:
        if request.id in self.in_flight:
            respond(self._refuse(request, f"A request with the id {request.id!r} is still in progress."))
            return
        if held and self._held_bytes + held > _MAX_HELD_BYTES:
            failure = Failure(Fault.OVERLOADED, "Too many large requests are in progress; send this one again later.")
            respond(self._write_failure(request, failure))
            return
        self._start(request, held, respond)

    def _start(self, request: Request, held: int, respond: Respond) -> None:
        """Serves a request whose id is free."""
        dialect = self._engine.dialects.find_stateless(request)
        if dialect is not None:
            understood = dialect.read(request, self.caller)
            self._spawn(request, held, self._serve(request, dialect, understood, respond), respond)
        elif request.method == "initialize":
            respond(self._initialize(request))
            self._switch_codec()
        elif self._session is not None:
            self._spawn(request, held, self._serve_in_session(request, self._session, respond), respond)
        elif request.method == "ping":  # allowed before the handshake, "Initialization" in 2025-11-25
            respond(jsonrpc.encode_result(request.id, b"{}"))
        else:
            respond(self._refuse(request, "Send initialize first, or the protocol version in params._meta."))

    def _spawn(self, request: Request, held: int, coroutine: Coroutine[Any, Any, None], respond: Respond) -> None:
        task = self.in_flight[request.id] = asyncio.get_running_loop().create_task(coroutine)
        self._held_bytes += held
        task.add_done_callback(functools.partial(self._end, request, held, respond))

    def _finish(self, request: Request, respond: Respond, response: bytes) -> None:
        # Before the response is sent, because the client may then use the id again.
        self.in_flight.pop(request.id, None)
        respond(response)

    def _end(self, request: Request, held: int, respond: Respond, task: "asyncio.Task[None]") -> None:
        self._held_bytes -= held
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # A fault of this library: the engine handles those of authors. The client still gets a response.
            logger.error("request %r failed inside the server", request.id, exc_info=error)
        if self.in_flight.get(request.id) is task:  # there was no response, which would have removed it
            del self.in_flight[request.id]
            failure = Failure(Fault.INTERNAL, "The server failed; its log says why.")
            respond(None if error is None else self._write_failure(request, failure))
        self._connection.request_finished()

    def _refuse(self, request: Request, message: str) -> bytes:
        return self._write_failure(request, Failure(Fault.INVALID_REQUEST, message))

    def _write_failure(self, request: Request, failure: Failure) -> bytes:
        """Returns the response for a failure of a request whose dialect is not known yet."""
        return self._engine.dialects.default.write(request, failure, versions.HANDSHAKE[0])

    def _initialize(self, request: Request) -> bytes:
        if self._session is not None:
            return self._refuse(request, "This connection is initialized already.")
        dialect = self._engine.dialects.find_session(request)
        agreement = dialect.agree(request.params, LINE_ENCODINGS)
        if isinstance(agreement, Failure):
            return self._write_failure(request, agreement)
        self._session = HandshakeSession(dialect, agreement, self, self.caller)
        if self._principal is LOCAL:
            channel = _DuplexChannel(self, self._session, self._engine.limits)
            self._local_session = _LocalDuplexSession(self._session, channel)
            self._engine.local_sessions.add(self._local_session)
        return dialect.introduce(request, self._engine.capabilities.about(self._principal), agreement, LINE_ENCODINGS)

    def _switch_codec(self) -> None:
        """Reads and writes from now on in the encoding that the handshake agreed on."""
        if self._session is None or self._codec.name == self._session.agreement.encoding:
            return
        codec = self._codec = CODECS[self._session.agreement.encoding]
        self._write = lambda message: self._connection.write(codecs.transcode(message, codec))

    async def _serve_in_session(self, request: Request, session: HandshakeSession, respond: Respond) -> None:
        understood = session.read(request)
        outcome: Outcome | None
        if isinstance(understood, Failure):
            outcome = understood
        else:
            terms, ask = understood
            match ask:
                case SetLevel() | Watch():
                    outcome = session.apply(ask)
                    if isinstance(ask, Watch):
                        self._engine.hub.watch(session, (ask.uri,))
                    elif self._local_session is not None:
                        self._engine.local_sessions.on_log_level(ask.level)
                case Listen():
                    raise AssertionError("a session has no subscriptions of this kind")
                case _:
                    outcome = await self._perform(ask, terms, request.id)
        if outcome is not None:
            if not self._connection.writable.is_set():
                await self._connection.wait_writable()
            self._finish(request, respond, session.write(request, outcome))

    async def _serve(
        self,
        request: Request,
        dialect: StatelessDialect,
        understood: tuple[Terms, Ask] | Failure,
        respond: Respond,
    ) -> None:
        outcome: Outcome | None
        version = versions.MODERN[0]
        if isinstance(understood, Failure):
            outcome = understood
        else:
            terms, ask = understood
            version = terms.version
            match ask:
                case Listen():
                    accepted = await self._engine.accept_filter(ask.filter, self.caller)
                    subscription = Subscription(dialect, request, version, accepted, self.put, self.caller.principal)
                    await self._listen(subscription, accepted.tokens)
                    return
                case SetLevel() | Watch():
                    raise AssertionError("only a session reads asks that change it")
                case _:
                    outcome = await self._perform(ask, terms, request.id)
        if outcome is not None:
            if not self._connection.writable.is_set():
                await self._connection.wait_writable()
            self._finish(request, respond, encode_response(dialect, request, outcome, version))

    async def _perform(self, ask: EngineAsk, terms: Terms, id_: RequestId) -> Outcome | None:
        """Returns the engine's outcome; None if the client cancelled the request, which then has no response."""
        try:
            if not self._connection.writable.is_set():
                await self._connection.wait_writable()
            return await self._engine.perform(ask, terms, _DuplexChannel(self, self._session, self._engine.limits), id_)
        except asyncio.CancelledError:
            if not self._draining:
                return None
            return SHUTTING_DOWN

    async def _listen(self, subscription: Subscription, tokens: Collection[str]) -> None:
        subscription.acknowledge()
        self._engine.hub.subscribe(subscription)
        followed = FollowedPromises(self._engine, tokens, self.caller, subscription.notify_of_promise)
        task = asyncio.current_task()
        assert task is not None, "requests are served in tasks"
        self._listening.add(task)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._draining:
                subscription.end()
        finally:
            self._listening.discard(task)
            followed.stop()
            self._engine.hub.unsubscribe(subscription)

    # Notifications

    def _receive_notification(self, notification: Notification) -> None:
        if notification.method == "notifications/cancelled":
            id_ = cancelled_id(notification, self._engine.limits)
            cancel_request(self.in_flight, id_)
            if id_ is not None:
                withdrawal = asyncio.get_running_loop().create_task(self._engine.withdraw_reply(self.caller, id_))
                self._withdrawals.add(withdrawal)
                withdrawal.add_done_callback(self._withdrawals.discard)
        elif notification.method == "notifications/initialized" and self._session is not None:
            self._engine.hub.subscribe(self._session)
            if self._local_session is not None and "roots" in self._session.agreement.capabilities:
                self._engine.local_sessions.on_roots_changed()
        elif notification.method == "notifications/roots/list_changed" and self._local_session is not None:
            self._engine.local_sessions.on_roots_changed()

    # The end

    async def drain(self, seconds: float) -> None:
        """Waits up to `seconds` for requests in flight, then fails the rest. Subscriptions end at once."""
        self._draining = True
        for task in self._listening:
            task.cancel()
        if self.in_flight:
            await asyncio.wait(self.in_flight.values(), timeout=seconds)
        await self.close()

    async def close(self) -> None:
        """Cancels the requests in flight."""
        if self._session is not None:
            self._engine.hub.unsubscribe(self._session)
        if self._local_session is not None:
            self._engine.local_sessions.discard(self._local_session)
        tasks = list(self.in_flight.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)


class _DuplexChannel(Channel):
    """The channel of one request, over the connection that all requests share."""

    __slots__ = ("_duplex", "_limits", "_session", "fairness_key")
    headers: Mapping[bytes, bytes] = MappingProxyType({})

    def __init__(self, duplex: Duplex, session: HandshakeSession | None, limits: Limits) -> None:
        self.fairness_key: Hashable = id(duplex)
        self._duplex = duplex
        self._limits = limits
        self._session = session

    async def notify(self, message: bytes) -> None:
        self._duplex.put(message)
        await self._duplex.wait_writable()

    async def report(self, progress: ProgressReport) -> None:
        await self.notify(progress.notification())

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        assert self._session is not None, "only the handshake era asks by request"
        message, future, id_ = self._session.open_request(method, params)
        self._duplex.put(message)
        try:
            return await self._session.await_response(id_, future, self._limits.input_seconds)
        except (asyncio.CancelledError, InputDeclinedError):
            self._duplex.put(self._session.withdraw_request(id_))
            raise


class _LocalDuplexSession:
    """The `LocalSession` of a connection."""

    def __init__(self, session: HandshakeSession, channel: _DuplexChannel) -> None:
        self._session = session
        self.request = channel.request
        self.notify = session.notify

    @property
    def capabilities(self) -> Mapping[str, JSON]:
        return self._session.agreement.capabilities

    @property
    def log_level(self) -> LogLevel | None:
        return self._session.agreement.log_level
