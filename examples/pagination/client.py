"""The six ways to read a thousand records in pages, as a client of Delta-MCP does, and what everyone else reads.

python -m examples.pagination.client
"""

import asyncio
from typing import Any

from deltamcp import connect, tokens
from examples.pagination.server import server


async def main() -> None:
    # `page` and `pageSize` are Delta-MCP's own: no tool declares them, so that arguments are sent unchecked.
    async with connect(server, speak="delta-mcp", validate=False) as client:

        async def page_of(tool: str, **arguments: Any) -> Any:
            return (await client.call_tool(tool, arguments)).shape

        page = await page_of("list_users")
        print("1. the first page:", len(page["items"]), "of", page["totalItems"], "-", page["note"])
        page = await page_of("list_users", page=7)
        print("2. page 7 begins with id", page["items"][0]["id"])
        page = await page_of("list_users", pageSize=5)
        print("3. five a page make", page["totalPages"], "pages")
        page = await page_of("list_users", activeOnly=True)
        print("4. only the active:", page["totalItems"], "on", page["totalPages"], "pages")
        records = [row async for row in client.rows("search_users", {"prefix": "user_00"})]
        print("5. all pages of user_00:", len(records), "records")
        page = await page_of("list_users", page=50)
        print("6. the last page:", page["note"], "hasMore is", page["hasMore"])
    async with connect(server, speak="handshake", progressive=False) as other:
        reply = await other.call_tool("list_users")
        print("\nAny other client reads", tokens.count(reply.text), "tokens:")
        print("\n".join(reply.texts[0].split("\n")[:8]), "...", *reply.texts[1:], sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
