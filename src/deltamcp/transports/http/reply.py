"""Whom a call over HTTP talks to, and how it is performed and answered: by one body, or by an event stream."""

import abc
import asyncio
import functools
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from deltamcp.calls.engine import Engine
from deltamcp.context import Channel, ProgressReport
from deltamcp.dialects import versions
from deltamcp.errors import Fault, InputDeclinedError
from deltamcp.limits import Limits
from deltamcp.runtime.deadline import run_with_hook
from deltamcp.runtime.quota import Quota
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import PIECE_BYTES
from deltamcp.transports.http.exchange import AcceptedTypes, Exchange, HttpAnswer, Write
from deltamcp.transports.quota import SHUTTING_DOWN, TOO_MANY_CALLS, UNREAD
from deltamcp.transports.sessions.session import HandshakeSession
from deltamcp.transports.sessions.streams import SessionStreams, StoredStream
from deltamcp.values import JSON, Ask, Failure, Listen, Outcome, RequestId, SetLevel, Terms, Watch
from deltamcp.wire import sse

RETRY_MS = 100
"""How soon a client should reconnect after the server closed its stream."""


class WatchedChannel(Channel, abc.ABC):
    """The channel of a call over HTTP, which sends its response too. A call that waits ends if its client disconnects.

    It is a `WaitHook`: it watches the client from when the call first waits until its outcome is there, because the
    result of a function may wait for longer than the function took.
    """

    withdraw: Callable[[], Awaitable[None]] | None = None
    """Tells the engine that the client does not get what came of the call; only where later replies would refer to it.
    """
    departed: bool = False
    """Whether the call was cancelled because the client disconnected."""
    _task: asyncio.Task[Any] | None = None
    _watcher: asyncio.Task[None] | None = None

    def __init__(self, exchange: Exchange, limits: Limits, fairness_key: Hashable = None) -> None:
        """Calls take turns by the account, unless there is another `fairness_key`."""
        self.exchange = exchange
        self.fairness_key: Hashable = fairness_key or exchange.caller.account
        self.headers: dict[bytes, bytes] = exchange.headers
        self._limits = limits

    @abc.abstractmethod
    def finish(self, response: HttpAnswer) -> Awaitable[None]:
        """Sends the response. Await what it returns."""

    @abc.abstractmethod
    async def abandon(self) -> None:
        """Ends an event stream that has begun, without a response."""

    def on_wait(self) -> None:
        self._task = asyncio.current_task()
        self._watcher = asyncio.get_running_loop().create_task(self._watch_client())

    def on_end(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            # The task refers to this channel: without a reference back, no cycle is left to the garbage collector.
            self._watcher = self._task = None

    async def _watch_client(self) -> None:
        await asgi.wait_for_disconnect(self.exchange.receive)
        if self._task is not None and not self.outlives_client:
            self.departed = True
            self._task.cancel()

    @property
    def outlives_client(self) -> bool:
        """Whether the client can reconnect, so that the call goes on without it."""
        return False


class HttpReply(WatchedChannel):
    """Sends the response to one POST as one body, or as an event stream if a message precedes the response.

    In a session the server stores the events, so that the client can reconnect. While the call waits, the reply sends
    keep-alive comments.
    """

    _stream: StoredStream | None = None
    _started = False
    _detached = False
    _keep_alive_task: asyncio.Task[None] | None = None

    def __init__(
        self,
        exchange: Exchange,
        accepts: AcceptedTypes,
        limits: Limits,
        fairness_key: Hashable = None,
        session: HandshakeSession | None = None,
        streams: SessionStreams | None = None,
        request: RequestId | None = None,
    ) -> None:
        """`request` is the id of the request that the reply answers."""
        super().__init__(exchange, limits, fairness_key)
        self._send = exchange.send
        self._accepts = accepts
        self._session = session
        self._streams = streams
        self._request = request

    # While the call waits

    def on_wait(self) -> None:
        super().on_wait()
        self._timer = asyncio.get_running_loop().call_later(self._limits.ping_seconds, self._start_keep_alive)

    def on_end(self) -> None:
        if self._watcher is not None:
            self._timer.cancel()
            if self._keep_alive_task is not None:
                self._keep_alive_task.cancel()
                self._keep_alive_task = None
        super().on_end()

    @property
    def outlives_client(self) -> bool:
        return self._stream is not None

    def _start_keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        self._keep_alive_task = loop.create_task(self._send_comment())
        self._timer = loop.call_later(self._limits.ping_seconds, self._start_keep_alive)

    async def _send_comment(self) -> None:
        """Sends a comment, so that no proxy closes the connection during a long call. It starts the stream."""
        if self._accepts.events and not self._detached:
            await self._start()
            await asgi.send_event(self._send, sse.KEEP_ALIVE)

    # Messages

    async def notify(self, message: bytes) -> None:
        if self._accepts.events:
            await self._send_message(message)

    async def report(self, progress: ProgressReport) -> None:
        await self.notify(progress.notification())

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        assert self._session is not None, "only the handshake era asks by request"
        if self._streams is None:
            raise InputDeclinedError("This server keeps no sessions, so it cannot ask its clients anything.")
        if not self._accepts.events:
            raise InputDeclinedError("The client does not accept event streams, so it cannot be asked.")
        message, future, id_ = self._session.open_request(method, params)
        await self._send_message(message)
        try:
            return await self._session.await_response(id_, future, self._limits.input_seconds)
        except (asyncio.CancelledError, InputDeclinedError):
            await self._send_message(self._session.withdraw_request(id_))
            raise

    async def detach(self) -> None:
        if self._streams is None or not self._accepts.events or self._detached or not self._is_primed():
            return
        await self._start()
        self._detached = True
        await asgi.end_events(self._send)

    def finish(self, response: HttpAnswer) -> Awaitable[None]:
        if self._started or (self._accepts.prefers_events and response.status == 200):
            return self._send_last(response)
        return self.exchange.respond(response)

    async def _send_last(self, response: HttpAnswer) -> None:
        await self._send_message(response.body, response.instead and response.instead())
        await self.abandon()

    async def abandon(self) -> None:
        if self._stream is not None:
            self._stream.end()
        if self._started and not self._detached:
            await asgi.end_events(self._send)

    def _is_primed(self) -> bool:
        return self._session is not None and self._session.agreement.version >= versions.PRIMING_SINCE

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        if self._streams is not None:
            self._stream = self._streams.open()
            if self._stream.copy is not None and self._request is not None:
                await self._stream.copy.begin(self._request)
        await asgi.start_events(self._send)
        if self._stream is not None and self._is_primed():
            await asgi.send_event(self._send, sse.encode_priming_event(self._stream.event_id(0), RETRY_MS))

    async def _send_message(self, message: bytes, instead: bytes | None = None) -> None:
        await self._start()
        event = sse.encode_event(message) if self._stream is None else self._stream.append(message, instead)
        if not self._detached:
            await asgi.send_event(self._send, event)


class CallsInFlight:
    """Passes calls to the engine, a limited number at once of each account, and answers those that are cancelled."""

    def __init__(self, engine: Engine, quota: Quota) -> None:
        self._engine = engine
        self._quota = quota
        self.draining = False

    async def perform(
        self, understood: tuple[Terms, Ask] | Failure, reply: WatchedChannel, id_: RequestId, account: str
    ) -> Outcome | None:
        """Returns what comes of a request as its protocol understood it; None if the client has disconnected."""
        if isinstance(understood, Failure):
            return understood
        if not self._quota.take(account):
            return TOO_MANY_CALLS
        terms, ask = understood
        if terms.caller.is_remembered:
            reply.withdraw = functools.partial(self._engine.withdraw_reply, terms.caller, id_)
        assert not isinstance(ask, (Listen, SetLevel, Watch)), "a transport serves these itself"
        try:
            return await run_with_hook(self._engine.perform(ask, terms, reply, id_), reply)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "ASGI applications run in tasks"
            task.uncancel()
            if reply.departed:
                return None
            if self.draining:
                return SHUTTING_DOWN
            return Failure(Fault.CANCELLED, "The request was cancelled.")
        finally:
            self._quota.give_back(account)


async def serve(reply: WatchedChannel, performing: Awaitable[Outcome | None], write: Write) -> None:
    """Answers a request: awaits what comes of it, and sends it as its protocol writes it."""
    outcome = await performing
    if outcome is None:
        await reply.abandon()
        return
    answer = write(outcome)
    exchange = reply.exchange
    if len(answer.body) > PIECE_BYTES and not exchange.hold_response(len(answer.body)):
        answer = write(UNREAD)
        if reply.withdraw is not None:
            await reply.withdraw()
    if exchange.held:
        exchange.release_body()
    await reply.finish(answer)


async def respond(exchange: Exchange, performing: Awaitable[Outcome | None], write: Write) -> HttpAnswer | None:
    """Returns the response to a request of a batch, whose bytes count until the batch is answered.

    It is None if the client has disconnected.
    """
    outcome = await performing
    if outcome is None:
        return None
    answer = write(outcome)
    return answer if exchange.hold_response(len(answer.body)) else write(UNREAD)
