"""FastMCP's proxy of the servers in an `mcpServers` file, as its documentation makes one."""

import json
import sys
from pathlib import Path
from typing import Any

from fastmcp.server import create_proxy

if __name__ == "__main__":
    transport, file = sys.argv[1:3]
    proxy: Any = create_proxy(json.loads(Path(file).read_text()), name="bench")
    if transport == "stdio":
        proxy.run(show_banner=False)
    else:
        proxy.run("http", port=int(transport), path="/mcp", show_banner=False)
