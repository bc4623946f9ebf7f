"""A server of the official SDK, to be started: `python sdk_peer.py [PORT [TRANSPORT]]`."""

import sys
from typing import Any

from mcp.server import MCPServer
from pydantic import BaseModel

server = MCPServer("sdk")


class Place(BaseModel):
    city: str
    celsius: float


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Adds two whole numbers."""
    return a + b


@server.tool()
def weather(city: str) -> Place:
    """How warm it is."""
    return Place(city=city, celsius=21.5)


@server.tool()
def rows(n: int) -> list[dict[str, int]]:
    """Many rows."""
    return [{"id": at, "square": at * at} for at in range(n)]


@server.tool()
def words(text: str) -> str:
    """Gives back a text."""
    return text


@server.tool()
def fails() -> str:
    """Fails."""
    raise ValueError("on purpose")


@server.resource("mem://one")
def one() -> str:
    """One."""
    return "first"


@server.prompt()
def greet(name: str) -> str:
    """Greets."""
    return f"Hello {name}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        transport: Any = sys.argv[2] if len(sys.argv) > 2 else "streamable-http"
        server.run(transport, port=int(sys.argv[1]))
    else:
        server.run("stdio")
