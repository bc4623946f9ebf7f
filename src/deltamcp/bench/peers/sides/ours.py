"""This library, through the doors its users take: `run()` and `run("http")`."""

import sys

from deltamcp import DeltaServer

from .tools import functions, listed


async def nothing(arguments: dict[str, object]) -> str:
    return f"{len(arguments)} arguments"


def build(tools: str) -> DeltaServer:
    server = DeltaServer("bench", "1")
    if tools.endswith(".json"):
        for tool in listed(tools):
            server.tool(name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"])(nothing)
    else:
        for function in functions(tools):
            server.tool(function)
    return server


if __name__ == "__main__":
    door, tools = sys.argv[1:3]
    if door == "stdio":
        build(tools).run()
    else:
        build(tools).run("http", port=int(door))
