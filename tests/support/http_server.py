"""Serves a server over HTTP in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from deltamcp import DeltaServer
from deltamcp.transports.uvicorn_server import make_server


@contextlib.asynccontextmanager
async def serve_http(server: DeltaServer) -> AsyncIterator[str]:
    """Its address while it is served in this process."""
    made = make_server(server.engine, port=0)
    task = asyncio.create_task(made.serve())
    try:
        while not made.started:
            assert not task.done(), "the server ended before it began"
            await asyncio.sleep(0.005)
        [listener] = made.servers[0].sockets
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        made.should_exit = True
        await task
