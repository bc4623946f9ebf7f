"""The MCP endpoint over HTTP: finds the dialect of a request, and sends event streams.

The server cancels a request whose client disconnects. The exception is a request of the handshake era whose response
has begun as an event stream: its events have ids, and the client may reconnect.
"""

import asyncio
import time
from collections.abc import Callable

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import Headers, HttpRequest
from deltamcp.transports.body_reader import BodyReader
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.event_streams import FollowedStream
from deltamcp.transports.http_reply import RETRY_MS
from deltamcp.transports.http_session_requests import SessionRequests
from deltamcp.transports.http_stateless import StatelessPosts
from deltamcp.transports.quota import HttpQuotas
from deltamcp.values import Failure, Request
from deltamcp.wire import sse
from deltamcp.wire.codecs import Codec

_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in versions.HANDSHAKE)


class McpEndpoint:
    """Serves the requests that `HttpApp` has admitted."""

    def __init__(self, engine: Engine, quotas: HttpQuotas, keep_sessions: bool = True) -> None:
        self._engine = engine
        self._calls = CallsInFlight(engine, quotas.calls)
        self._stateless = StatelessPosts(engine, self._calls)
        self._in_sessions = SessionRequests(engine, self._calls, quotas, keep_sessions)
        self._bodies = BodyReader(engine.limits)
        self._closers: set[Callable[[], None]] = set()

    async def serve(self, incoming: HttpRequest) -> None:
        """Sends the response to a request."""
        handler = self._post if incoming.scope["method"] == "POST" else self._get_or_delete
        followed = await handler(incoming)
        if followed is not None:
            await self._follow(followed, incoming)

    def count_sessions(self) -> int:
        """Returns how many sessions this process holds."""
        return self._in_sessions.count_sessions()

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        self._calls.draining = True
        for close in tuple(self._closers):
            close()

    # Requests: each method sends the response, or returns the stream that is the response

    async def _post(self, incoming: HttpRequest) -> FollowedStream | None:
        try:
            codec = asgi_messages.choose_codecs(incoming)
            message = await self._bodies.read(incoming, codec) if isinstance(codec, Codec) else codec
            if isinstance(message, Failure):
                await asgi_messages.refuse(incoming, message)
                return None
            dialects = self._engine.dialects
            dialect = dialects.find_stateless(message) if type(message) is Request else None
            if dialect is None and _is_modern_version(incoming.headers):
                dialect = dialects.newest
            if dialect is not None:
                return await self._stateless.answer(message, dialect, incoming)
            await self._in_sessions.answer(message, incoming)
            return None
        finally:
            incoming.release()
            if incoming.response_bytes:  # those of a batch that was not answered
                incoming.release_responses()

    async def _get_or_delete(self, incoming: HttpRequest) -> FollowedStream | None:
        method = incoming.scope["method"]
        found: FollowedStream | Failure | None
        if method not in ("GET", "DELETE") or _is_modern_version(incoming.headers):
            found = Failure(Fault.WRONG_HTTP_METHOD, f"This endpoint does not take {method}; send POST.")
        elif method == "GET":
            found = await self._in_sessions.listen(incoming)
        else:
            found = await self._in_sessions.end(incoming)
        if isinstance(found, FollowedStream):
            return found
        if found is None:
            await asgi_messages.respond(incoming.send, 200, b"")
        else:
            await asgi_messages.refuse(incoming, found)
        return None

    # Streams

    async def _follow(self, followed: FollowedStream, incoming: HttpRequest) -> None:
        """Sends the events of a stream until it ends, the client disconnects, or the client's token expires."""
        stream, after, primed, close, on_leave = followed
        receive, send, expires_at = incoming.receive, incoming.send, incoming.caller.principal.expires_at
        follower = stream.follow()
        leaving = asyncio.ensure_future(asgi_messages.wait_for_disconnect(receive))
        leaving.add_done_callback(lambda _: follower.wake())
        self._closers.add(close)
        try:
            await asgi_messages.start_events(send)
            if primed:
                await asgi_messages.send_event(send, sse.encode_priming_event(stream.event_id(after), RETRY_MS))
            if self._calls.draining:
                close()
            while not leaving.done():
                if time.time() >= expires_at:
                    close()
                for number, event in stream.events_after(after):
                    if number > after + 1:
                        await asgi_messages.send_event(send, b": %d events are forgotten\n\n" % (number - after - 1))
                    after = stream.sent = number
                    await asgi_messages.send_event(send, event)
                if stream.ended or stream.follower is not follower:
                    break
                if not await follower.wait(self._engine.limits.ping_seconds):
                    await asgi_messages.send_event(send, sse.KEEP_ALIVE)
        finally:
            leaving.cancel()
            stream.unfollow(follower)
            self._closers.discard(close)
            on_leave()
        await asgi_messages.end_events(send)


def _is_modern_version(headers: Headers) -> bool:
    """Whether the version header names a modern or an unknown version; the modern era has an error for the latter."""
    version = headers.get(b"mcp-protocol-version")
    return version is not None and version not in _HANDSHAKE_VERSIONS and version.strip() not in _HANDSHAKE_VERSIONS
