"""Serves MCP-lite in this process, over HTTP or gRPC, at an address that `connect` takes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Literal

from deltamcp import DeltaServer
from tests.support.http_server import serve_http

Binding = Literal["http", "grpc"]


@contextlib.asynccontextmanager
async def serve_lite(server: DeltaServer, binding: Binding, **options: Any) -> AsyncIterator[str]:
    """Its address while it is served; `options` are those that both bindings have."""
    if binding == "http":
        async with serve_http(server, **options) as url:
            yield f"mcplite+{url.removesuffix('/mcp')}"
        return
    served = server.grpc(port=0, **options)
    await served.start()
    try:
        yield served.address
    finally:
        await served.stop()
