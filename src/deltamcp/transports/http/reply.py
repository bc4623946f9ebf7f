"""Whom a call over HTTP talks to, and how it is performed and answered: by one body, or by an event stream."""

import abc
import asyncio
import functools
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from deltamcp.calls.engine import Engine
from deltamcp.context import Channel, ProgressReport
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.deadline import run_with_hook
from deltamcp.runtime.quota import SHUTTING_DOWN, TOO_MANY_CALLS, UNREAD
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import PIECE_BYTES
from deltamcp.transports.http.exchange import Exchange, HttpAnswer, Write
from deltamcp.values import Ask, EngineAsk, Failure, Outcome, RequestId, Terms
from deltamcp.wire import frames

RETRY_MS = 100
"""How soon a client should reconnect after the server closed its stream."""


class WatchedChannel(Channel, abc.ABC):
    """The channel of a call over HTTP, which sends its response too. A call that waits ends if its client disconnects.

    It is a `WaitHook`: from when the call first waits until its outcome is there, it counts for its account and the
    client is watched, because the result of a function may wait for longer than the function took. A call that never
    waits is alone while it runs.
    """

    withdraw: Callable[[], Awaitable[None]] | None = None
    """Tells the engine that the client does not get what came of the call, to which later replies might refer."""
    departed: bool = False
    """Whether the call was cancelled because the client disconnected."""
    _task: asyncio.Task[Any] | None = None
    _watcher: asyncio.Task[None] | None = None

    def __init__(self, exchange: Exchange, limits: Limits, account: str = "", fairness_key: Hashable = None) -> None:
        """The call counts for the caller's account, unless there is another; calls take turns by `fairness_key`."""
        self.exchange = exchange
        self.account: str = account or exchange.caller.account
        self.fairness_key: Hashable = fairness_key or self.account
        self.headers: dict[bytes, bytes] = exchange.headers
        self._limits = limits

    @abc.abstractmethod
    def finish(self, response: HttpAnswer) -> Awaitable[None] | None:
        """Sends the response; returns what to await, unless all of it is sent."""

    @abc.abstractmethod
    async def abandon(self) -> None:
        """Ends an event stream that has begun, without a response."""

    def on_wait(self) -> None:
        self.exchange.quotas.calls.take(self.account)  # there was room when the call began, and nobody came since
        self._task = asyncio.current_task()
        self._watcher = asyncio.get_running_loop().create_task(self._watch_client())

    def on_end(self) -> None:
        assert self._watcher is not None, "the call has waited"
        self.exchange.quotas.calls.give_back(self.account)
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

    While the call waits, the reply sends keep-alive comments.
    """

    _started = False
    _detached = False
    """Whether the call goes on without its stream, because the client will reconnect."""
    _keep_alive_task: asyncio.Task[None] | None = None

    # While the call waits

    def on_wait(self) -> None:
        super().on_wait()
        self._timer = asyncio.get_running_loop().call_later(self._limits.ping_seconds, self._start_keep_alive)

    def on_end(self) -> None:
        super().on_end()
        self._timer.cancel()
        if self._keep_alive_task is not None:
            self._keep_alive_task.cancel()
            self._keep_alive_task = None

    def _start_keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        self._keep_alive_task = loop.create_task(self._send_comment())
        self._timer = loop.call_later(self._limits.ping_seconds, self._start_keep_alive)

    async def _send_comment(self) -> None:
        """Sends a comment, so that no proxy closes the connection during a long call. It starts the stream."""
        if self.exchange.accepts.events and not self._detached:
            await self._start()
            await asgi.send_event(self.exchange.send, frames.KEEP_ALIVE)

    # Messages

    async def notify(self, message: bytes) -> None:
        if self.exchange.accepts.events:
            await self._send_message(message)

    async def report(self, progress: ProgressReport) -> None:
        await self.notify(progress.notification())

    def finish(self, response: HttpAnswer) -> Awaitable[None] | None:
        if self._started or (self.exchange.accepts.prefers_events and response.status == 200):
            return self._send_last(response)
        return self.exchange.respond(response)

    async def _send_last(self, response: HttpAnswer) -> None:
        await self._send_message(response.body, response.instead and response.instead())
        await self.abandon()

    async def abandon(self) -> None:
        if self._started and not self._detached:
            await asgi.end_events(self.exchange.send)

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._open_stream()

    async def _open_stream(self) -> None:
        await asgi.start_events(self.exchange.send)

    async def _send_message(self, message: bytes, instead: bytes | None = None) -> None:
        await self._start()
        event = self._make_event(message, instead)
        if not self._detached:
            await asgi.send_event(self.exchange.send, event)

    def _make_event(self, message: bytes, instead: bytes | None) -> bytes:
        """Returns the event of a message; `instead` is for a client that reconnects, if the message is too large."""
        return frames.encode_event(message)


class CallsInFlight:
    """Passes calls to the engine, a limited number at once of each account, and answers those that are cancelled."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.draining = False

    async def perform(
        self, understood: tuple[Terms, Ask] | Failure, reply: WatchedChannel, id_: RequestId
    ) -> Outcome | None:
        """Returns what comes of a request as its protocol understood it; None if the client has disconnected."""
        if type(understood) is Failure:
            return understood
        if not reply.exchange.quotas.calls.has_room(reply.account):
            return TOO_MANY_CALLS
        terms, ask = understood
        reply.withdraw = functools.partial(self._engine.withdraw_reply, terms.caller, id_)
        engine_ask: EngineAsk = ask  # type: ignore[assignment]  # the other asks are served by transports themselves
        try:
            return await run_with_hook(self._engine.perform(engine_ask, terms, reply, id_), reply)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "ASGI applications run in tasks"
            task.uncancel()
            if reply.departed:
                return None
            if self.draining:
                return SHUTTING_DOWN
            return Failure(Fault.CANCELLED, "The request was cancelled.")


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
    sending = reply.finish(answer)
    if sending is not None:
        await sending


async def respond(exchange: Exchange, performing: Awaitable[Outcome | None], write: Write) -> HttpAnswer | None:
    """Returns the response to a request of a batch, whose bytes count until the batch is answered.

    It is None if the client has disconnected.
    """
    outcome = await performing
    if outcome is None:
        return None
    answer = write(outcome)
    return answer if exchange.hold_response(len(answer.body)) else write(UNREAD)
