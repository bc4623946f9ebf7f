"""FastMCP, with its own limits."""

import sys
from typing import Any

from fastmcp import Context, FastMCP

from bench.servers.uvicorn_settings import serve

from . import tools


async def chatter(ctx: Context) -> str:
    """Sends progress and log messages while it works."""
    for done in range(tools.CHATTER_MESSAGES):
        await ctx.report_progress(done, tools.CHATTER_MESSAGES)
        await ctx.log(tools.CHATTER_TEXT, "info")
    return "done"


def build() -> Any:
    server: Any = FastMCP("attacked", version="1")
    for function in (*tools.PLAIN, chatter):
        server.add_tool(function)
    server.prompt(tools.greet)
    server.resource(tools.TEMPLATE)(tools.read_place)
    return server


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        build().run(show_banner=False)
    else:
        serve(build().http_app(path="/mcp"), int(sys.argv[1]))
