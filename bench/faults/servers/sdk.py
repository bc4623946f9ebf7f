"""The official SDK."""

import sys

from mcp.server.mcpserver import MCPServer

from . import tools


def build() -> MCPServer:
    server: MCPServer = MCPServer("faults", version="1", log_level="ERROR")
    for function in tools.TOOLS:
        server.add_tool(function)
    return server


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        build().run()
    else:
        build().run("streamable-http", port=int(sys.argv[1]))
