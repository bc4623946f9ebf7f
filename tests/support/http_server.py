"""Serves a server or an application over HTTP in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from deltamcp import DeltaServer
from deltamcp.transports.http.server import make_server


@contextlib.asynccontextmanager
async def serve_http(server: DeltaServer, **options: Any) -> AsyncIterator[str]:
    """Its address while it is served in this process; `options` are those of `run`."""
    async with serve_uvicorn(make_server(server.engine, port=0, **options)) as address:
        yield f"{address}/mcp"


@contextlib.asynccontextmanager
async def serve_uvicorn(server: uvicorn.Server) -> AsyncIterator[str]:
    """The address of a uvicorn server while it runs on a free port."""
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done(), "the server ended before it began"
            await asyncio.sleep(0.005)
        [listener] = server.servers[0].sockets
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
