"""The stock of a warehouse: a server whose lists are long, and which leaves their size to the gateway in front of it.

delta-mcp serve examples/gateway/stock.py
"""

from typing import Any

from deltamcp import DeltaServer, ToolError

server = DeltaServer("stock", "1.0")
ITEMS: dict[int, dict[str, Any]] = {
    number: {"id": number, "name": f"part {number}", "shelf": f"{number % 40:02}", "count": number * 37 % 100}
    for number in range(1, 2001)
}


@server.tool(annotations={"readOnlyHint": True})
async def list_items(shelf: str = "") -> list[dict[str, Any]]:
    """List the items, or those of one shelf."""
    return [item for item in ITEMS.values() if shelf in ("", item["shelf"])]


@server.tool(annotations={"destructiveHint": False, "idempotentHint": True})
async def set_count(id: int, count: int) -> dict[str, Any]:
    """Set how many there are of an item."""
    if id not in ITEMS:
        raise ToolError(f"There is no item {id}; list_items has those there are.")
    ITEMS[id]["count"] = count
    return ITEMS[id]


@server.tool(annotations={"destructiveHint": True})
async def remove_item(id: int) -> str:
    """Remove an item from the stock."""
    if ITEMS.pop(id, None) is None:
        raise ToolError(f"There is no item {id}; list_items has those there are.")
    return f"Item {id} is gone."
