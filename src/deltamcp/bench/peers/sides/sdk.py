"""The official SDK: `MCPServer`, or its low-level server for given schemas."""

import sys
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from .tools import functions, listed


def build(tools: str) -> MCPServer:
    server: MCPServer = MCPServer("bench", version="1", log_level="WARNING")
    for function in functions(tools):
        server.add_tool(function)
    return server


def build_listed(tools: str) -> Server[Any]:
    made = [
        types.Tool(name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"])
        for tool in listed(tools)
    ]

    async def give(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=made)

    return Server("bench", version="1", on_list_tools=give)


if __name__ == "__main__":
    door, tools = sys.argv[1:3]
    if door == "stdio":
        build(tools).run()
    else:
        from .door import serve

        made = build_listed(tools) if tools.endswith(".json") else build(tools)
        serve(made.streamable_http_app(json_response="shipped" not in sys.argv), int(door))
