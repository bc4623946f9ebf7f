"""What the ASGI applications of a server have in common: their options, their pages and their quotas."""

import abc
from collections.abc import Callable

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.calls.engine import Engine
from deltamcp.runtime.turns import LoopTurns
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_lifespan import serve_lifespan
from deltamcp.transports.asgi_messages import HttpRequest, Receive, Scope, Send
from deltamcp.transports.health import HealthPages
from deltamcp.transports.http_options import HttpOptions
from deltamcp.transports.http_request_ids import HttpRequestIds
from deltamcp.transports.metrics import find_metrics
from deltamcp.transports.open_pages import OpenPages
from deltamcp.transports.quota import REQUESTS_AT_ONCE, HttpQuotas
from deltamcp.transports.trusted_proxies import TrustedProxies
from deltamcp.values import Failure


class ServerApp(abc.ABC):
    """Serves HTTP requests, for any ASGI server or mounted in another application."""

    def __init__(self, engine: Engine, path: str, options: HttpOptions) -> None:
        self._engine = engine
        self.path = path.rstrip("/")
        """The path of the MCP endpoint."""
        self._auth = options.get("auth")
        self.proxies = TrustedProxies(options.get("trusted_proxies", ()))
        self._request_ids = HttpRequestIds() if options.get("request_ids") else None
        self._rates = engine.rates
        self._quotas = HttpQuotas(engine.limits)
        self._turns = LoopTurns(REQUESTS_AT_ONCE)
        self._health = HealthPages(engine)
        self.pages = OpenPages(self._health, self._auth, options.get("routes", ()))
        """The pages beside the MCP endpoint."""
        for page_path, make_page in engine.pages.items():
            self.pages.add(page_path, make_page(self._auth))
        self._metrics = find_metrics(options.get("metrics", False))
        if self._auth is not None:
            engine.lifespan.add_closer(self._auth.close)

    def _attach_metrics(self, count_sessions: Callable[[], int]) -> None:
        if self._metrics is not None:
            self._metrics.attach(self._engine, self._quotas, count_sessions, self.pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(self._engine, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send if self._metrics is None else self._metrics.watch(scope, send))

    @abc.abstractmethod
    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response to a request."""

    async def _identify(self, incoming: HttpRequest, auth: Authenticator, header: bytes | None) -> Failure | None:
        """Sets the caller of a request and counts it for its principal; or returns why the request is refused."""
        authorization = None if header is None else header.decode("latin-1")
        address = asgi_messages.client_address(incoming.scope)
        found = await auth.authenticate(Credentials(authorization, incoming.scope, address))
        if isinstance(found, Failure):
            return found
        incoming.caller = self._engine.identify(found, None, address)
        refused = None if self._rates is None else await self._rates.check_principal(incoming.caller)
        if refused is None and self._engine.catalog.prepare is not None:
            await self._engine.catalog.prepare(found)
        return refused

    @property
    def paths(self) -> list[str]:
        """The paths that the application serves, without those of Starlette routes."""
        return [self.path or "/", *self.pages.paths]

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        self._health.draining = True
        self._engine.lifespan.drain(self._engine.limits.drain_seconds)
