"""Sends messages, into a file: `python -m bench.agents.servers.mail OUTBOX`."""

import json
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("mail", version="1", log_level="WARNING")


@server.tool(structured_output=False)
def send_reminders(subject: str, names: list[str]) -> str:
    """Send a reminder about each of the tickets or people named, in one message."""
    with Path(sys.argv[1]).open("a") as outbox:
        outbox.write(json.dumps({"subject": subject, "names": names}) + "\n")
    return f"Sent reminders about {len(names)} names."


if __name__ == "__main__":
    server.run()
