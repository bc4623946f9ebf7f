"""The example server with the tools that the conformance suite calls as tasks; it needs the extra `promises`."""

import asyncio
import runpy
from pathlib import Path

from pydantic import BaseModel

from deltamcp import Context, DeltaServer, ToolError, elicitation

EXAMPLE = Path(__file__).parents[2] / "examples" / "everything.py"

server: DeltaServer = runpy.run_path(str(EXAMPLE))["server"]

SYNC_SECONDS = 2.0
"""The time in which a question is asked before there is a task; long enough for a busy machine."""


@server.tool
async def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@server.tool(promise="auto", sync_seconds=0.3)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return f"{label}: {seconds:g} s"


@server.tool(promise="always")
async def failing_job() -> str:
    """Fails in a way the model is told of."""
    await asyncio.sleep(0.5)
    raise ToolError("This job always fails.")


@server.tool(promise="always")
async def protocol_error_job(ctx: Context) -> str:
    """Needs the roots of the client, which has none."""
    return f"{len(await ctx.roots())} roots"


class Confirmed(BaseModel):
    confirm: bool


@server.tool(promise="always")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks while it works."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirmed)
    return f"{filename}: {answer.action}"


@server.tool(promise="always")
async def multi_input(ctx: Context) -> str:
    """Asks two things at once while it works."""
    answers = await ctx.ask(first=elicitation("First?", Confirmed), second=elicitation("Second?", Confirmed))
    return f"{len(answers)} answers"


class Name(BaseModel):
    name: str


@server.tool(promise="auto", sync_seconds=SYNC_SECONDS)
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, and then takes longer than a client waits."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await asyncio.sleep(SYNC_SECONDS + 1)
    return f"Hello, {answer.content.name}!" if answer.accepted else "Hello, stranger!"
