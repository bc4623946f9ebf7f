"""This library as `delta-mcp serve` runs it, with what its options offer: `python -m … PORT OPTIONS`.

The command imports this module again, by its name, for the server.
"""

import os
import sys

from deltamcp.cli.main import main

from . import tools
from .options import ServerOptions
from .ours import build

RESOURCE = "http://127.0.0.1/mcp"


def command_line(port: int, options: ServerOptions) -> list[str]:
    words = ["serve", "bench.hostile.servers.served:server", "--http", f"127.0.0.1:{port}"]
    if options.grpc_port:
        words += ["--grpc", f"127.0.0.1:{options.grpc_port}"]
    if options.metrics:
        words.append("--metrics")
    if options.tokens:
        words += ["--auth", "tokens"]
    if options.introspection:
        issuer = options.introspection.rpartition("/")[0]
        words += ["--auth", f"introspect:{options.introspection}", "--issuer", issuer, "--resource", RESOURCE]
        words.append("--only-for-this-resource")
    return words


if __name__ == "__main__":
    given = ServerOptions.parse(sys.argv[2])
    os.environ["DELTA_MCP_TOKENS"] = given.tokens
    os.environ["DELTA_MCP_INTROSPECTION_CLIENT_ID"] = os.environ["DELTA_MCP_INTROSPECTION_CLIENT_SECRET"] = "attacked"
    tools.settle_on_signal()
    main(command_line(int(sys.argv[1]), given))
else:
    server = build(ServerOptions.parse(sys.argv[2]))
