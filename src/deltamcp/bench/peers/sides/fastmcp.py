"""FastMCP."""

import sys
from typing import Any

from fastmcp import FastMCP  # type: ignore[import-not-found,unused-ignore]
from fastmcp.tools import Tool, ToolResult  # type: ignore[import-not-found,unused-ignore]

from .tools import functions, listed


class Given(Tool):  # type: ignore[misc,unused-ignore]
    """A tool with a schema somebody else wrote."""

    async def run(self, arguments: dict[str, Any]) -> Any:
        return ToolResult(content=f"{len(arguments)} arguments")


def build(tools: str) -> Any:
    server: Any = FastMCP("bench", version="1")
    if tools.endswith(".json"):
        for tool in listed(tools):
            server.add_tool(Given(name=tool["name"], description=tool["description"], parameters=tool["inputSchema"]))
    else:
        for function in functions(tools):
            server.add_tool(function)
    return server


if __name__ == "__main__":
    door, tools = sys.argv[1:3]
    if door == "stdio":
        build(tools).run(show_banner=False)
    else:
        from .door import serve

        serve(build(tools).http_app(path="/mcp", json_response="shipped" not in sys.argv), int(door))
