"""One two-way connection: whole messages in, whole messages out, both eras side by side.

What stdio and memory share. The first message of a client decides: an `initialize` opens a handshake
session for the connection, a request with the modern `_meta` is served on its own. Where a handshake agreed on
another encoding than JSON, everything after its answer is in it, both ways.
"""

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol

from deltamcp.calls.engine import Engine
from deltamcp.dialects import delta_mcp, handshake, modern, versions
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.transports.session import Session, cancel
from deltamcp.values import (
    JSON,
    LOCAL,
    Ask,
    Failure,
    Filter,
    Kind,
    Listen,
    Malformed,
    Message,
    Notification,
    Outcome,
    Request,
    RequestId,
    Response,
    Terms,
)
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import CODECS, JSON_CODEC

logger = logging.getLogger("deltamcp")


Answering = Callable[[bytes | None], None]
"""Takes the answer to one request; None where it gets none, for its client has cancelled it."""


class End(Protocol):
    """The transport's side of a connection."""

    def write(self, message: bytes) -> None:
        """Sends a message, now or as soon as there is room for it."""
        ...

    async def room(self) -> None:
        """Returns when what was written has somewhere to go: those who talk a lot wait for it."""
        ...

    def freed(self) -> None:
        """A request has been dealt with."""
        ...


class Duplex:
    """Serves requests concurrently and writes their answers as they come."""

    def __init__(self, engine: Engine, end: End) -> None:
        self._engine = engine
        self._end = end
        self._write = end.write
        self._codec = JSON_CODEC
        self._stamp = modern.Stamp(engine.info, engine.cache_seconds)
        self._session: Session | None = None
        self._tasks: dict[RequestId, asyncio.Task[Any]] = {}
        self._listening: set[asyncio.Task[Any]] = set()
        self._draining = False

    @functools.cached_property
    def conversation(self) -> str:
        """This connection, among those that were and will be."""
        return secrets.token_hex(8)

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def put(self, message: bytes) -> None:
        """A message that belongs to no request, in JSON."""
        self._write(message)

    async def room(self) -> None:
        await self._end.room()

    def receive(self, body: bytes) -> None:
        """One message off the wire. Never raises."""
        message = codecs.read(body, self._codec, self._engine.limits)
        if isinstance(message, list):
            self._receive_batch(message)
        else:
            self._receive_one(message, self._answer)

    def _answer(self, message: bytes | None) -> None:
        if message is not None:
            self._write(message)

    def _receive_one(self, message: Message, answer: Answering) -> None:
        match message:
            case Request():
                self._begin(message, answer)
            case Notification():
                self._note(message)
            case Response():
                if self._session is not None:
                    self._session.resolve(message)
            case Malformed():
                answer(jsonrpc.malformed(message))

    def _receive_batch(self, messages: list[Message]) -> None:
        """MCP 2025-03-26 is the one revision with batches; its answers come back as one."""
        if self._session is None or self._session.agreement.version != versions.BATCHES_IN:
            refused = Malformed(Fault.INVALID_REQUEST, "Batches are not part of this protocol version.")
            self._write(jsonrpc.malformed(refused))
            return
        expected = sum(isinstance(message, Request | Malformed) for message in messages)
        answers: list[bytes] = []

        def gather(answer: bytes | None) -> None:
            nonlocal expected
            if answer is None:
                expected -= 1
            else:
                answers.append(answer)
            if answers and len(answers) == expected:
                self._write(b"[%b]" % b",".join(answers))

        for message in messages:
            self._receive_one(message, gather)

    # Requests

    def _begin(self, request: Request, answer: Answering) -> None:
        if request.id in self._tasks:
            failure = Failure(Fault.INVALID_REQUEST, f"A request with the id {request.id!r} is still in progress.")
            answer(_refused(request.id, failure))
            return

        def reply(message: bytes | None) -> None:
            # Before the client can know: with the answer in hand it may use the id again.
            self._tasks.pop(request.id, None)
            answer(message)

        if modern.is_modern(request):
            self._spawn(request.id, self._serve_modern(request, reply), answer)
        elif request.method == "initialize":
            answer(self._initialize(request))
            self._switch()
        elif self._session is None:
            if request.method == "ping":  # allowed before the handshake, "Initialization" in 2025-11-25
                answer(jsonrpc.result(request.id, b"{}"))
                return
            failure = Failure(Fault.INVALID_REQUEST, "Send initialize first, or the protocol version in params._meta.")
            answer(_refused(request.id, failure))
        else:
            self._spawn(request.id, self._serve_handshake(request, self._session, reply), answer)

    def _spawn(self, id_: RequestId, coroutine: Coroutine[Any, Any, None], answer: Answering) -> None:
        task = self._tasks[id_] = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(lambda _: self._finished(id_, task, answer))

    def _finished(self, id_: RequestId, task: "asyncio.Task[None]", answer: Answering) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Ours, not an author's: those end in the engine. Still, a request is never left unanswered.
            logger.error("request %r broke the server", id_, exc_info=error)
        if self._tasks.get(id_) is task:  # which the answer takes out
            del self._tasks[id_]
            broken = Failure(Fault.INTERNAL, "The server broke; its log says why.")
            answer(None if error is None else _refused(id_, broken))
        self._end.freed()

    def _initialize(self, request: Request) -> bytes:
        if self._session is not None:
            failure = Failure(Fault.INVALID_REQUEST, "This connection is initialized already.")
            return _refused(request.id, failure)
        agreement = handshake.agree(request.params, delta_mcp.LINE_ENCODINGS)
        if isinstance(agreement, Failure):
            return _refused(request.id, agreement)
        self._session = Session(agreement, self, LOCAL)
        return handshake.introduce(request.id, self._engine.about(), agreement, delta_mcp.LINE_ENCODINGS)

    def _switch(self) -> None:
        """To the encoding that was agreed on, once."""
        if self._session is None or self._codec.name == self._session.agreement.encoding:
            return
        codec = self._codec = CODECS[self._session.agreement.encoding]
        self._write = lambda message: self._end.write(codecs.transcoded(message, codec))

    async def _serve_handshake(self, request: Request, session: Session, answer: Answering) -> None:
        version = session.agreement.version
        understood = session.read(request)
        outcome: Outcome | None
        if isinstance(understood, Failure):
            outcome = understood
        else:
            terms, ask = understood
            outcome = session.settle(ask)
            if outcome is None:
                outcome = await self._perform(ask, terms, request.id)
        if outcome is not None:
            answer(written(handshake.write, request.id, session.retold(request, outcome), version))

    async def _serve_modern(self, request: Request, answer: Answering) -> None:
        meta = modern.envelope(request)
        understood = meta if isinstance(meta, Failure) else modern.read(request, meta, LOCAL)
        outcome: Outcome | None
        version = versions.MODERN[0]
        if isinstance(understood, Failure):
            outcome = understood
        else:
            terms, ask = understood
            version = terms.version
            if isinstance(ask, Listen):
                await self._listen(request.id, ask.filter)
                return
            outcome = await self._perform(ask, terms, request.id)
        if outcome is not None:
            answer(written(self._stamp.write, request.id, outcome, version))

    async def _perform(self, ask: Ask, terms: Terms, id_: RequestId) -> Outcome | None:
        """None where the client cancelled the request: then it gets no answer."""
        try:
            return await self._engine.perform(ask, terms, _DuplexChannel(self, self._session, self._engine.limits), id_)
        except asyncio.CancelledError:
            if not self._draining:
                return None
            return Failure(Fault.OVERLOADED, "The server is shutting down.")

    async def _listen(self, id_: RequestId, wanted: Filter) -> None:
        wanted = self._engine.honoured(wanted)
        self._write(modern.acknowledge(id_, wanted))
        subscription = Subscription(id_, wanted, self.put)
        self._engine.hub.join(subscription)
        task = asyncio.current_task()
        assert task is not None, "requests are served in tasks"
        self._listening.add(task)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._draining:
                self._write(modern.closing(id_))
        finally:
            self._listening.discard(task)
            self._engine.hub.leave(subscription)

    # Notifications

    def _note(self, notification: Notification) -> None:
        if notification.method == "notifications/cancelled":
            cancel(self._tasks, notification)
        elif notification.method == "notifications/initialized" and self._session is not None:
            self._engine.hub.join(self._session)

    # The end

    async def drain(self, seconds: float) -> None:
        """Lets what is in flight end; what has not ended by then is told so. Subscriptions end at once."""
        self._draining = True
        for task in self._listening:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        await self.close()

    async def close(self) -> None:
        """Cancels what is in flight."""
        if self._session is not None:
            self._engine.hub.leave(self._session)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)


class _DuplexChannel:
    """The way back over a connection that all requests share."""

    __slots__ = ("_duplex", "_limits", "_session")

    def __init__(self, duplex: Duplex, session: Session | None, limits: Limits) -> None:
        self._duplex = duplex
        self._limits = limits
        self._session = session

    @property
    def caller(self) -> Hashable:
        return id(self._duplex)

    @property
    def conversation(self) -> str:
        return self._duplex.conversation

    def arm(self) -> None:
        """A client that leaves closes the connection, and that ends everything."""

    def disarm(self) -> None: ...

    async def notify(self, message: bytes) -> None:
        self._duplex.put(message)
        await self._duplex.room()

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        assert self._session is not None, "only the handshake era asks by request"
        message, future, id_ = self._session.open_request(method, params)
        self._duplex.put(message)
        return await self._session.answer_to(id_, future, self._limits.input_seconds)

    async def detach(self) -> None:
        """There is only this connection: nothing to let go."""


class Subscription:
    """One `subscriptions/listen`: what passes its filter is sent under its id."""

    __slots__ = ("_filter", "_id", "_send")

    def __init__(self, id_: RequestId, wanted: Filter, send: Callable[[bytes], object]) -> None:
        self._id = id_
        self._filter = wanted
        self._send = send

    def wants(self, change: Kind | str) -> bool:
        return change in (self._filter.kinds if isinstance(change, Kind) else self._filter.uris)

    def hear(self, method: str, params: dict[str, JSON]) -> None:
        self._send(modern.notify(method, params, self._id))


def _refused(id_: RequestId, failure: Failure) -> bytes:
    """A failure that both eras report alike, where it is not settled yet which one is spoken."""
    return handshake.write(id_, failure, versions.HANDSHAKE[0])


def written(write: Callable[[RequestId, Outcome, str], bytes], id_: RequestId, outcome: Outcome, version: str) -> bytes:
    """An outcome as a dialect writes it, whatever an author put in it."""
    try:
        return write(id_, outcome, version)
    except ValueError as error:
        logger.error("an answer could not be written: %s", error)
        return write(id_, Failure(Fault.INTERNAL, "The answer could not be written as JSON."), version)
