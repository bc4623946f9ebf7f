"""FastMCP."""

import sys
from typing import Any

from fastmcp import FastMCP

from . import tools


def build() -> Any:
    server: Any = FastMCP("faults", version="1")
    for function in tools.TOOLS:
        server.add_tool(function)
    return server


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        build().run(show_banner=False)
    else:
        build().run("http", port=int(sys.argv[1]), show_banner=False)
