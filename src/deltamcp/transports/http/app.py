"""Streamable HTTP as ASGI applications: `HttpApp` finds what is at a path, and whether the sender may have it.

`ServerApp` is what it has in common with the application of Delta-MCP 0.2, which is loaded where it is asked for. At
an endpoint, `McpEndpoint` or `McpLiteEndpoint` serves the request. `OpenPages` has the other pages, which need no
credentials.
"""

import abc
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Unpack

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.transports.admission import Admission, TrustedProxies
from deltamcp.transports.http import asgi, origins
from deltamcp.transports.http.asgi import Header, Receive, Scope, Send
from deltamcp.transports.http.endpoint import McpEndpoint, SessionRequests
from deltamcp.transports.http.exchange import BodyReader, Exchange, HttpAnswer, refusal, repeated_names
from deltamcp.transports.http.mcp_lite import McpLiteEndpoint
from deltamcp.transports.http.origins import LOOPBACK, AllowedNames
from deltamcp.transports.http.pages import HealthPages, OpenPage, OpenPages
from deltamcp.transports.http.reply import CallsInFlight
from deltamcp.transports.metrics import find_metrics
from deltamcp.transports.options import HttpOptions, read_settings
from deltamcp.transports.sessions.shared import make_directory
from deltamcp.values import Failure

logger: logging.Logger = logging.getLogger("deltamcp.http")


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

    @abc.abstractmethod
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response to a request; passes other scopes on to `_serve_other`."""

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(self._engine, receive, send)

    @property
    def paths(self) -> list[str]:
        """The paths that the application serves, without those of Starlette routes."""
        return [self.path or "/", *self.pages.paths]

    def drain(self) -> None:
        """Ends the streams that do not end by themselves; calls in flight go on."""
        self._health.draining = self._calls.draining = True
        self._engine.lifespan.drain(self._engine.limits.drain_seconds)


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


_NONE: frozenset[bytes] = frozenset()

Step = Callable[[Exchange], Awaitable[Failure | None]]
"""One thing that a request must pass before it is served."""


class Place(NamedTuple):
    """What is at a path."""

    serve: Callable[[Exchange], Awaitable[None]]
    names: AllowedNames | None = None
    """The names by which it may be reached."""
    steps: tuple[Step, ...] = ()
    """What its requests pass afterwards, in this order."""
    refusal: Callable[[Failure], HttpAnswer] = refusal
    methods: Header | None = origins.MCP_METHODS
    """The header that allows pages of other origins the methods of the path; None for a place that answers itself."""


class HttpApp(ServerApp):
    """The application for clients of MCP."""

    def __init__(self, engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> None:
        super().__init__(engine, path, options)
        self._names = AllowedNames(options.get("allowed_hosts") or LOOPBACK, options.get("allowed_origins") or ())
        self._endpoint = McpEndpoint(
            engine, self._calls, self._bodies, SessionRequests(engine, self._calls, self._sessions)
        )
        settings = read_settings(options.get("mcp_lite", True))
        beside = "" if settings is None else f", and MCP-lite is below /{settings.prefix.strip('/')}"
        self._no_page = Failure(Fault.WRONG_PATH, f"The MCP endpoint is {self.path or '/'}{beside}.")
        self._lite = None if settings is None else McpLiteEndpoint(engine, self._calls, self._bodies, settings)
        identify: tuple[Step, ...] = () if options.get("auth") is None else (self._admission.identify,)
        self._rate: tuple[Step, ...] = () if engine.rates is None else (self._admission.check_rate,)
        to_endpoint = (*self._rate, *identify)
        self._mcp_place = Place(self._endpoint.serve, self._names, to_endpoint)
        if self._lite is not None:
            self._lite_place = Place(self._lite.serve, self._names, to_endpoint, self._lite.refusal, origins.ONLY_POST)
        self._nowhere = Place(self._refuse_path, self._names, self._rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        if self._metrics is not None:
            send = self._metrics.watch(scope, send)
        place = self._find_place(scope)
        headers: dict[bytes, bytes] = dict(scope["headers"])
        added, scope, (address, caller) = self._admission.begin(scope, headers)
        if added:
            send = asgi.adding_headers(send, added)
        if not self._admission.turns.take_free():
            await self._admission.turns.take(address)
        if not self._engine.lifespan.started and (place.names is not None or place.steps):
            await self._engine.lifespan.start()
        exchange = Exchange(
            scope,
            headers,
            address,
            caller,
            scope["method"],
            _NONE if len(headers) == len(scope["headers"]) else repeated_names(scope["headers"]),
            receive,
            send,
            self._quotas,
            self._admission.challenge,
            self._metrics,
            added,
        )
        if exchange.method == "OPTIONS" and place.methods is not None and origins.is_preflight(headers):
            answer = functools.partial(origins.answer_preflight, place.methods)
            place = place._replace(serve=answer, steps=self._rate)
        try:
            refused = None if place.names is None else place.names.check(exchange)
            for step in place.steps if refused is None else self._rate:  # which counts whoever is refused, too
                failure = await step(exchange)
                if failure is not None:
                    refused = failure
                    break
            if refused is None:
                await place.serve(exchange)
            else:
                await exchange.refuse(place.refusal(refused))
        finally:
            if exchange.held:
                exchange.close()

    def _find_place(self, scope: Scope) -> Place:
        if scope["path"] == self.path:
            return self._mcp_place
        path = asgi.path_within(scope)
        if path == self.path:
            return self._mcp_place
        if self._lite is not None and self._lite.owns(path):
            return self._lite_place
        page = self.pages.find(path, scope)
        return self._nowhere if page is None else self._place_of(page)

    def _place_of(self, page: OpenPage) -> Place:
        async def serve(exchange: Exchange) -> None:
            await page.app(exchange.scope, exchange.receive, exchange.send)

        if page.is_probe:
            return Place(serve, methods=None)
        if page.for_any_host:
            return Place(serve, None, (self._admission.check_rate,), methods=None)
        return Place(serve, self._names, self._rate)

    def drain(self) -> None:
        super().drain()
        self._endpoint.drain()
        if self._lite is not None:
            self._lite.drain()

    @property
    def paths(self) -> list[str]:
        return [*super().paths, *(() if self._lite is None else self._lite.paths)]

    async def _refuse_path(self, exchange: Exchange) -> None:
        await exchange.refuse(refusal(self._no_page))


def make_app(engine: Engine, path: str = "/mcp", **options: Unpack[HttpOptions]) -> ServerApp:
    """Returns the application that the options ask for: that of MCP or, with `compat`, that of Delta-MCP 0.2."""
    if not options.get("compat"):
        return HttpApp(engine, path, **options)
    from deltamcp.transports.http.delta_mcp import DeltaMcpApp

    return DeltaMcpApp(engine, path, **options)
