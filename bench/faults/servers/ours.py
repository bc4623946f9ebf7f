"""This library."""

import sys

from deltamcp import DeltaServer, Limits, ResultPolicy

from . import tools


def build() -> DeltaServer:
    # All clients of the faults have one address.
    server = DeltaServer("faults", "1", limits=Limits(account_share=1))
    for function in tools.TOOLS:
        if function is not tools.list_many:
            server.tool(function)
    server.tool(results=ResultPolicy(max_tokens=2_000))(tools.list_many)
    return server


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        build().run()
    else:
        build().run("http", port=int(sys.argv[1]))
