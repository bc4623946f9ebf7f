"""Streamable HTTP as an ASGI application: admits requests by path, host, origin and credentials.

What it admits, `McpEndpoint` serves, or `McpLiteEndpoint` at the paths of MCP-lite. `OpenPages` has the other pages,
which need no credentials.
"""

import logging
from typing import Unpack

from deltamcp.auth.authenticator import Authenticator
from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages, cors
from deltamcp.transports.allowed_names import LOOPBACK, AllowedNames
from deltamcp.transports.asgi_messages import HttpRequest, Receive, Scope, Send
from deltamcp.transports.delta_mcp_app import DeltaMcpApp
from deltamcp.transports.http_options import HttpOptions
from deltamcp.transports.mcp_endpoint import McpEndpoint
from deltamcp.transports.mcp_lite_endpoint import McpLiteEndpoint
from deltamcp.transports.mcp_lite_options import read_settings
from deltamcp.transports.server_app import ServerApp
from deltamcp.transports.warning_filter import WARNING_FILTER
from deltamcp.values import ANONYMOUS, Failure

logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)


class HttpApp(ServerApp):
    """The application for clients of MCP."""

    def __init__(self, engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> None:
        super().__init__(engine, path, options)
        self._names = AllowedNames(options.get("allowed_hosts") or LOOPBACK, options.get("allowed_origins") or ())
        self._endpoint = McpEndpoint(engine, self._quotas, options.get("sessions", True))
        settings = read_settings(options.get("mcp_lite", True))
        beside = "" if settings is None else f", and MCP-lite is below /{settings.prefix.strip('/')}"
        self._no_page = Failure(Fault.WRONG_PATH, f"The MCP endpoint is {self.path or '/'}{beside}.")
        self._lite = None if settings is None else McpLiteEndpoint(engine, self._quotas, settings)
        self._attach_metrics(self._endpoint.count_sessions)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        headers: dict[bytes, bytes] = dict(raw)
        added = () if self._request_ids is None else self._request_ids.begin(headers)
        if added:
            send = asgi_messages.adding_headers(send, added)
        if self.proxies:
            scope = self.proxies.resolve(scope, headers)
        address = asgi_messages.client_address(scope)
        await self._turns.take(address)
        at_endpoint = scope["path"] == self.path or asgi_messages.path_within(scope) == self.path
        page = lite = None
        if not at_endpoint:
            path = asgi_messages.path_within(scope)
            lite = self._lite if self._lite is not None and self._lite.owns(path) else None
            page = self.pages.find(path, scope) if lite is None else None
        if page is not None and page.is_probe:
            await page.app(scope, receive, send)
            return
        if not self._engine.lifespan.started:
            await self._engine.lifespan.start()
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
            await cors.answer_preflight(incoming, cors.MCP_METHODS if lite is None else cors.ONLY_POST)
            return
        if refused is None and not at_endpoint and page is None and lite is None:
            refused = self._no_page
        if refused is None and page is None and self._auth is not None:
            refused = await self._authenticate(incoming, self._auth)
        if lite is not None:
            await (lite.serve(incoming, path) if refused is None else lite.refuse(incoming, refused))
        elif refused is not None:
            await asgi_messages.refuse(incoming, refused)
        elif page is not None:
            await page.app(scope, receive, incoming.send)
        else:
            await self._endpoint.serve(incoming)

    def drain(self) -> None:
        super().drain()
        self._endpoint.drain()
        if self._lite is not None:
            self._lite.drain()

    @property
    def paths(self) -> list[str]:
        return [*super().paths, *(() if self._lite is None else self._lite.paths)]

    # Admission

    async def _authenticate(self, incoming: HttpRequest, auth: Authenticator) -> Failure | None:
        if not incoming.has_unique_headers and incoming.has_repeated((b"authorization",)):
            return Failure(Fault.INVALID_REQUEST, "The request has more than one Authorization header.")
        return await self._identify(incoming, auth, incoming.headers.get(b"authorization"))


def make_app(engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> ServerApp:
    """Returns the application that the options ask for: that of MCP or, with `compat`, that of Delta-MCP 0.2."""
    return DeltaMcpApp(engine, path, **options) if options.get("compat") else HttpApp(engine, path, **options)
