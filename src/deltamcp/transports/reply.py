"""The answer to one POST, and what happens to it when the client goes away."""

import asyncio
from collections.abc import Hashable
from typing import Any

from deltamcp.dialects import versions
from deltamcp.errors import InputDeclinedError
from deltamcp.limits import Limits
from deltamcp.session import Session
from deltamcp.transports import asgi
from deltamcp.transports.streams import Stream, Streams
from deltamcp.values import JSON
from deltamcp.wire import sse

RETRY_MS = 100
"""How soon a client that was let go should come back."""


class Reply:
    """JSON, unless something has to be said before the answer is ready: then a stream of events.

    It is the `Channel` of the call it answers. In a session its stream is kept, so that the client
    can take it up again.
    """

    __slots__ = ("_accepts", "_detached", "_limits", "_send", "_session", "_started", "_stream", "_streams", "caller")

    def __init__(
        self,
        send: asgi.Send,
        accepts: asgi.Accepts,
        caller: Hashable,
        limits: Limits,
        session: Session | None = None,
        streams: Streams | None = None,
    ) -> None:
        self.caller = caller
        self._send = send
        self._accepts = accepts
        self._limits = limits
        self._session = session
        self._streams = streams
        self._stream: Stream | None = None
        self._started = False
        self._detached = False

    @property
    def resumable(self) -> bool:
        """Whether a client that lost the connection can still get the answer."""
        return self._stream is not None

    async def notify(self, message: bytes) -> None:
        if self._accepts.events:
            await self._say(message)

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        assert self._session is not None, "only the handshake era asks by request"
        if not self._accepts.events:
            raise InputDeclinedError("The client does not accept event streams, so it cannot be asked.")
        message, future, id_ = self._session.open_request(method, params)
        await self._say(message)
        return await self._session.answer_to(id_, future, self._limits.input_seconds)

    async def detach(self) -> None:
        if self._session is None or not self._accepts.events or self._detached or not self._primes():
            return
        await self._start()
        self._detached = True
        await asgi.end_events(self._send)

    async def finish(self, body: bytes, status: int) -> None:
        """The answer itself."""
        if not self._started and not (self._accepts.rather_events and status == 200):
            await asgi.respond_json(self._send, status, body)
            return
        await self._say(body)
        await self.abandon()

    async def keep_alive(self) -> None:
        """A sign of life during a long call, so that no proxy closes the connection. It begins the stream."""
        if self._accepts.events and not self._detached:
            await self._start()
            await asgi.send_event(self._send, sse.COMMENT)

    async def abandon(self) -> None:
        """Ends without an answer what was begun."""
        if self._stream is not None:
            self._stream.end()
        if self._started and not self._detached:
            await asgi.end_events(self._send)

    def _primes(self) -> bool:
        return self._session is not None and self._session.agreement.version >= versions.PRIMING_SINCE

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        if self._streams is not None:
            self._stream = self._streams.open()
        await asgi.start_events(self._send)
        if self._stream is not None and self._primes():
            await asgi.send_event(self._send, sse.priming(self._stream.event_id(0), RETRY_MS))

    async def _say(self, message: bytes) -> None:
        await self._start()
        event = sse.event(message) if self._stream is None else self._stream.append(message)
        if not self._detached:
            await asgi.send_event(self._send, event)


class Departure:
    """A guard over a call that waits: gives signs of life, and cancels the call when its client goes away.

    A client that can come back for the answer has not gone away.
    """

    __slots__ = ("_beating", "_receive", "_reply", "_seconds", "_task", "_timer", "_watcher", "happened")

    def __init__(self, receive: asgi.Receive, reply: Reply, seconds: float) -> None:
        """Signs of life are given after so many `seconds` of silence."""
        self._receive = receive
        self._reply = reply
        self._seconds = seconds
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self.happened = False

    def arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._watcher = loop.create_task(self._watch())
        self._timer = loop.call_later(self._seconds, self._beat)

    def disarm(self) -> None:
        if self._watcher is not None and self._timer is not None:
            self._watcher.cancel()
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()

    async def _watch(self) -> None:
        await asgi.gone(self._receive)
        if not self._reply.resumable:
            self.happened = True
            assert self._task is not None, "armed before it watches"
            self._task.cancel()

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._beating = loop.create_task(self._reply.keep_alive())
        self._timer = loop.call_later(self._seconds, self._beat)
