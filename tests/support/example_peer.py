"""A server of ours to be started: `delta-mcp serve tests/support/example_peer.py`."""

from typing import Any

from deltamcp import Context, DeltaServer, ResultPolicy

server = DeltaServer("peer", "1.0")
ROWS = [{"id": n, "name": f"row {n}", "kind": "even" if n % 2 == 0 else "odd"} for n in range(400)]


@server.tool
async def add(a: int, b: int) -> int:
    """Adds two whole numbers."""
    return a + b


@server.tool
async def echo(value: Any) -> Any:
    """Gives back what it was given."""
    return value


@server.tool(results=ResultPolicy(max_tokens=400))
async def rows(n: int = 400) -> list[dict[str, Any]]:
    """Many rows, a few at a time."""
    return ROWS[:n]


@server.tool
async def name_of(ctx: Context) -> str:
    """Asks the user's name."""
    answer = await ctx.elicit(
        "Who?", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    )
    return answer.content["name"] if answer.accepted else answer.action
