"""A member of the library, who finds its operations, lends a book and agrees to a removal.

python -m examples.library.client
"""

import asyncio

from deltamcp import CallFailedError, connect


async def main() -> None:
    asked: list[str] = []

    async def agree(question: dict[str, object]) -> dict[str, object]:
        asked.append(str(question["message"]))
        properties = question["requestedSchema"]["properties"]  # type: ignore[index]
        return dict.fromkeys(properties, True)

    async with connect(
        "delta-mcp serve examples/library/operations.json --disclosure meta", on_elicitation=agree
    ) as client:
        found = await client.call("discover", query=["lend a book"])
        print("discover:", *str(found).splitlines()[:3], sep="\n  ")

        books = await client.call("execute", operation="list_books", params={"available": True})
        print("list_books:", [book["title"] for book in books])
        assert [book["author"]["name"] for book in books] == ["Ursula K. Le Guin", "Italo Calvino"], books

        print("lend_book:", await client.call("execute", operation="lend_book", params={"book": 2, "member": "Grace"}))
        try:
            await client.call("execute", operation="lend_book", params={"book": 2, "member": "Alan"})
        except CallFailedError as error:
            print("again:", error)
        else:
            raise AssertionError("a book was lent twice")

        removed = await client.call("execute", operation="remove_book", params={"book": 1})
        print("remove_book:", removed)
        assert len(asked) == 1, asked


if __name__ == "__main__":
    asyncio.run(main())
