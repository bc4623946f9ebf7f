"""A client: an index of the tools, one definition when it is needed, calls, rows, and what a program has of each.

python -m examples.client_usage.client
"""

import asyncio
import json

from deltamcp import ResultPolicy, connect, count_tokens


async def main() -> None:
    async with connect("delta-mcp serve examples/client_usage/server.py", speak="delta-mcp") as client:
        index = await client.tools()
        names = [tool.name for tool in index]
        assert "list_cities" in names and len(names) >= 10
        lines = "\n".join(f"{tool.name} {tool.summary}" for tool in index)
        print(f"index: {len(names)} tools in {len(lines)} characters")

        [definition] = await client.describe("list_cities")
        print(f"one definition, when it is needed: {len(json.dumps(definition))} characters")
        assert "above" in definition["inputSchema"]["properties"]

        far = await client.call("distance", start=1, end=101)
        print("distance:", far)
        assert far == 300

    async with connect("delta-mcp serve examples/client_usage/server.py") as client:
        crowded = [city async for city in client.rows("list_cities", {"above": 900_000})]
        print("rows:", len(crowded), "cities, page by page")
        assert all(city["people"] > 900_000 for city in crowded)

        reply = await client.call_tool("list_cities", {}, want=ResultPolicy(max_tokens=200))
        print(f"a part of {len(await client.whole(reply))} cities, in which a model reads on")
        assert reply.is_part and count_tokens(reply.text) <= 200


if __name__ == "__main__":
    asyncio.run(main())
