"""A thousand records, read twenty at a time.

delta-mcp serve examples/pagination/server.py
"""

from typing import Any

from deltamcp import DeltaServer, ResultPolicy

server = DeltaServer("users", results=ResultPolicy(max_tokens=2000, page_size=20))

USERS = [
    {
        "id": number,
        "username": f"user_{number:04}",
        "email": f"user_{number:04}@example.com",
        "score": number * 37 % 1000,
        "active": (number - 1) % 3 != 0,
    }
    for number in range(1, 1001)
]


@server.tool(annotations={"readOnlyHint": True})
async def list_users(activeOnly: bool = False) -> list[dict[str, Any]]:  # noqa: N803 - the name its clients know
    """List the users."""
    return [user for user in USERS if user["active"] or not activeOnly]


@server.tool(annotations={"readOnlyHint": True})
async def search_users(prefix: str) -> list[dict[str, Any]]:
    """Find users by the beginning of their name."""
    return [user for user in USERS if str(user["username"]).startswith(prefix)]
