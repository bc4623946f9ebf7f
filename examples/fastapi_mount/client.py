"""A client that reads the application's page and calls its tool.

python -m examples.fastapi_mount.client http://127.0.0.1:8000
"""

import asyncio
import sys

import httpx2

from deltamcp import connect


async def main(address: str) -> None:
    async with httpx2.AsyncClient() as browser:
        menu = (await browser.get(f"{address}/menu")).json()
    print("page:", menu)
    async with connect(f"{address}/mcp") as client:
        tea = await client.call("price", dish="tea")
    print("tool:", tea)
    assert menu["tea"] == tea == 3.5


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
