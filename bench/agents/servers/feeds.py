"""Sources that change with every call: each answers with the next state that was recorded, and after the last anew.

`python -m bench.agents.servers.feeds DATA STATE`: how often each tool was called is in a file of its name in STATE.
"""

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("feeds", version="1", log_level="WARNING")


def next_state(recorded: Path, calls: Path) -> Any:
    """Return the state that is next, and note that it was asked for."""
    states = [json.loads(line)["data"] for line in recorded.read_text().splitlines()]
    count = int(calls.read_text()) if calls.is_file() else 0
    calls.write_text(str(count + 1))
    return states[count % len(states)]


def _next(name: str) -> Any:
    return next_state(Path(sys.argv[1]) / "evolving" / f"{name}.jsonl", Path(sys.argv[2]) / name)


@server.tool(structured_output=False)
def get_fire_incidents() -> str:
    """Get the wildfires of California as they are now, and all of this year."""
    return json.dumps(_next("calfire_incidents"))


@server.tool()
def list_submissions(domain: str) -> list[dict[str, Any]]:
    """List what was submitted to Hacker News from a domain, with points and comments as they are now."""
    found: list[dict[str, Any]] = _next("hn_domain_older")
    return found


@server.tool()
def list_tickets(project: str) -> list[dict[str, Any]]:
    """List the tickets of a project in the tracker, as they are now."""
    found: list[dict[str, Any]] = _next("rows400_nested")
    return found


if __name__ == "__main__":
    server.run()
