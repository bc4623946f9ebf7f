"""The server that the tests of the Delta-MCP dialect talk to, over each transport."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from deltamcp import DeltaServer, ToolError
from tests.support.bytes_client import (
    BASELINE,
    BytesClient,
    http_clients,
    memory_client,
    stdio_client,
)

DEMO_TOOLS = ["write_file", "add", "list_dir", "fails", "breaks"]


def demo_server(**options: Any) -> DeltaServer:
    server = DeltaServer("demo", "1.2", **options)

    @server.tool(
        summary="Write a file ✍.",
        title="Write",
        annotations={"destructiveHint": True, "readOnlyHint": False},
        meta={"example.org/kind": "files"},
        output_schema={"type": "object", "properties": {"written": {"type": "boolean"}}, "required": ["written"]},
    )
    async def write_file(path: str, text: str = "") -> dict[str, Any]:
        """Write a file – and everything else there is to say about that, which takes more than sixty characters."""
        return {"written": True, "path": path}

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def list_dir(path: str = ".") -> list[str]:
        """List a directory."""
        return ["a", "b"]

    @server.tool
    async def fails() -> str:
        """Fail and say so."""
        raise ToolError("the disk is full")

    @server.tool
    async def breaks() -> str:
        """Break."""
        raise RuntimeError("secret")

    return server


STDIO_DEMO = "from tests.support.demo_server import demo_server; demo_server().run()"
DemoConnection = Callable[[], contextlib.AbstractAsyncContextManager[BytesClient]]


@contextlib.asynccontextmanager
async def http_demo_client() -> AsyncIterator[BytesClient]:
    async with http_clients(demo_server()) as join:
        yield join()


DEMO_CONNECTIONS: dict[str, DemoConnection] = {
    "memory": lambda: memory_client(demo_server()),
    "stdio": lambda: stdio_client(STDIO_DEMO),
    "http": http_demo_client,
}


async def full_tool_list(server: DeltaServer, version: str = BASELINE) -> bytes:
    async with memory_client(server) as peer:
        await peer.standard(version)
        return await peer.result("tools/list")
