"""Replicas of a server in this process, with a store that they share, and what distributes requests among them."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, Unpack

import uvicorn

from deltamcp import DeltaServer
from deltamcp.transports.http.asgi import Receive, Scope, Send
from deltamcp.transports.options import HttpOptions
from tests.support.asgi_client import AsgiClient
from tests.support.http_server import serve_uvicorn


class RoundRobin:
    """An ASGI application that passes each request to the next of several."""

    def __init__(self, apps: list[Any]) -> None:
        self._next = itertools.cycle(apps)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await next(self._next)(scope, receive, send)


class Replicas:
    """Replicas, their applications, and clients that share the headers of one session."""

    def __init__(self, servers: list[DeltaServer], options: HttpOptions) -> None:
        self.servers: list[Any] = servers
        self.apps: list[Any] = [server.asgi(**options) for server in servers]
        self.clients = [AsgiClient(app) for app in self.apps]
        for client in self.clients:
            client.headers = self.clients[0].headers

    def another_principal(self, **headers: str) -> AsgiClient:
        """A client of the second replica with the session's headers and others."""
        client = AsgiClient(self.apps[1])
        client.headers = {**self.clients[0].headers, **headers}
        return client


@contextlib.asynccontextmanager
async def replicas(
    make: Callable[[str], DeltaServer], store: str, count: int = 2, **options: Unpack[HttpOptions]
) -> AsyncIterator[Replicas]:
    """Replicas that run; `make` makes one with a store."""
    made = Replicas([make(store) for _ in range(count)], options)
    async with contextlib.AsyncExitStack() as stack:
        for server in made.servers:
            await stack.enter_async_context(server.engine.lifespan.running())
        yield made


@contextlib.asynccontextmanager
async def serve_replicas(running: Replicas) -> AsyncIterator[str]:
    """The address at which each request reaches the next replica."""
    config = uvicorn.Config(RoundRobin(running.apps), port=0, lifespan="off", log_level="error")
    async with serve_uvicorn(uvicorn.Server(config)) as address:
        yield f"{address}/mcp"
