"""Streamable HTTP as an ASGI application: checks hosts, finds the dialect of a request, and sends event streams.

The server cancels a request whose client disconnects. The exception is a request of the handshake era whose response
has begun as an event stream: its events have ids, and the client may reconnect.

The application serves one path. Other pages, such as a dashboard, are routes beside it: see `DeltaServer.routes`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.errors import Fault
from deltamcp.runtime.threads import Threads
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import Headers, HttpRequest, Receive, Scope, Send
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.event_streams import FollowedStream
from deltamcp.transports.http_reply import RETRY_MS
from deltamcp.transports.http_session_requests import SessionRequests
from deltamcp.transports.http_stateless import StatelessPosts
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.warning_filter import WARNING_FILTER
from deltamcp.values import ANONYMOUS, Failure, Message, Principal, Request
from deltamcp.wire import codecs, sse
from deltamcp.wire.codecs import Codec

logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)

PRINCIPAL = "deltamcp.principal"
"""The key in the ASGI scope under which an authentication middleware puts the `Principal`."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MAX_NAMES = 300
"""The characters of a Host and an Origin that are remembered or logged; names of hosts have at most 253."""
_MAX_BYTES_AT_ONCE = 16 * 1024
"""A larger body is decoded in a thread, because each may take 50 ms and eight may arrive at once."""
_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in versions.HANDSHAKE)


class HttpApp:
    """The ASGI application, for any ASGI server or to mount in another application."""

    def __init__(
        self,
        engine: Engine,
        path: str = "/mcp",
        *,
        allowed_hosts: Sequence[str] | None = None,
        allowed_origins: Sequence[str] | None = None,
    ) -> None:
        """The arguments are those of `DeltaServer.asgi`."""
        self._engine = engine
        self._path = path.rstrip("/")
        self._hosts = frozenset(host.lower() for host in (allowed_hosts or LOOPBACK))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in (allowed_origins or ()))
        self._admitted: set[tuple[bytes | None, bytes | None]] = set()
        self._quotas = HttpQuotas(engine.limits)
        self._calls = CallsInFlight(engine, self._quotas.calls)
        self._stateless = StatelessPosts(engine, self._calls)
        self._in_sessions = SessionRequests(engine, self._calls, self._quotas)
        self._decoders = Threads(1)
        self._closers: set[Callable[[], None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        if not self._engine.lifespan.started:
            await self._engine.lifespan.start()
        handler = self._post if scope["method"] == "POST" else self._get_or_delete
        raw = scope["headers"]
        headers: dict[bytes, bytes] = dict(raw)
        address = asgi_messages.client_address(scope)
        caller = self._engine.identify(_authenticated_principal(scope), None, address)
        accepts = asgi_messages.read_accept(headers.get(b"accept", b"*/*"))
        unique = len(headers) == len(raw)
        incoming = HttpRequest(scope, headers, receive, send, caller, accepts, unique, self._quotas)
        followed = await handler(incoming)
        if followed is not None:
            await self._follow(followed, receive, send)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self._engine.lifespan.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            logger.error("the server could not start or stop", exc_info=error)
            await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
            return
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        self._calls.draining = True
        for close in tuple(self._closers):
            close()

    # Admission

    def _admit(self, incoming: HttpRequest) -> Failure | None:
        """Returns a failure if the path, the Host or the Origin is not allowed."""
        path: str = incoming.scope["path"]
        if path != self._path and self._path_within(incoming.scope) != self._path:
            return Failure(Fault.WRONG_PATH, f"The MCP endpoint is {self._path or '/'}.")
        names = (incoming.headers.get(b"host"), incoming.headers.get(b"origin"))
        refused = None
        # RFC 9112, 3.2: a server must refuse more than one Host, which is a means of request smuggling.
        if not incoming.has_unique_headers and incoming.has_repeated((b"host", b"origin")):
            refused = Failure(Fault.WRONG_HOST, "The request has more than one Host or Origin header.")
        elif names not in self._admitted:
            if not self._is_host(names[0]):
                refused = Failure(Fault.WRONG_HOST, "This Host is not among the allowed_hosts.")
            elif names[1] is not None and not self._is_origin(names[1]):
                refused = Failure(Fault.WRONG_ORIGIN, "This Origin is not among the allowed_origins.")
            elif len(self._admitted) < 1024 and sum(len(name or b"") for name in names) < _MAX_NAMES:
                self._admitted.add(names)
        if refused is not None:
            host, origin = (name and name[:_MAX_NAMES] for name in names)
            logger.warning("refused Host %r, Origin %r: %s", host, origin, refused.message)
        return refused

    def _path_within(self, scope: Scope) -> str:
        """Returns the path relative to the place where this application is mounted."""
        path, root = scope["path"], scope.get("root_path", "")
        within: str = path[len(root) :] if root and path.startswith(root) else path
        return within.rstrip("/")

    def _is_host(self, host: bytes | None) -> bool:
        if "*" in self._hosts:
            return True
        name = (host or b"").decode("latin-1").lower()
        bare, _, port = name.rpartition(":")
        return name in self._hosts or (port.isdigit() and bare in self._hosts)

    def _is_origin(self, origin: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        return text in self._origins or "*" in self._origins or self._is_host(text.partition("://")[2].encode())

    # Requests: each method sends the response, or returns the stream that is the response

    async def _post(self, incoming: HttpRequest) -> FollowedStream | None:
        try:
            message = await self._read_message(incoming)
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

    async def _read_message(self, incoming: HttpRequest) -> Message | list[Message] | Failure:
        codec = self._admit(incoming) or asgi_messages.choose_codecs(incoming)
        if not isinstance(codec, Codec):
            return codec
        limits = self._engine.limits
        body = await asgi_messages.read_body(incoming, limits)
        if not isinstance(body, bytes):
            return body
        if len(body) > asgi_messages.UNCOUNTED_BYTES:
            refused = await asgi_messages.hold_memory(incoming, body, codec, limits)
            if refused is not None:
                return refused
        if len(body) <= _MAX_BYTES_AT_ONCE:
            incoming.release_bytes()
            return codecs.read(body, codec, limits)
        arguments = {"body": body, "codec": codec, "limits": limits}
        message: Message | list[Message] = await self._decoders.run(incoming.account, codecs.read, arguments)
        incoming.release_bytes()
        return message

    async def _get_or_delete(self, incoming: HttpRequest) -> FollowedStream | None:
        found: FollowedStream | Failure | None = self._admit(incoming)
        if found is None:
            method = incoming.scope["method"]
            if method not in ("GET", "DELETE") or _is_modern_version(incoming.headers):
                found = Failure(Fault.WRONG_HTTP_METHOD, f"This endpoint does not take {method}; send POST.")
            elif method == "GET":
                found = self._in_sessions.listen(incoming)
            else:
                found = self._in_sessions.end(incoming)
        if isinstance(found, FollowedStream):
            return found
        if found is None:
            await asgi_messages.respond(incoming.send, 200, b"")
        else:
            await asgi_messages.refuse(incoming, found)
        return None

    # Streams

    async def _follow(self, followed: FollowedStream, receive: Receive, send: Send) -> None:
        """Sends the events of a stream until the stream ends or the client disconnects."""
        stream, after, primed, close, on_leave = followed
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


def _authenticated_principal(scope: Scope) -> Principal:
    """Returns the principal that an authentication middleware has put into the scope; anonymous without one."""
    found: Principal = scope.get(PRINCIPAL, ANONYMOUS)
    return found


def _is_modern_version(headers: Headers) -> bool:
    """Whether the version header names a modern or an unknown version; the modern era has an error for the latter."""
    version = headers.get(b"mcp-protocol-version")
    return version is not None and version not in _HANDSHAKE_VERSIONS and version.strip() not in _HANDSHAKE_VERSIONS
