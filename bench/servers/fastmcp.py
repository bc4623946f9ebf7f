"""FastMCP."""

import sys
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import Tool, ToolResult

from .tools import functions, read_listed


class ListedTool(Tool):  # type: ignore[misc,unused-ignore]
    """A tool with a schema somebody else wrote."""

    async def run(self, arguments: dict[str, Any]) -> Any:
        return ToolResult(content=f"{len(arguments)} arguments")


def build(tools: str) -> Any:
    server: Any = FastMCP("bench", version="1")
    if tools.endswith(".json"):
        for tool in read_listed(tools):
            name, description, parameters = tool["name"], tool["description"], tool["inputSchema"]
            server.add_tool(ListedTool(name=name, description=description, parameters=parameters))
    else:
        for function in functions(tools):
            server.add_tool(function)
    return server


if __name__ == "__main__":
    transport, tools = sys.argv[1:3]
    if transport == "stdio":
        build(tools).run(show_banner=False)
    else:
        from .uvicorn_settings import serve

        serve(build(tools).http_app(path="/mcp", json_response="shipped" not in sys.argv), int(transport))
