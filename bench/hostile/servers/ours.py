"""This library, started as its users start it."""

import sys
from typing import Any

from deltamcp import Context, DeltaServer, Limits, ResultPolicy

from . import tools
from .options import ServerOptions


def build(options: ServerOptions) -> DeltaServer:
    limits = Limits()
    if options.short_lifetimes:
        limits = Limits(session_idle_seconds=1, kept_seconds=1, kept_seconds_in_all=2)
    disclosure: Any = options.disclosure
    server = DeltaServer("attacked", "1", limits=limits, store=options.store, disclosure=disclosure)
    for function in tools.PLAIN:
        server.tool(function)
    for function in tools.CUT:
        server.tool(name=f"{function.__name__}_in_parts", results=ResultPolicy(max_tokens=2_000))(function)
    server.tool(name="list_rows_as_changes", results=ResultPolicy(deltas=True, dedup=True))(tools.list_rows)
    server.tool(name="delete_everything", policy="confirm")(tools.echo)

    for number in range(options.operations):
        server.tool(name=f"operation_{number}", description=tools.describe_operation(number))(tools.echo)
    server.tool(tools.read_in_pieces)

    @server.tool
    async def chatter(ctx: Context) -> str:
        """Sends progress and log messages while it works."""
        for done in range(tools.CHATTER_MESSAGES):
            await ctx.report_progress(done, tools.CHATTER_MESSAGES)
            await ctx.log("info", tools.CHATTER_TEXT)
        return "done"

    server.prompt(tools.greet)
    server.resource(tools.TEMPLATE)(tools.read_place)

    @server.completion(prompt="greet", argument="name")
    async def complete(value: str) -> list[str]:
        return [name for name in tools.NAMES if name.startswith(value)]

    return server


if __name__ == "__main__":
    transport, given = sys.argv[1:3]
    tools.settle_on_signal()
    if transport == "stdio":
        build(ServerOptions.parse(given)).run()
    else:
        build(ServerOptions.parse(given)).run("http", port=int(transport))
