"""Streamable HTTP as an ASGI application: admits requests by path, host, origin and credentials.

What it admits, `McpEndpoint` serves. `OpenPages` has the other pages, which need no credentials.
"""

import logging
import os
from collections.abc import Sequence
from typing import TypedDict, Unpack

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages, cors
from deltamcp.transports.allowed_names import LOOPBACK, AllowedNames
from deltamcp.transports.asgi_lifespan import serve_lifespan
from deltamcp.transports.asgi_messages import HttpRequest, Receive, Scope, Send
from deltamcp.transports.health import HealthPages
from deltamcp.transports.mcp_endpoint import McpEndpoint
from deltamcp.transports.metrics import Metrics, find_metrics
from deltamcp.transports.open_pages import OpenPages, Routes
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.request_ids import RequestIds
from deltamcp.transports.trusted_proxies import TrustedProxies
from deltamcp.transports.warning_filter import WARNING_FILTER
from deltamcp.values import ANONYMOUS, Failure

logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)


class HttpOptions(TypedDict, total=False):
    """The options of `DeltaServer.asgi`, `routes` and `run("http")`."""

    allowed_hosts: Sequence[str] | None
    """The `Host` values that the server accepts, such as "tools.example" or "tools.example:8443"; "*" accepts all. By
    default only loopback names, for clients on the same machine."""
    allowed_origins: Sequence[str] | None
    """The `Origin` values that the server accepts besides those of the allowed hosts, such as "https://app.example";
    "*" accepts all. Web pages of these origins may call the server (CORS)."""
    auth: Authenticator | None
    """Who the callers are: `ResourceServer`, `StaticTokens`, `HostAuth`, `PresenceOnly` or `OpenAccess`. Without it
    every caller is anonymous, which `run` allows at loopback addresses only."""
    trusted_proxies: Sequence[str]
    """The proxies whose `Forwarded` and `X-Forwarded-For` headers say who the client is: addresses, networks such as
    "10.0.0.0/8", or "unix" for connections over a Unix socket. By default there are none."""
    metrics: Metrics | bool
    """Whether to count calls and responses and to show Prometheus the figures at `/metrics`, to whoever asks by an
    allowed `Host`. It needs `prometheus-client`."""
    routes: Routes
    """Pages of the author's own beside the MCP endpoint: Starlette routes, or ASGI applications by their paths. The
    server checks the `Host` and the `Origin` of their requests, but not who sends them."""
    request_ids: bool
    """Whether every response and every log record of a request has an `X-Request-Id`: the one that the request has, if
    it is well-formed, or else a new one. By default there are none."""
    sessions: bool
    """Whether clients up to 2025-11-25 get a session, as they do by default. Without sessions each of their requests
    stands alone: the server cannot ask them anything, and they cannot subscribe, set a log level or resume a stream."""
    compat: bool
    """Whether the server speaks HTTP as the original server of Delta-MCP 0.2 does, see `DeltaMcpApp`."""


class ServerOptions(HttpOptions, total=False):
    """The options of `run("http")`."""

    tls_cert: str | os.PathLike[str] | None
    """The PEM file of a certificate, to serve https; `tls_key` is that of its private key, if that is another file."""
    tls_key: str | os.PathLike[str] | None


class HttpApp:
    """The ASGI application, for any ASGI server or to mount in another application."""

    def __init__(self, engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> None:
        self._engine = engine
        self.path = path.rstrip("/")
        """The path of the MCP endpoint."""
        self._no_page = Failure(Fault.WRONG_PATH, f"The MCP endpoint is {self.path or '/'}.")
        self._names = AllowedNames(options.get("allowed_hosts") or LOOPBACK, options.get("allowed_origins") or ())
        self._auth = options.get("auth")
        self.proxies = TrustedProxies(options.get("trusted_proxies", ()))
        self._request_ids = RequestIds() if options.get("request_ids") else None
        self._rates = engine.rates
        self._quotas = HttpQuotas(engine.limits)
        self._health = HealthPages(engine)
        self.pages = OpenPages(self._health, self._auth, options.get("routes", ()))
        """The pages beside the MCP endpoint."""
        self._endpoint = McpEndpoint(engine, self._quotas, options.get("sessions", True))
        self._metrics = find_metrics(options.get("metrics", False))
        if self._metrics is not None:
            self._metrics.attach(engine, self._quotas, self._endpoint.count_sessions, self.pages)
        if self._auth is not None:
            engine.lifespan.add_closer(self._auth.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(self._engine, receive, send)
            return
        if scope["type"] != "http":
            return
        if self._metrics is not None:
            send = self._metrics.watch(scope, send)
        raw = scope["headers"]
        headers: dict[bytes, bytes] = dict(raw)
        added = () if self._request_ids is None else self._request_ids.begin(headers)
        if added:
            send = asgi_messages.adding_headers(send, added)
        if self.proxies:
            scope = self.proxies.resolve(scope, headers)
        at_endpoint = scope["path"] == self.path or asgi_messages.path_within(scope) == self.path
        page = None if at_endpoint else self.pages.find(asgi_messages.path_within(scope), scope)
        if page is not None and page.is_probe:
            await page.app(scope, receive, send)
            return
        if not self._engine.lifespan.started:
            await self._engine.lifespan.start()
        address = asgi_messages.client_address(scope)
        caller = self._engine.identify(ANONYMOUS, None, address)
        accepts = asgi_messages.read_accept(headers.get(b"accept", b"*/*"))
        unique = len(headers) == len(raw)
        incoming = HttpRequest(
            scope, headers, receive, send, caller, accepts, unique, self._quotas, self._auth, self._metrics, added
        )
        for_any_host = page is not None and page.for_any_host
        refused = None if for_any_host else self._names.check(incoming)
        is_cross_origin = b"origin" in headers and not for_any_host and refused is None
        if is_cross_origin:
            incoming.add_headers(cors.response_headers(headers[b"origin"]))
        if self._rates is not None:
            refused = await self._rates.check_address(address) or refused
        if is_cross_origin and refused is None and cors.is_preflight(incoming):
            await cors.answer_preflight(incoming)
            return
        if refused is None and not at_endpoint and page is None:
            refused = self._no_page
        if refused is None and at_endpoint and self._auth is not None:
            refused = await self._authenticate(incoming, self._auth, address)
            if refused is None and self._rates is not None:
                refused = await self._rates.check_principal(incoming.caller)
        if refused is not None:
            await asgi_messages.refuse(incoming, refused)
        elif page is not None:
            await page.app(scope, receive, incoming.send)
        else:
            await self._endpoint.serve(incoming)

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        self._health.draining = True
        self._endpoint.drain()

    # Admission

    async def _authenticate(self, incoming: HttpRequest, auth: Authenticator, address: str) -> Failure | None:
        """Sets the caller of a request, or returns the reason why it is refused."""
        header = incoming.headers.get(b"authorization")
        if not incoming.has_unique_headers and incoming.has_repeated((b"authorization",)):
            return Failure(Fault.INVALID_REQUEST, "The request has more than one Authorization header.")
        authorization = None if header is None else header.decode("latin-1")
        found = await auth.authenticate(Credentials(authorization, incoming.scope))
        if isinstance(found, Failure):
            return found
        incoming.caller = self._engine.identify(found, None, address)
        return None
