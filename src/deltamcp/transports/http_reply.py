"""The reply to one POST, and its handling of clients that disconnect."""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any

from deltamcp.context import ProgressReport
from deltamcp.dialects import versions
from deltamcp.errors import InputDeclinedError
from deltamcp.limits import Limits
from deltamcp.transports import asgi_messages
from deltamcp.transports.event_streams import SessionStreams, StoredStream
from deltamcp.transports.handshake_session import HandshakeSession
from deltamcp.values import JSON, Failure, RequestId
from deltamcp.wire import sse
from deltamcp.wire.codecs import JSON_CODEC

RETRY_MS = 100
"""How soon a client should reconnect after the server closed its stream."""


class HttpReply:
    """Sends the response to one POST as one body, or as an event stream if a message precedes the response.

    It is the `Channel` of the call that it answers. In a session the server stores the events, so that the client can
    reconnect. While the call waits, the reply sends keep-alive comments and watches whether the client disconnects; it
    then cancels the call, unless the client can reconnect.
    """

    __slots__ = (
        "_accepts",
        "_detached",
        "_incoming",
        "_keep_alive_task",
        "_limits",
        "_request",
        "_send",
        "_session",
        "_started",
        "_stream",
        "_streams",
        "_task",
        "_timer",
        "_watcher",
        "departed",
        "fairness_key",
    )

    def __init__(
        self,
        incoming: asgi_messages.HttpRequest,
        accepts: asgi_messages.AcceptedTypes,
        fairness_key: Hashable,
        limits: Limits,
        session: HandshakeSession | None = None,
        streams: SessionStreams | None = None,
        request: RequestId | None = None,
    ) -> None:
        """`request` is the id of the request that the reply answers."""
        self.fairness_key = fairness_key
        self.departed = False
        """Whether the call was cancelled because the client disconnected."""
        self._incoming = incoming
        self._send = incoming.send
        self._accepts = accepts
        self._limits = limits
        self._session = session
        self._streams = streams
        self._request = request
        self._stream: StoredStream | None = None
        self._started = False
        self._detached = False
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return self._incoming.headers

    # While the call waits

    def on_wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._watcher = loop.create_task(self._watch_client())
        self._keep_alive_task: asyncio.Task[None] | None = None
        self._timer = loop.call_later(self._limits.ping_seconds, self._start_keep_alive)

    def on_end(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._timer.cancel()
            if self._keep_alive_task is not None:
                self._keep_alive_task.cancel()
            # The tasks refer to this reply: without references back, no cycle is left to the garbage collector.
            self._watcher = self._task = self._keep_alive_task = None

    async def _watch_client(self) -> None:
        await asgi_messages.wait_for_disconnect(self._incoming.receive)
        if self._stream is None and self._task is not None:
            self.departed = True
            self._task.cancel()

    def _start_keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        self._keep_alive_task = loop.create_task(self._send_comment())
        self._timer = loop.call_later(self._limits.ping_seconds, self._start_keep_alive)

    async def _send_comment(self) -> None:
        """Sends a comment, so that no proxy closes the connection during a long call. It starts the stream."""
        if self._accepts.events and not self._detached:
            await self._start()
            await asgi_messages.send_event(self._send, sse.KEEP_ALIVE)

    # Messages

    @property
    def takes_every_progress(self) -> bool:
        return False

    async def notify(self, message: bytes) -> None:
        if self._accepts.events:
            await self._send_message(message)

    async def report(self, progress: ProgressReport) -> None:
        await self.notify(progress.notification())

    async def send_part(self, part: JSON) -> None:
        """Does nothing: MCP sends whole results."""

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
        await asgi_messages.end_events(self._send)

    def is_stream(self, status: int) -> bool:
        """Whether a response with this status is the last event of a stream."""
        return self._started or (self._accepts.prefers_events and status == 200)

    def reserve(self, size: int, in_batch: bool = False) -> bool:
        """Counts the bytes of a response for the account until it is sent; returns False if too many are unread."""
        return self._incoming.reserve_response(size, in_batch)

    async def finish(
        self,
        body: bytes,
        status: int,
        instead: bytes | None = None,
        failure: Failure | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        """Sends the response. If a client that reconnects cannot be sent it again, it is sent `instead`.

        `failure` is what the response reports, if it reports one, and `headers` are those of a response that is no
        stream.
        """
        try:
            if self.is_stream(status):
                await self._send_message(body, instead)
                await self.abandon()
                return
            incoming = self._incoming
            if failure is not None:
                headers += asgi_messages.failure_headers(incoming, failure)
            if failure is not None and incoming.metrics is not None:
                incoming.metrics.count_refusal(failure)
            is_plain = incoming.codec is JSON_CODEC and len(body) <= asgi_messages.PIECE_BYTES and not headers
            whole = incoming.scope.get(asgi_messages.WHOLE_RESPONSE) if is_plain else None
            if whole is None or not whole(status, body, incoming.response_headers):
                await asgi_messages.respond_to(incoming, status, body, *headers)
        finally:
            if self._incoming.response_bytes:
                self._incoming.release_responses()

    async def abandon(self) -> None:
        """Ends the event stream, if there is one, without a further message."""
        if self._stream is not None:
            self._stream.end()
        if self._started and not self._detached:
            await asgi_messages.end_events(self._send)

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
        await asgi_messages.start_events(self._send)
        if self._stream is not None and self._is_primed():
            await asgi_messages.send_event(self._send, sse.encode_priming_event(self._stream.event_id(0), RETRY_MS))

    async def _send_message(self, message: bytes, instead: bytes | None = None) -> None:
        await self._start()
        event = sse.encode_event(message) if self._stream is None else self._stream.append(message, instead)
        if not self._detached:
            await asgi_messages.send_event(self._send, event)
