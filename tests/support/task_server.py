"""A server whose tools are tasks, as a program for gateways to be in front of; it writes what happens into a file.

delta-mcp serve tests/support/task_server.py
"""

import asyncio
import os
from pathlib import Path

from deltamcp import Context, DeltaServer, ToolError, elicitation

LOG = "TASK_SERVER_LOG"
"""The environment variable with the file."""
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

server = DeltaServer("tasks")


def note(line: str) -> None:
    with Path(os.environ[LOG]).open("a") as file:
        file.write(f"{line}\n")


@server.tool(promise="always")
async def render(pages: int, ctx: Context, until: str | None = None) -> str:
    """Renders page by page, and ends when a file is there, if one is named."""
    note(f"render {pages}")
    for page in range(1, pages + 1):
        await ctx.report_progress(page, pages, f"page {page}")
    while until is not None and not Path(until).exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.02)
    return f"{pages} pages"


@server.tool(promise="always")
async def greet(ctx: Context) -> str:
    """Asks two things while it works."""
    answers = await ctx.ask(first=elicitation("First name?", FORM), last=elicitation("Last name?", FORM))
    note("greet")
    return " ".join(answer["content"]["name"] for answer in answers.values())


@server.tool(promise="always")
async def hang() -> str:
    """Never ends."""
    note("hang")
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        note("hang stopped")
    return "never"


@server.tool(promise="always")
async def jam() -> str:
    """Fails."""
    raise ToolError("The paper is jammed.")


@server.tool(promise="auto", sync_seconds=60)
async def optional(ctx: Context) -> str:
    """Is a task for those who ask for one."""
    return f"as a task: {ctx.promise_id is not None}"


@server.tool
async def plain_hang() -> str:
    """Never ends, and is no task."""
    note("plain hang")
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        note("plain hang stopped")
    return "never"
