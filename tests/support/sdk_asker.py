"""A server of the official SDK whose tools ask their caller, to be started: `python sdk_asker.py [PORT]`."""

import asyncio
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = MCPServer("asker")
meeting = asyncio.Event()
arrived: set[str] = set()


class Name(BaseModel):
    name: str


@server.tool()
async def meet(caller: str, context: Context) -> str:
    """Waits until two callers are here, then asks each who it is."""
    arrived.add(caller)
    if len(arrived) == 2:
        meeting.set()
    await meeting.wait()
    result = await context.elicit(f"Who are you, {caller}?", Name)
    await context.report_progress(1, 2, caller)
    return f"{caller} is {result.data.name}" if result.action == "accept" else result.action


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
