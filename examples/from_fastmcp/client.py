"""A client that starts the server, calls its tools and asserts what they return.

python -m examples.from_fastmcp.client
"""

import asyncio

from deltamcp import CallFailedError, connect


async def main() -> None:
    def lend(question: object) -> dict[str, object]:
        return {"reader": "Ada", "weeks": 3}

    async with connect("delta-mcp serve examples/from_fastmcp/server.py:mcp", on_elicitation=lend) as client:
        tools = await client.list_tools()
        print(len(tools), "tools:", ", ".join(tool["name"] for tool in tools[:4]), "...")
        assert len(tools) == 20, tools

        found = await client.call("titles_by", order="year")
        print("by year:", found)
        assert found == {"result": ["Faust", "Emma", "Persuasion"]}, found

        lent = await client.call("lend_book", id=1)
        print(lent)
        assert lent == "Emma is lent to Ada for 3 weeks.", lent

        try:
            await client.call("set_year", id=3, year=2030)
        except CallFailedError as error:
            print("refused:", error)
        else:
            raise AssertionError("a book may be of the future")


if __name__ == "__main__":
    asyncio.run(main())
