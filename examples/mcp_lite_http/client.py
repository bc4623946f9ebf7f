"""A customer of the bookshop, who asserts what comes back.

python -m examples.mcp_lite_http.client http://127.0.0.1:8000     # after the server was started
"""

import asyncio
import sys
from typing import Any

from deltamcp import CallFailedError, connect
from deltamcp.errors import ResourceNeededError


async def choose_city(question: dict[str, Any]) -> dict[str, Any]:
    """Answers the shop's question, as a user would in a form."""
    print("order_book:", question["message"], "Oslo")
    return {"city": "Oslo"}


async def main(address: str) -> None:
    async with connect(f"mcplite+{address}", on_elicitation=choose_city) as client:
        [book] = await client.call("search_books", words="woolf")
        print(f"search_books: {book['title']} by {book['author']}")
        assert book["year"] == 1931, book

        try:
            await client.call("order_book", title="Dubliners")
        except CallFailedError as error:
            print(f"order_book: {error.code}, {error}")
            assert error.code == "SOLD_OUT" and error.retryable, error.code
        else:
            raise AssertionError("a book that is sold out was sold")

        ordered = await client.call("order_book", title="Middlemarch")
        print("order_book:", ordered)
        assert ordered == "Middlemarch goes to Oslo.", ordered

        review = await client.call("review", title="Middlemarch")
        print("review:", review)
        assert review.startswith("Middlemarch is by George Eliot."), review

        try:
            await client.call("read_preface", title="The Waves")
        except ResourceNeededError as error:
            [tokens] = error.resources
            print(
                f"read_preface: {error} It needs {tokens['required']} {tokens['kind']} and has {tokens['available']}."
            )
            preface = await client.call("read_preface", title="The Waves", max_tokens=tokens["required"])
            assert preface.startswith("The preface of The Waves"), preface
        else:
            raise AssertionError("a long preface came unasked")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
