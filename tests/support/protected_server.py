"""A server that admits requests with tokens of an authorization server only."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from deltamcp import Context, DeltaServer
from deltamcp.auth.resource_server import ResourceServer
from deltamcp.transports.http.server import make_server
from tests.support.http_server import serve_uvicorn
from tests.support.processes import free_port


def make_book_server() -> DeltaServer:
    """One tool that every caller may use, and one that needs another scope."""
    server = DeltaServer("books")

    @server.tool(annotations={"readOnlyHint": True})
    async def whoami(ctx: Context) -> list[str]:
        """Say who calls."""
        return [ctx.principal.id, str(ctx.principal.issuer), *sorted(ctx.principal.scopes)]

    @server.tool(scopes=["books:lend"])
    async def lend(id: int, ctx: Context) -> str:
        """Lend a book."""
        return f"Volume {id} is lent by {ctx.principal.id}."

    return server


@contextlib.asynccontextmanager
async def protected_server(issuer: str, **options: Any) -> AsyncIterator[str]:
    """The address of the book server, whose callers have tokens of an issuer; options are those of `ResourceServer`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    needed: dict[str, Any] = {"scopes": ["books:read"], "step_up": ["books:lend"], **options}
    auth = ResourceServer(url, issuer, **needed)
    async with serve_uvicorn(make_server(make_book_server().engine, port=port, auth=auth)):
        yield url
