"""A thousand records, read twenty at a time: what a client of Delta-MCP sees, and what everyone else does.

python examples/pagination.py                    # the six scenarios, in one process
delta-mcp serve examples/pagination.py           # the server alone
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from deltamcp import DeltaServer, ResultPolicy, tokens
from deltamcp.transports import memory

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


class Client:
    """Sends JSON-RPC to a server in the same process."""

    def __init__(self, link: memory.Link) -> None:
        self._link = link
        self._sent = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params}
        self._link.send(json.dumps(message).encode())
        result: dict[str, Any] = json.loads(await self._link.receive())["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> Any:
        """The first text of a result, as JSON, the way Delta-MCP's own client reads it."""
        result = await self.ask("tools/call", name=tool, arguments=arguments)
        return json.loads(result["content"][0]["text"])

    async def all_pages(self, tool: str, **arguments: Any) -> list[Any]:
        found: list[Any] = []
        page = 1
        while True:
            result = await self.call(tool, **arguments, page=page)
            if not isinstance(result, dict):
                return list(result)
            found += result["items"]
            if not result["hasMore"]:
                return found
            page += 1


@asynccontextmanager
async def client(version: str) -> AsyncIterator[Client]:
    async with memory.connect(server.engine) as link:
        made = Client(link)
        await made.ask("initialize", protocolVersion=version, capabilities={}, clientInfo={"name": "x", "version": "1"})
        yield made


async def main() -> None:
    async with client("delta-mcp/0.2.0") as delta:
        page = await delta.call("list_users")
        print("1. the first page:", len(page["items"]), "of", page["totalItems"], "-", page["note"])
        page = await delta.call("list_users", page=7)
        print("2. page 7 begins with id", page["items"][0]["id"])
        page = await delta.call("list_users", pageSize=5)
        print("3. five a page make", page["totalPages"], "pages")
        page = await delta.call("list_users", activeOnly=True)
        print("4. only the active:", page["totalItems"], "on", page["totalPages"], "pages")
        print("5. all pages of user_00:", len(await delta.all_pages("search_users", prefix="user_00")), "records")
        page = await delta.call("list_users", page=50)
        print("6. the last page:", page["note"], "hasMore is", page["hasMore"])
    async with client("2025-11-25") as other:
        result = await other.ask("tools/call", name="list_users", arguments={})
        texts = [block["text"] for block in result["content"] if block["type"] == "text"]
        print("\nAny other client reads", tokens.count("\n".join(texts)), "tokens:")
        print("\n".join(texts[0].split("\n")[:8]), "...", *texts[1:], sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
