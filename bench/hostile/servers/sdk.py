"""The official SDK, with its own limits."""

import sys

from mcp.server.mcpserver import Context, MCPServer

from bench.servers.uvicorn_settings import serve

from . import tools


async def chatter(ctx: Context) -> str:
    """Sends progress and log messages while it works."""
    for done in range(tools.CHATTER_MESSAGES):
        await ctx.report_progress(done, tools.CHATTER_MESSAGES)
        await ctx.log("info", tools.CHATTER_TEXT)
    return "done"


def build() -> MCPServer:
    server: MCPServer = MCPServer("attacked", version="1", log_level="ERROR")
    for function in (*tools.PLAIN, chatter):
        server.add_tool(function)
    server.prompt()(tools.greet)
    server.resource(tools.TEMPLATE)(tools.read_place)
    return server


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        build().run()
    else:
        serve(build().streamable_http_app(), int(sys.argv[1]))
