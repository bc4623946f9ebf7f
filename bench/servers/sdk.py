"""The official SDK: `MCPServer`, or its low-level server for given schemas."""

import sys
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from .tools import functions, read_listed


def build(tools: str) -> MCPServer:
    server: MCPServer = MCPServer("bench", version="1", log_level="WARNING")
    for function in functions(tools):
        server.add_tool(function)
    return server


def build_listed(tools: str) -> Server[Any]:
    made = [
        types.Tool(name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"])
        for tool in read_listed(tools)
    ]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=made)

    return Server("bench", version="1", on_list_tools=list_tools)


if __name__ == "__main__":
    transport, tools = sys.argv[1:3]
    if transport == "stdio":
        build(tools).run()
    else:
        from .uvicorn_settings import serve

        made = build_listed(tools) if tools.endswith(".json") else build(tools)
        serve(made.streamable_http_app(json_response="shipped" not in sys.argv), int(transport))
