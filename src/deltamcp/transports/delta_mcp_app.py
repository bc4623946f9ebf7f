"""Streamable HTTP as the original server of Delta-MCP 0.2 speaks it: its order of checks, its statuses and its texts.

A refusal has an empty body, where MCP's has a JSON-RPC error; there are no event streams; and a request of an unknown
session is served, without what its client negotiated. Sessions themselves, quotas and credentials are those of MCP.
"""

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any, Unpack

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.progressive_disclosure import LINE_ENCODINGS
from deltamcp.errors import FAULTS, ConfigurationError, Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest, Receive, Scope, Send
from deltamcp.transports.body_reader import BodyReader
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.delta_mcp_challenge import write_challenge
from deltamcp.transports.handshake_session import HandshakeSession
from deltamcp.transports.http_options import HttpOptions
from deltamcp.transports.http_reply import HttpReply
from deltamcp.transports.http_session_requests import make_directory
from deltamcp.transports.quota import UNREAD
from deltamcp.transports.server_app import ServerApp
from deltamcp.values import (
    ANONYMOUS,
    About,
    Failure,
    Listen,
    Malformed,
    Notification,
    Outcome,
    Principal,
    Request,
    ResultShape,
    SetLevel,
    Surface,
    Watch,
)
from deltamcp.wire import codecs, jsonrpc

logger = logging.getLogger("deltamcp.http")

Header = tuple[bytes, bytes]

_VERSION: Header = (b"mcp-protocol-version", versions.DELTA_MCP_BASELINE.encode())
_VERSIONS = frozenset(version.encode() for version in versions.DELTA_MCP_HEADERS)
_EXPOSED: Header = (
    b"access-control-expose-headers",
    b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate",
)
_PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"POST, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"Content-Type, Accept, Authorization, MCP-Protocol-Version, Mcp-Session-Id",
    ),
    (b"access-control-max-age", b"86400"),
)
_INVALID = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}'
_UNREADABLE = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'
_UNVERSIONED = b'{"error":"Missing MCP-Protocol-Version header"}'
_MAX_SHOWN_CHARS = 100
_SILENT_FAULTS = frozenset(
    {Fault.UNAUTHORIZED, Fault.INSUFFICIENT_SCOPE, Fault.RATE_LIMITED, Fault.OVERLOADED, Fault.TIMEOUT}
)
"""The failures of a call that are an HTTP status without a body; all others are JSON-RPC errors with status 200."""
_STANDARD = Agreement(versions.DELTA_MCP_BASELINE, {}, {}, Surface.FULL, ResultShape.DELTA_MCP)
"""What holds for requests without a session, or of one that the server does not know."""


class DeltaMcpApp(ServerApp):
    """The ASGI application; it serves every path, as the original does."""

    def __init__(self, engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> None:
        """
        Raises:
            ConfigurationError: there are `allowed_hosts`, which this protocol does not check.
        """
        if options.get("allowed_hosts") is not None:
            raise ConfigurationError("compat=True checks the Origin and not the Host; leave out allowed_hosts.")
        super().__init__(engine, path, options)
        self._origins = frozenset(origin.encode() for origin in (options.get("allowed_origins") or ()))
        self._bodies = BodyReader(engine.limits)
        self._calls = CallsInFlight(engine, self._quotas.calls)
        self._sessions = make_directory(engine, self._quotas)
        self._dialect = DeltaMcp()
        self._attach_metrics(self._sessions.__len__)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = _Response(send)
        try:
            await self._admit(scope, receive, response)
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            await response.fail()

    def drain(self) -> None:
        super().drain()
        self._calls.draining = True

    # Admission

    async def _admit(self, scope: Scope, receive: Receive, response: "_Response") -> None:
        raw = scope["headers"]
        headers: dict[bytes, bytes] = dict(raw)
        if self._request_ids is not None:
            response.headers += self._request_ids.begin(headers)
        if self.proxies:
            scope = self.proxies.resolve(scope, headers)
        address = asgi_messages.client_address(scope)
        await self._turns.take(address)
        method = scope["method"]
        page = self.pages.find(asgi_messages.path_within(scope), scope)
        if page is not None and page.is_probe and method == "GET":
            await page.app(scope, receive, response.send)
            return
        if not self._engine.lifespan.started:
            await self._engine.lifespan.start()
        # The ASGI server's own way to send a whole response would leave out the headers that `response` adds.
        scope = {key: value for key, value in scope.items() if key != asgi_messages.WHOLE_RESPONSE}
        caller = self._engine.identify(ANONYMOUS, None, address)
        accepts, unique = asgi_messages.ONLY_JSON, len(headers) == len(raw)
        incoming = HttpRequest(
            scope, headers, receive, response.send, caller, accepts, unique, self._quotas, self._auth, self._metrics
        )
        refused = None if self._rates is None else await self._rates.check_address(address)
        if refused is not None:
            await self._refuse(incoming, refused)
            return
        if page is not None and page.for_any_host and method == "GET":
            await page.app(scope, receive, response.send)
            return
        origin = headers.get(b"origin")
        if origin is not None:
            if origin not in self._origins or incoming.has_repeated((b"origin",)):
                await asgi_messages.respond(response.send, 403, b"")
                return
            response.headers += ((b"access-control-allow-origin", origin), (b"vary", b"Origin"), _EXPOSED)
            if method == "OPTIONS":
                await asgi_messages.respond_no_content(response.send, _PREFLIGHT)
                return
        if page is not None and not page.for_any_host:
            await page.app(scope, receive, response.send)
            return
        if method != "POST":
            await asgi_messages.respond(response.send, 405, b"", ((b"allow", b"POST"),))
            return
        refused = await self._authenticate(incoming)
        if refused is not None:
            await self._refuse(incoming, refused)
            return
        try:
            await self._post(incoming)
        finally:
            incoming.release()

    async def _authenticate(self, incoming: HttpRequest) -> Failure | None:
        if self._auth is None:
            return None
        header = incoming.headers.get(b"authorization")
        if not incoming.has_unique_headers and incoming.has_repeated((b"authorization",)):
            header = None
        return await self._identify(incoming, self._auth, header)

    async def _refuse(self, incoming: HttpRequest, failure: Failure) -> None:
        """Sends the status of a failure, with an empty body."""
        if self._metrics is not None:
            self._metrics.count_refusal(failure)
        if self._auth is not None and failure.fault is Fault.UNAUTHORIZED:
            headers = [(b"www-authenticate", write_challenge(self._auth, failure).encode("latin-1", "replace"))]
        else:
            headers = [*asgi_messages.failure_headers(incoming, failure)]
        if failure.fault in (Fault.TOO_LARGE, Fault.TOO_SLOW):
            headers.append(asgi_messages.CLOSE)
        status = 504 if failure.fault is Fault.TIMEOUT else FAULTS[failure.fault].handshake_http
        await asgi_messages.respond(incoming.send, status, b"", headers)

    # POST

    async def _post(self, incoming: HttpRequest) -> None:
        headers = incoming.headers
        codec = codecs.codec_for_content_type(headers.get(b"content-type", b"").decode("latin-1"))
        incoming.codec = codecs.codec_for_accept(headers.get(b"accept", b"").decode("latin-1"), codec)
        message = await self._bodies.read(incoming, codec)
        match message:
            case Failure():
                await self._refuse(incoming, message)
            case Request() | Notification():
                complaint = _version_complaint(headers.get(b"mcp-protocol-version"), message.method)
                if complaint is not None:
                    await asgi_messages.respond_json(incoming.send, 400, complaint)
                elif message.method == "initialize":
                    await self._initialize(message, incoming)
                elif isinstance(message, Request):
                    await self._answer(message, incoming)
                else:
                    await asgi_messages.respond_accepted(incoming.send)
            case Malformed(fault=Fault.PARSE):
                await asgi_messages.respond_json(incoming.send, 400, _UNREADABLE)
            case _:
                await asgi_messages.respond_json(incoming.send, 400, _INVALID)

    async def _initialize(self, message: Request | Notification, incoming: HttpRequest) -> None:
        """Opens a session, also for a notification, as the original does; only a request has a result."""
        request = message if isinstance(message, Request) else Request(0, message.method, message.params)
        if not isinstance(request.params.get("protocolVersion"), str):
            request = Request(request.id, request.method, {**request.params, "protocolVersion": _STANDARD.version})
        dialect = self._engine.dialects.find_session(request)
        agreement = dialect.agree(request.params, LINE_ENCODINGS)
        if isinstance(agreement, Failure):
            await asgi_messages.respond_to(incoming, 200, dialect.write(request, agreement, _STANDARD.version))
            return
        opened = await self._sessions.open(dialect, agreement, incoming.caller.principal, incoming.account)
        if isinstance(opened, Failure):
            await self._refuse(incoming, opened)
            return
        session_id = (b"mcp-session-id", opened.id.encode())
        if isinstance(message, Notification):
            await asgi_messages.respond(incoming.send, 202, b"", (session_id,))
            return
        body = dialect.introduce(request, self._about(incoming.caller.principal), agreement, LINE_ENCODINGS)
        await asgi_messages.respond_to(incoming, 200, body, session_id)

    def _about(self, principal: Principal) -> About:
        """Returns what the server says of itself: it has no stream, so it tells of no changes and sends no log.

        Resources are those of the author; results that are stored as resources are not part of this protocol.
        """
        about, catalog = self._engine.capabilities.about(principal), self._engine.catalog.of(principal)
        left_out = {"logging"} if catalog.resources or catalog.templates else {"logging", "resources"}
        kept = {name: value for name, value in about.capabilities.items() if name not in left_out}
        capabilities = {name: {"listChanged": False} if value else {} for name, value in kept.items()}
        return About(about.info, capabilities, about.instructions)

    async def _answer(self, request: Request, incoming: HttpRequest) -> None:
        found = await self._sessions.find(incoming)
        if isinstance(found, Failure) and found.fault is Fault.OVERLOADED:  # the store does not say which session it is
            await self._refuse(incoming, found)
            return
        if isinstance(found, Failure):
            session, account = HandshakeSession(self._dialect, _STANDARD, _NOWHERE, incoming.caller), incoming.account
        else:
            session, account = found.session, found.account
        reply = HttpReply(incoming, asgi_messages.ONLY_JSON, account, self._engine.limits)
        outcome = await self._perform(request, session, reply, account)
        if outcome is None:
            return
        body = session.write(request, outcome)
        if not reply.reserve(len(body)):
            outcome = UNREAD
        if isinstance(outcome, Failure) and outcome.fault in _SILENT_FAULTS:
            await self._refuse(incoming, outcome)
            return
        incoming.release()
        await reply.finish(body, 200)

    async def _perform(
        self, request: Request, session: HandshakeSession, reply: HttpReply, account: str
    ) -> Outcome | None:
        """Returns the outcome of a request; None if its client has disconnected."""
        understood = session.read(request)
        if isinstance(understood, Failure):
            return understood
        terms, ask = understood
        match ask:
            case SetLevel() | Watch() | Listen():
                return Failure(Fault.UNKNOWN_METHOD, "This server sends no messages besides responses.")
            case _:
                async with asyncio.timeout(self._engine.limits.handler_seconds) as deadline:
                    outcome = await self._calls.perform(ask, terms, reply, request.id, account)
                return Failure(Fault.TIMEOUT, "The request took too long.") if deadline.expired() else outcome


def _version_complaint(version: bytes | None, method: str) -> bytes | None:
    """Returns the body that refuses a request for its version header; None if it has a right one or needs none."""
    if not version:
        return None if method == "initialize" else _UNVERSIONED
    if version in _VERSIONS:
        return None
    shown = version.decode("latin-1")[:_MAX_SHOWN_CHARS]
    return jsonrpc.encode({"error": f"Unsupported MCP-Protocol-Version: {shown}"})


class _Response:
    """Sends one response with the headers that each has, and ends it if the application fails."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self.headers: tuple[Header, ...] = (_VERSION,)

    async def send(self, event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self._started = True
            event = {**event, "headers": [*self.headers, *event["headers"]]}
        await self._send(event)

    async def fail(self) -> None:
        if self._started:
            await asgi_messages.end_events(self._send)
        else:
            await asgi_messages.respond(self.send, 500, b"")


class _Nowhere:
    """Drops messages that belong to no request, because this protocol has no stream for them."""

    def put(self, message: bytes) -> None:
        pass


_NOWHERE = _Nowhere()
