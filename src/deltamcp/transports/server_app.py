"""The ASGI application of a server: that of MCP or, with `compat`, that of Delta-MCP 0.2."""

from typing import Protocol, Unpack

from deltamcp.calls.engine import Engine
from deltamcp.transports.asgi_messages import Receive, Scope, Send
from deltamcp.transports.delta_mcp_app import DeltaMcpApp
from deltamcp.transports.http_app import HttpApp, HttpOptions
from deltamcp.transports.open_pages import OpenPages
from deltamcp.transports.trusted_proxies import TrustedProxies


class ServerApp(Protocol):
    """Serves HTTP requests, for any ASGI server or mounted in another application."""

    path: str
    """The path of the MCP endpoint."""
    proxies: TrustedProxies
    pages: OpenPages
    """The pages beside the MCP endpoint."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        ...


def make_app(engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> ServerApp:
    """Returns the application that the options ask for."""
    return DeltaMcpApp(engine, path, **options) if options.get("compat") else HttpApp(engine, path, **options)
