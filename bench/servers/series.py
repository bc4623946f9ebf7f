"""A server of the official SDK whose tool goes through recorded states: each call answers with the next of its series.

`python bench/servers/series.py STATES COUNTS`: how often each was asked for is in the folder COUNTS, for every process.
"""

import hashlib
import json
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server: MCPServer = MCPServer("series", version="1", log_level="WARNING")


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def next_state(series: int, call: str) -> str:
    """Return the state of a series as it is now."""
    states = [text for own, text in json.loads(Path(sys.argv[1]).read_text())[series] if own == call]
    folder = Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    counted = folder / hashlib.sha256(f"{series} {call}".encode()).hexdigest()
    count = int(counted.read_text()) if counted.is_file() else 0
    counted.write_text(str(count + 1))
    return str(states[count % len(states)])


if __name__ == "__main__":
    server.run()
