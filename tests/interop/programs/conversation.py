"""What the programs of this folder share: the test says which tool the model calls, and reads what reaches the model.

A line of standard input is a call, `{"tool": ..., "arguments": {...}}`; a line of standard output is the list of what
the library puts before the model for it: texts as strings, anything else as the library's own object. The words of the
command line start the server.
"""

import asyncio
import json
import sys
from typing import Any

COMMAND, *WORDS = sys.argv[1:]
"""What starts the server."""


async def next_call() -> dict[str, Any] | None:
    """The next call; None when the conversation is over."""
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None


def show(parts: list[Any]) -> None:
    """Tells what reached the model."""
    print(json.dumps(parts, default=repr), flush=True)


def content_parts(content: Any) -> list[Any]:
    """The parts of a message: its text, or its blocks with those of text as strings."""
    if isinstance(content, str):
        return [content]
    return [block["text"] if set(block) <= {"type", "text", "id"} and "text" in block else block for block in content]
