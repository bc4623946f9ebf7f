"""The HTTP client for services and authorization servers, imported when the first of them is called."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import httpcore2
    import httpx2

Connect: TypeAlias = "Callable[[str, int, float | None], Awaitable[httpcore2.AsyncNetworkStream]]"
"""Connects to a host at a port within some seconds."""


def quiet_client(connect: "Connect | None" = None, **options: Any) -> "httpx2.AsyncClient":
    """Creates an HTTP client that does not log addresses, which may contain keys, unless its logger has a level.

    Args:
        connect: How connections are opened, instead of to any address; no proxy is then used.
    """
    import httpx2  # 60 ms to import, and most servers need no HTTP client

    log = logging.getLogger("httpx2")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)
    if connect is not None:
        options["transport"] = _transport(connect)
    return httpx2.AsyncClient(**options)


def _transport(connect: Connect) -> "httpx2.AsyncHTTPTransport":
    import httpcore2
    import httpx2

    class Backend(httpcore2.AsyncNetworkBackend):
        async def connect_tcp(
            self, host: str, port: int, timeout: float | None = None, *ignored: Any, **others: Any
        ) -> httpcore2.AsyncNetworkStream:
            return await connect(host, port, timeout)

    class Transport(httpx2.AsyncHTTPTransport):
        def __init__(self) -> None:
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=httpx2.create_ssl_context(), network_backend=Backend(), keepalive_expiry=5.0
            )

    return Transport()
