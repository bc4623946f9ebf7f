"""Files of one folder: read, write, list, search. What is long is cut to a budget, and can be read on in.

SANDBOX=/path/to/folder delta-mcp serve examples/filesystem/server.py
"""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `examples` is, however this file is started

from deltamcp import DeltaServer, ResultPolicy
from examples.filesystem.sandbox import Sandbox

server = DeltaServer("files", version="1.0", results=ResultPolicy(max_tokens=500))
sandbox = Sandbox(Path(os.environ.get("SANDBOX", ".")))


@server.tool(annotations={"readOnlyHint": True})
def list_folder(path: str = ".") -> list[dict[str, Any]]:
    """List a folder."""
    return sandbox.list(path)


@server.tool(annotations={"readOnlyHint": True})
def read_file(path: str) -> str:
    """Read a file of text."""
    return sandbox.read(path)


@server.tool(annotations={"destructiveHint": True, "idempotentHint": True})
def write_file(path: str, text: str) -> str:
    """Write a file, in place of what it had."""
    sandbox.write(path, text)
    return f"{path} has {len(text.encode())} bytes."


@server.tool(annotations={"readOnlyHint": True})
def search_files(pattern: str) -> list[str]:
    """Find files by a glob of their name, such as *.py."""
    return list(sandbox.search(pattern))


if __name__ == "__main__":
    server.run()
