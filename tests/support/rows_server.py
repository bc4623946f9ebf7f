"""A server behind a gateway, run as a program: long results, repeated structured content, errors, echoes."""

from typing import Any

from deltamcp import DeltaServer, ToolError

server = DeltaServer("rows")


@server.tool(annotations={"readOnlyHint": True})
async def rows(count: int = 3) -> str:
    """Return lines of text."""
    return "\n".join(f"{number}: a line of the text with some words in it" for number in range(count))


@server.tool(output_schema={"type": "object"})
async def table(count: int) -> dict[str, Any]:
    """Return rows, as text and as structured content that say the same."""
    return {"rows": [{"id": number, "title": f"Order {number}"} for number in range(count)]}


@server.tool
async def refuse() -> str:
    """Fail."""
    raise ToolError("No.")


if __name__ == "__main__":
    server.run()
