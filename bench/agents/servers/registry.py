"""What package registries say of a package, recorded, as a server of the official SDK that returns JSON as text."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("registry", version="1", log_level="WARNING")
RECORDED = Path(sys.argv[1]) / "results"


@server.tool(structured_output=False)
def get_pypi_package(name: str) -> str:
    """Get a Python package from PyPI: what it is, and its releases with their files."""
    return (RECORDED / f"pypi_{name}.json").read_text()


@server.tool(structured_output=False)
def get_npm_package(name: str) -> str:
    """Get a Node package from npm: its versions, and when each was published."""
    return (RECORDED / f"npm_view_{name}.json").read_text()


if __name__ == "__main__":
    server.run()
