"""Streamable HTTP as the original server of Delta-MCP 0.2 speaks it: its order of checks, its statuses and its texts.

A refusal has an empty body, where MCP's has a JSON-RPC error; there are no event streams; and a request of an unknown
session is served, without what its client negotiated. Sessions themselves, quotas and credentials are those of MCP.
"""

import asyncio
import functools
import logging
import re
from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Unpack

from deltamcp.auth.authenticator import Authenticator
from deltamcp.auth.bearer import TokenFault
from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.progressive_disclosure import LINE_ENCODINGS
from deltamcp.errors import FAULTS, ConfigurationError, Fault
from deltamcp.transports.http import asgi
from deltamcp.transports.http.app import ServerApp
from deltamcp.transports.http.asgi import Header, Receive, Scope, Send
from deltamcp.transports.http.exchange import Exchange, HttpAnswer, repeated_names
from deltamcp.transports.http.reply import HttpReply, serve
from deltamcp.transports.options import HttpOptions
from deltamcp.transports.sessions.session import HandshakeSession
from deltamcp.values import (
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

_REALM = 'Bearer realm="delta-mcp"'
_METADATA = re.compile(r'resource_metadata="[^"]*"')
_ABSENT = (TokenFault.MISSING, TokenFault.WRONG_SCHEME)
"""To the original a request with another scheme has no token."""
_REASONS: Mapping[str, str] = MappingProxyType(
    {
        TokenFault.EXPIRED: "expired",
        TokenFault.MISSING_EXPIRY: "missing_expiry",
        TokenFault.WRONG_AUDIENCE: "invalid_audience",
        TokenFault.INACTIVE: "introspection_failed",
        TokenFault.MALFORMED: "invalid_signature",
        TokenFault.ALGORITHM_NOT_ALLOWED: "invalid_signature",
        TokenFault.UNKNOWN_KEY: "invalid_signature",
        TokenFault.INVALID_SIGNATURE: "invalid_signature",
    }
)
_OTHER_REASON = "Token validation failed"
"""The original's text for a refusal without a reason; it does not check what else a token may be refused for."""


def write_challenge(auth: Authenticator, failure: Failure) -> str:
    """Returns the header of a response that refuses a request for its token.

    Without documents about authorization, whatever the reason is, it is the realm alone.
    """
    # The authenticator's URL is where the document is; the original's is not if the resource has a path.
    metadata = _METADATA.search(auth.challenge(failure) or "")
    if metadata is None:
        return _REALM
    challenge = f"{_REALM}, {metadata[0]}"
    reason = failure.data.get("reason", "") if isinstance(failure.data, Mapping) else ""
    if reason in _ABSENT:
        return challenge
    return f'{challenge}, error="invalid_token", error_description="{_REASONS.get(reason, _OTHER_REASON)}"'


logger: logging.Logger = logging.getLogger("deltamcp.http")

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
        super().__init__(engine, path, {**options, "sessions": True})
        self._origins = frozenset(origin.encode() for origin in (options.get("allowed_origins") or ()))
        self._auth = options.get("auth")
        self._dialect = DeltaMcp()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        response = _Response(send if self._metrics is None else self._metrics.watch(scope, send))
        try:
            await self._admit(scope, receive, response)
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            await response.fail()

    # Admission

    async def _admit(self, scope: Scope, receive: Receive, response: "_Response") -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        added, scope, (address, caller) = self._admission.begin(scope, headers)
        response.headers += added
        await self._admission.turns.take(address)
        page, method = self.pages.find(asgi.path_within(scope), scope), scope["method"]
        if page is not None and page.is_probe and method == "GET":
            await page.app(scope, receive, response.send)
            return
        if not self._engine.lifespan.started:
            await self._engine.lifespan.start()
        # The ASGI server's own way to send a whole response would leave out the headers that `response` adds.
        scope = {key: value for key, value in scope.items() if key != asgi.WHOLE_RESPONSE}
        exchange = Exchange(
            scope,
            headers,
            address,
            caller,
            method,
            repeated_names(scope["headers"]),
            receive,
            response.send,
            self._quotas,
            self._challenge,
            self._metrics,
        )
        refused = await self._admission.check_rate(exchange)
        if refused is not None:
            await exchange.answer(_refusal(refused))
            return
        if page is not None and page.for_any_host and method == "GET":
            await page.app(scope, receive, response.send)
            return
        origin = headers.get(b"origin")
        if origin is not None:
            if origin not in self._origins or b"origin" in exchange.repeated:
                await asgi.respond(response.send, 403, b"")
                return
            response.headers += ((b"access-control-allow-origin", origin), (b"vary", b"Origin"), _EXPOSED)
            if method == "OPTIONS":
                await asgi.respond_no_content(response.send, _PREFLIGHT)
                return
        if page is not None and not page.for_any_host:
            await page.app(scope, receive, response.send)
        elif method != "POST":
            await asgi.respond(response.send, 405, b"", ((b"allow", b"POST"),))
        else:
            await self._serve_call(exchange)

    async def _serve_call(self, exchange: Exchange) -> None:
        # To the original a request with two tokens has none.
        token = None if b"authorization" in exchange.repeated else exchange.headers.get(b"authorization")
        refused = await self._admission.identify_by(token, exchange)
        if refused is not None:
            await exchange.answer(_refusal(refused))
            return
        try:
            await self._post(exchange)
        finally:
            exchange.close()

    def _challenge(self, failure: Failure) -> str | None:
        if self._auth is not None and failure.fault is Fault.UNAUTHORIZED:
            return write_challenge(self._auth, failure)
        return self._admission.challenge(failure)

    # POST

    async def _post(self, exchange: Exchange) -> None:
        headers = exchange.headers
        codec = codecs.codec_for_content_type(headers.get(b"content-type", b"").decode("latin-1"))
        exchange.codec = codecs.codec_for_accept(headers.get(b"accept", b"").decode("latin-1"), codec)
        message = await self._bodies.read(exchange, codec)
        match message:
            case Failure():
                await exchange.answer(_refusal(message))
            case Request() | Notification():
                complaint = _version_complaint(headers.get(b"mcp-protocol-version"), message.method)
                if complaint is not None:
                    await asgi.respond_json(exchange.send, 400, complaint)
                elif message.method == "initialize":
                    await self._initialize(message, exchange)
                elif isinstance(message, Request):
                    await self._answer(message, exchange)
                else:
                    await asgi.respond_accepted(exchange.send)
            case Malformed(fault=Fault.PARSE):
                await asgi.respond_json(exchange.send, 400, _UNREADABLE)
            case _:
                await asgi.respond_json(exchange.send, 400, _INVALID)

    async def _initialize(self, message: Request | Notification, exchange: Exchange) -> None:
        """Opens a session, also for a notification, as the original does; only a request has a result."""
        request = message if isinstance(message, Request) else Request(0, message.method, message.params)
        if not isinstance(request.params.get("protocolVersion"), str):
            request = Request(request.id, request.method, {**request.params, "protocolVersion": _STANDARD.version})
        dialect = self._engine.dialects.find_session(request)
        agreement = dialect.agree(request.params, LINE_ENCODINGS)
        if isinstance(agreement, Failure):
            await exchange.answer(HttpAnswer(200, dialect.write(request, agreement, _STANDARD.version)))
            return
        opened = await self._sessions.open(dialect, agreement, exchange.caller.principal, exchange.caller.account)
        if isinstance(opened, Failure):
            await exchange.answer(_refusal(opened))
            return
        session_id = (b"mcp-session-id", opened.id.encode())
        if isinstance(message, Notification):
            await asgi.respond(exchange.send, 202, b"", (session_id,))
            return
        body = dialect.introduce(request, self._about(exchange.caller.principal), agreement, LINE_ENCODINGS)
        await exchange.answer(HttpAnswer(200, body, (session_id,)))

    def _about(self, principal: Principal) -> About:
        """Returns what the server says of itself: it has no stream, so it tells of no changes and sends no log.

        Resources are those of the author; results that are stored as resources are not part of this protocol.
        """
        about, catalog = self._engine.capabilities.about(principal), self._engine.catalog.of(principal)
        left_out = {"logging"} if catalog.resources or catalog.templates else {"logging", "resources"}
        kept = {name: value for name, value in about.capabilities.items() if name not in left_out}
        capabilities = {name: {"listChanged": False} if value else {} for name, value in kept.items()}
        return About(about.info, capabilities, about.instructions)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        found = await self._sessions.find(exchange)
        if isinstance(found, Failure) and found.fault is Fault.OVERLOADED:  # the store does not say which session it is
            await exchange.answer(_refusal(found))
            return
        if isinstance(found, Failure):
            session, account = (
                HandshakeSession(self._dialect, _STANDARD, _NOWHERE, exchange.caller),
                exchange.caller.account,
            )
        else:
            session, account = found.session, found.account
        reply = HttpReply(exchange, self._engine.limits, account)
        await serve(reply, self._perform(request, session, reply), functools.partial(_write, request, session))

    async def _perform(self, request: Request, session: HandshakeSession, reply: HttpReply) -> Outcome | None:
        """Returns the outcome of a request; None if its client has disconnected."""
        understood = session.read(request)
        if not isinstance(understood, Failure) and isinstance(understood[1], (SetLevel, Watch, Listen)):
            return Failure(Fault.UNKNOWN_METHOD, "This server sends no messages besides responses.")
        async with asyncio.timeout(self._engine.limits.handler_seconds) as deadline:
            outcome = await self._calls.perform(understood, reply, request.id)
        return Failure(Fault.TIMEOUT, "The request took too long.") if deadline.expired() else outcome


def _refusal(failure: Failure) -> HttpAnswer:
    """Returns the status of a failure, with an empty body."""
    headers = (asgi.CLOSE,) if failure.fault in (Fault.TOO_LARGE, Fault.TOO_SLOW) else ()
    status = 504 if failure.fault is Fault.TIMEOUT else FAULTS[failure.fault].handshake_http
    return HttpAnswer(status, b"", headers, failure)


def _write(request: Request, session: HandshakeSession, outcome: Outcome) -> HttpAnswer:
    if isinstance(outcome, Failure) and outcome.fault in _SILENT_FAULTS:
        return _refusal(outcome)
    return HttpAnswer(200, session.write(request, outcome))


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
            await asgi.end_events(self._send)
        else:
            await asgi.respond(self.send, 500, b"")


class _Nowhere:
    """Drops messages that belong to no request, because this protocol has no stream for them."""

    def put(self, message: bytes) -> None:
        pass


_NOWHERE = _Nowhere()
