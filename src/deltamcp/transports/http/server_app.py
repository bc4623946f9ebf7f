"""What the ASGI applications of a server have in common: their options, their pages and their quotas."""

import abc
import logging

from deltamcp.calls.engine import Engine
from deltamcp.transports.admission import Admission
from deltamcp.transports.http.asgi import Receive, Scope, Send
from deltamcp.transports.http.exchange import BodyReader
from deltamcp.transports.http.pages import HealthPages, OpenPages
from deltamcp.transports.http.reply import CallsInFlight
from deltamcp.transports.http.session_requests import make_directory
from deltamcp.transports.metrics import find_metrics
from deltamcp.transports.options import HttpOptions
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.trusted_proxies import TrustedProxies


class ServerApp(abc.ABC):
    """Serves HTTP requests, for any ASGI server or mounted in another application."""

    def __init__(self, engine: Engine, path: str, options: HttpOptions) -> None:
        self._engine = engine
        self.path: str = path.rstrip("/")
        """The path of the MCP endpoint."""
        auth = options.get("auth")
        proxies, request_ids = options.get("trusted_proxies", ()), options.get("request_ids", False)
        self._admission = Admission(engine, auth, proxies, request_ids)
        self.proxies: TrustedProxies | None = self._admission.proxies
        self._quotas = HttpQuotas(engine.limits)
        self._calls = CallsInFlight(engine)
        self._bodies = BodyReader(engine.limits)
        self._sessions = make_directory(engine, self._quotas, options.get("sessions", True))
        self._health = HealthPages(engine)
        self.pages: OpenPages = OpenPages(self._health, auth, options.get("routes", ()))
        """The pages beside the MCP endpoint."""
        for page_path, make_page in engine.pages.items():
            self.pages.add(page_path, make_page(auth))
        self._metrics = find_metrics(options.get("metrics", False))
        if self._metrics is not None:
            self._metrics.attach(engine, self._quotas, self._sessions.__len__, self.pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(self._engine, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send if self._metrics is None else self._metrics.watch(scope, send))

    @abc.abstractmethod
    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response to a request."""

    @property
    def paths(self) -> list[str]:
        """The paths that the application serves, without those of Starlette routes."""
        return [self.path or "/", *self.pages.paths]

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        self._health.draining = self._calls.draining = True
        self._engine.lifespan.drain(self._engine.limits.drain_seconds)


logger: logging.Logger = logging.getLogger("deltamcp.http")


async def serve_lifespan(engine: Engine, receive: Receive, send: Send) -> None:
    """Answers the ASGI server's messages of startup and shutdown."""
    await receive()
    try:
        async with engine.lifespan.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
            engine.lifespan.drain(engine.limits.drain_seconds)
    except Exception as error:
        logger.error("the server could not start or stop", exc_info=error)
        await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
        return
    await send({"type": "lifespan.shutdown.complete"})
