"""The server that the files of this folder run; put yours in its place.

It knows nothing of replicas: the store, the state keys and who may call are options of `delta-mcp serve`.
"""

from deltamcp import Context, DeltaServer, ResultPolicy, ToolError

server = DeltaServer("shelf", version="1.0", results=ResultPolicy(max_tokens=500))


@server.tool(annotations={"readOnlyHint": True})
async def list_books() -> list[dict[str, object]]:
    """List the books."""
    return [{"id": number, "title": f"Volume {number}", "lent": number % 3 == 0} for number in range(1, 301)]


@server.tool
async def lend(id: int, ctx: Context) -> str:
    """Lend a book, to a reader whose name the user is asked for."""
    answer = await ctx.elicit(f"Who takes volume {id}?", str)
    if answer.action != "accept":
        raise ToolError("Nobody takes it.")
    return f"{answer.content} takes volume {id}, says {ctx.principal.id}."
