"""A client that starts the server, calls its tools and asserts what they return.

python -m examples.stdio.client
"""

import asyncio

from deltamcp import ArgumentsError, CallFailedError, connect


async def main() -> None:
    async with connect("delta-mcp serve examples/stdio/server.py") as client:
        print("tools:", ", ".join(tool.name for tool in await client.tools()))

        found = await client.call("find_recipes", ingredient="eggs")
        print("with eggs:", ", ".join(found))
        assert found == ["pancakes", "omelette"], found

        needed = await client.call("shopping_list", recipe="omelette", portions=2)
        print("two omelettes:", needed)
        assert needed == {"eggs": 2, "butter": 2}, needed

        try:
            await client.call("shopping_list", recipe="soup")
        except CallFailedError as error:
            print("soup:", error)
        else:
            raise AssertionError("there is a recipe for soup")

        try:
            await client.call("shopping_list", recipe="omelette", portions="two")
        except ArgumentsError as error:
            print("not sent:", error)
        else:
            raise AssertionError("a word was sent as a number")


if __name__ == "__main__":
    asyncio.run(main())
