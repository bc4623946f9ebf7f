"""Serves the pages in a running event loop, on sockets of their own, until a block ends."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

import uvicorn

from deltamcp.dashboard.web.app import DashboardApp
from deltamcp.limits import Limits
from deltamcp.runtime.log import WARNING_FILTER
from deltamcp.runtime.quota import Quota
from deltamcp.transports.http.protocol import bounded_protocol
from deltamcp.transports.sockets import TlsFiles
from deltamcp.transports.trusted_proxies import TrustedProxies

_CONNECTIONS = 200
_END_SECONDS = 2


class _PageServer(uvicorn.Server):
    """uvicorn's server, which leaves signals to the program that it is in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def pages_served(
    app: DashboardApp, sockets: Sequence[socket.socket], tls: TlsFiles | None = None
) -> AsyncIterator[None]:
    """Serves pages at sockets that are bound already, inside the block."""
    logging.getLogger("uvicorn.error").addFilter(WARNING_FILTER)
    limits = Limits()
    config = uvicorn.Config(
        app,
        http=bounded_protocol(limits, Quota(_CONNECTIONS, limits.account_share), TrustedProxies(())),
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    server = _PageServer(config)
    serving = asyncio.create_task(server.serve([*sockets]))
    try:
        yield
    finally:
        app.close()
        server.should_exit = True
        await asyncio.wait([serving])
