"""A server of the official SDK's first major version, to be started: `python sdk_1x_server.py [PORT]`."""

import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import ToolAnnotations

server = FastMCP("sdk-1x", port=int(sys.argv[1]) if len(sys.argv) > 1 else 0)


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool()
async def folders(context: Context) -> list[str]:
    """List the folders that the client has."""
    return [str(root.uri) for root in (await context.session.list_roots()).roots]


@server.resource("memory://first")
def first() -> str:
    """Return the first text."""
    return "first"


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


if __name__ == "__main__":
    server.run("streamable-http" if len(sys.argv) > 1 else "stdio")
