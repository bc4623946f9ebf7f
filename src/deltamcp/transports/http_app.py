"""Streamable HTTP as an ASGI application: admits requests by path, host, origin and credentials.

What it admits, `McpEndpoint` serves. Other pages, such as a dashboard, are routes beside it: see `DeltaServer.routes`.
"""

import logging
from collections.abc import Sequence
from typing import TypedDict, Unpack

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest, Receive, Scope, Send
from deltamcp.transports.mcp_endpoint import McpEndpoint
from deltamcp.transports.open_document import serve_document
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.trusted_proxies import TrustedProxies
from deltamcp.transports.warning_filter import WARNING_FILTER
from deltamcp.values import ANONYMOUS, Failure

logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MAX_NAMES = 300
"""The characters of a Host and an Origin that are remembered or logged; names of hosts have at most 253."""


class HttpOptions(TypedDict, total=False):
    """The options of `DeltaServer.asgi`, `routes` and `run("http")`."""

    allowed_hosts: Sequence[str] | None
    """The `Host` values that the server accepts, such as "tools.example" or "tools.example:8443"; "*" accepts all. By
    default only loopback names, for clients on the same machine."""
    allowed_origins: Sequence[str] | None
    """The `Origin` values that the server accepts besides those of the allowed hosts."""
    auth: Authenticator | None
    """Who the callers are. Without it every caller is anonymous."""
    trusted_proxies: Sequence[str]
    """The proxies whose `Forwarded` and `X-Forwarded-For` headers say who the client is: addresses, networks such as
    "10.0.0.0/8", or "unix" for connections over a Unix socket. By default there are none."""


class HttpApp:
    """The ASGI application, for any ASGI server or to mount in another application."""

    def __init__(self, engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> None:
        self._engine = engine
        self.path = path.rstrip("/")
        """The path of the MCP endpoint."""
        self._hosts = frozenset(host.lower() for host in (options.get("allowed_hosts") or LOOPBACK))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in (options.get("allowed_origins") or ()))
        self._auth = options.get("auth")
        self._documents = {} if self._auth is None else self._auth.documents
        self.proxies = TrustedProxies(options.get("trusted_proxies", ()))
        self._admitted: set[tuple[bytes | None, bytes | None]] = set()
        self._quotas = HttpQuotas(engine.limits)
        self._endpoint = McpEndpoint(engine, self._quotas)
        if self._auth is not None:
            engine.lifespan.add_closer(self._auth.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        if not self._engine.lifespan.started:
            await self._engine.lifespan.start()
        document = self._documents.get(scope["path"]) if self._documents else None
        if document is not None:
            await serve_document(document, scope, send)
            return
        raw = scope["headers"]
        headers: dict[bytes, bytes] = dict(raw)
        if self.proxies:
            scope = self.proxies.resolve(scope, headers)
        address = asgi_messages.client_address(scope)
        caller = self._engine.identify(ANONYMOUS, None, address)
        accepts = asgi_messages.read_accept(headers.get(b"accept", b"*/*"))
        unique = len(headers) == len(raw)
        incoming = HttpRequest(scope, headers, receive, send, caller, accepts, unique, self._quotas, self._auth)
        refused = self._admit(incoming)
        if refused is None and self._auth is not None:
            refused = await self._authenticate(incoming, self._auth, address)
        if refused is not None:
            await asgi_messages.refuse(incoming, refused)
            return
        await self._endpoint.serve(incoming)

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

    def _admit(self, incoming: HttpRequest) -> Failure | None:
        """Returns a failure if the path, the Host or the Origin is not allowed."""
        path: str = incoming.scope["path"]
        if path != self.path and self._path_within(incoming.scope) != self.path:
            return Failure(Fault.WRONG_PATH, f"The MCP endpoint is {self.path or '/'}.")
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
