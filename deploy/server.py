"""The server that the files of this folder run; put yours in its place.

It knows nothing of replicas: the store, the state keys and who may call are options of `delta-mcp serve`
and `delta-mcp worker`.
"""

import asyncio

from deltamcp import Context, DeltaServer, ResultPolicy, ToolError

server = DeltaServer("shelf", version="1.0", results=ResultPolicy(max_tokens=500))


@server.tool(annotations={"readOnlyHint": True})
async def list_books() -> list[dict[str, object]]:
    """List the books."""
    return [{"id": number, "title": f"Volume {number}", "lent": number % 3 == 0} for number in range(1, 301)]


@server.tool(promise="auto", sync_seconds=1, annotations={"readOnlyHint": True})
async def take_stock(ctx: Context, seconds_per_shelf: float = 1.0) -> str:
    """Count the books on their shelves, which takes a while."""
    for shelf in range(1, 11):
        await asyncio.sleep(seconds_per_shelf)
        await ctx.progress(shelf, 10, f"shelf {shelf}")
    return "300 books, as there should be."


@server.tool
async def lend(id: int, ctx: Context) -> str:
    """Lend a book, to a reader whose name the user is asked for."""
    answer = await ctx.elicit(f"Who takes volume {id}?", str)
    if answer.action != "accept":
        raise ToolError("Nobody takes it.")
    return f"{answer.content} takes volume {id}, says {ctx.principal.id}."
