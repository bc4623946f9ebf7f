"""This library, started as its users start it: `run()`, `run("http")` and `run("grpc")`."""

import sys

from deltamcp import DeltaServer, Limits

from .tools import functions, read_listed


async def count_arguments(arguments: dict[str, object]) -> str:
    return f"{len(arguments)} arguments"


def build(tools: str) -> DeltaServer:
    # All clients of a benchmark have one address.
    server = DeltaServer("bench", "1", limits=Limits(account_share=1))
    if tools.endswith(".json"):
        for tool in read_listed(tools):
            name, description, schema = tool["name"], tool["description"], tool["inputSchema"]
            server.tool(name=name, description=description, input_schema=schema)(count_arguments)
    else:
        for function in functions(tools):
            server.tool(function)
    return server


if __name__ == "__main__":
    transport, tools = sys.argv[1:3]
    if transport == "stdio":
        build(tools).run()
    elif transport.startswith("grpc:"):
        build(tools).run("grpc", port=int(transport.removeprefix("grpc:")))
    else:
        build(tools).run("http", port=int(transport))
