"""The pages beside the MCP endpoint, which need no credentials: health, documents, and the author's own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from deltamcp.auth.authenticator import Authenticator
from deltamcp.errors import ConfigurationError
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Receive, Scope, Send

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
import asyncio
import logging
import time

from deltamcp.calls.engine import Engine
from deltamcp.runtime.log import WARNING_FILTER

logger: logging.Logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"

_CHECK_SECONDS = 1.0
"""How long an answer of the store counts, so that anybody may ask for the page as often as they like."""
_OWNER = "readiness"
"""The owner and the name of the entry that a check reads; nobody has stored it."""
_NOT_STORED = (b"cache-control", b"no-store")


class HealthPages:
    """Answers whoever asks, by any name of the host and without credentials; the answers reveal one word."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._checked_at = -_CHECK_SECONDS
        self._store_answers = False
        self.draining = False

    async def show_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _show(scope, send, 200, b'{"status":"ok"}')

    async def show_readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        obstacle = await self._find_obstacle()
        if obstacle is None:
            await _show(scope, send, 200, b'{"status":"ready"}')
        else:
            await _show(scope, send, 503, b'{"status":"%b"}' % obstacle)

    async def _find_obstacle(self) -> bytes | None:
        """Returns the reason why no requests should come; None if there is none."""
        if self.draining:
            return b"draining"
        try:
            await self._engine.lifespan.start()
        except Exception as error:
            logger.warning("the server is not ready, because its lifespan fails", exc_info=error)
            return b"not started"
        return None if await self._ask_store() else b"store unavailable"

    async def _ask_store(self) -> bool:
        async with self._lock:
            if time.monotonic() - self._checked_at >= _CHECK_SECONDS:
                try:
                    await self._engine.store.get(_OWNER, _OWNER)  # which has a deadline, `Limits.store_seconds`
                    self._store_answers = True
                except Exception:  # of any kind, if the store is the author's own
                    self._store_answers = False
                self._checked_at = time.monotonic()
        return self._store_answers


async def _show(scope: Scope, send: Send, status: int, body: bytes) -> None:
    if scope["method"] in ("GET", "HEAD"):
        await asgi.respond_json(send, status, body, _NOT_STORED)
    else:
        await asgi.respond(send, 405, b"", [(b"allow", b"GET, HEAD")])


AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Routes: TypeAlias = "Mapping[str, AsgiApp] | Sequence[BaseRoute]"

# Anybody may read the documents, from any web page; browsers ask first, because clients send `MCP-Protocol-Version`.
_ANY_ORIGIN = (b"access-control-allow-origin", b"*")
_ANY_HEADER = (b"access-control-allow-headers", b"*")
_ONLY_GET = (b"access-control-allow-methods", b"GET")


class OpenPage(NamedTuple):
    """A page, as an ASGI application."""

    app: AsgiApp
    for_any_host: bool
    """Whether the page is sent whatever the `Host` and the `Origin` are."""
    is_probe: bool = False
    """Whether the page is sent however often it is asked for, also while the server starts."""


class OpenPages:
    """The pages of one HTTP application: health, the documents about authorization, and the author's own."""

    def __init__(self, health: HealthPages, auth: Authenticator | None, routes: Routes) -> None:
        """
        Raises:
            ConfigurationError: `routes` is neither a mapping nor a list of Starlette routes.
        """
        self._pages = {
            HEALTH_PATH: OpenPage(health.show_health, for_any_host=True, is_probe=True),
            READY_PATH: OpenPage(health.show_readiness, for_any_host=True, is_probe=True),
        }
        self._auth = auth
        self._routes: Sequence[BaseRoute] = ()
        if isinstance(routes, Mapping):
            for path, app in routes.items():
                if not path.startswith("/") or path in self._pages or not callable(app):
                    raise ConfigurationError(f"routes: {path!r} must be a path of its own, with an ASGI application.")
                self._pages[path] = OpenPage(app, for_any_host=False)
        else:
            self._routes = tuple(routes)
            if not all(hasattr(route, "matches") for route in self._routes):
                raise ConfigurationError("routes takes Starlette routes, or ASGI applications by their paths.")

    def add(self, path: str, app: AsgiApp) -> None:
        """Adds a page, whose requests have to come by an allowed host.

        Raises:
            ConfigurationError: there is a page at this path.
        """
        if path in self._pages:
            raise ConfigurationError(f"routes: {path} is a page of the server's own.")
        self._pages[path] = OpenPage(app, for_any_host=False)

    @property
    def paths(self) -> list[str]:
        """The paths of the pages, without those of Starlette routes."""
        return [*self._pages, *(self._auth.documents if self._auth is not None else ())]

    def find(self, path: str, scope: Scope) -> OpenPage | None:
        """Returns the page at a path, which is relative to where the application is mounted; None if there is none."""
        page = self._pages.get(path)
        if page is not None:
            return page
        document = self._auth.documents.get(path) if self._auth is not None else None
        if document is not None:
            return OpenPage(_Document(document), for_any_host=True)
        return self._find_route(scope)

    def _find_route(self, scope: Scope) -> OpenPage | None:
        partial = None
        for route in self._routes:
            match, found = route.matches(scope)
            if match.name == "FULL":
                return OpenPage(_RouteApp(route, found), for_any_host=False)
            if match.name == "PARTIAL" and partial is None:  # it has another method, and says so with 405
                partial = OpenPage(_RouteApp(route, found), for_any_host=False)
        return partial


class _RouteApp:
    """A Starlette route that matches a request, with what it found in the path."""

    def __init__(self, route: "BaseRoute", found: Scope) -> None:
        self._route = route
        self._found = found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._route.handle({**scope, **self._found}, receive, send)


class _Document:
    """A JSON document that every web page may read."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"]:
            case "GET":
                await asgi.respond_json(send, 200, self._body, _ANY_ORIGIN)
            case "HEAD":
                length = (b"content-length", b"%d" % len(self._body))
                headers = [asgi.JSON_TYPE, _ANY_ORIGIN, length]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
            case "OPTIONS":
                await asgi.respond_no_content(send, (_ANY_ORIGIN, _ONLY_GET, _ANY_HEADER))
            case _:
                await asgi.respond(send, 405, b"", (_ANY_ORIGIN, (b"allow", b"GET, HEAD, OPTIONS")))
