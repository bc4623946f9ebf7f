"""A client of the gateway: it finds a tool among those of five servers, reads its definition, calls it, reads on.

python -m examples.gateway.client
"""

import asyncio

from deltamcp import connect, count_tokens


async def main() -> None:
    async with connect("delta-mcp gateway examples/gateway/gateway.toml", progressive=False) as client:
        listed = await client.tools()
        print("listed:", ", ".join(tool.name for tool in listed))
        assert "discover" in {tool.name for tool in listed} and len(listed) < 10

        found = str(await client.call("discover", query=["items of a shelf in the stock"]))
        print("found:", next(line.split()[0] for line in found.splitlines() if "list_items" in line))

        schema = str(await client.call("get_schema", operation=["stock.list_items"]))
        assert "shelf" in schema

        reply = await client.call_tool("query", {"operation": "stock.list_items", "params": {}})
        items = await client.whole(reply)
        print(f"list_items: {len(items):,} items, of which a model reads at most 2,000 tokens first")
        assert len(items) == 2000 and reply.is_part and count_tokens(reply.text) <= 2000

        selected = {"params": {"shelf": "07"}, "fields": "max_by(@, &count).name"}
        one = await client.call_tool("query", {"operation": "stock.list_items", **selected})
        print("most on shelf 07:", one.value)
        assert one.value == "part 127", one.value


if __name__ == "__main__":
    asyncio.run(main())
