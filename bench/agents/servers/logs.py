"""Logs, recorded, as a server of the official SDK that returns them as text."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("logs", version="1", log_level="WARNING")
RECORDED = Path(sys.argv[1]) / "results" / "logs"


@server.tool(structured_output=False)
def list_logs() -> list[str]:
    """List the names of the logs that this machine keeps."""
    return sorted(file.stem for file in RECORDED.glob("*.log"))


@server.tool(structured_output=False)
def read_log(name: str) -> str:
    """Read a log of this machine, all of its lines."""
    return (RECORDED / f"{name}.log").read_text()


if __name__ == "__main__":
    server.run()
