"""A bookshop that replies in the ways of MCP-lite: an answer, a failure, a question, a stream, a need for more.

delta-mcp serve examples/mcp_lite_http/server.py --http 127.0.0.1:8000
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from deltamcp import Context, DeltaServer, NeedsResource, ToolFailure

server = DeltaServer("bookshop", "1.0")
SHELF: dict[str, dict[str, Any]] = {
    "Middlemarch": {"author": "George Eliot", "year": 1871, "copies": 3},
    "Dubliners": {"author": "James Joyce", "year": 1914, "copies": 0},
    "The Waves": {"author": "Virginia Woolf", "year": 1931, "copies": 1},
}
PREFACE_TOKENS = 5200


@dataclass
class Delivery:
    city: Literal["Oslo", "Rome"]


@server.tool(type="query", annotations={"readOnlyHint": True})
async def search_books(words: str, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> list[dict[str, Any]]:
    """Find books by words of their title or author."""
    wanted = words.lower().split()
    found = [{"title": title, **book} for title, book in SHELF.items()]
    return [book for book in found if all(word in f"{book['title']} {book['author']}".lower() for word in wanted)][
        :limit
    ]


@server.tool(type="order")
async def order_book(title: str, ctx: Context) -> str:
    """Order one copy of a book; asks where to send it."""
    if title not in SHELF:
        raise ToolFailure("NO_SUCH_BOOK", f"There is no {title} here; search_books finds what there is.")
    if not SHELF[title]["copies"]:
        raise ToolFailure("SOLD_OUT", f"{title} is sold out until Friday.", retryable=True, details={"copies": 0})
    answer = await ctx.elicit(f"Where shall we send {title}?", Delivery)
    if not answer.accepted:
        raise ToolFailure("NOT_ORDERED", "Nothing was ordered.")
    SHELF[title]["copies"] -= 1
    return f"{title} goes to {answer.content.city}."


@server.tool(type="reading", annotations={"readOnlyHint": True})
async def review(title: str) -> AsyncIterator[str]:
    """Write a review, sentence by sentence."""
    book = SHELF[title]
    for sentence in (f"{title} is by {book['author']}. ", f"It came out in {book['year']}. ", "It is still in print."):
        yield sentence
        await asyncio.sleep(0.1)


@server.tool(type="reading", annotations={"readOnlyHint": True})
async def read_preface(title: str, max_tokens: int = 4000) -> str:
    """Return the preface of a book, if the caller has room for it."""
    if max_tokens < PREFACE_TOKENS:
        raise NeedsResource(
            "The preface is long.", kind="tokens", required=PREFACE_TOKENS, available=max_tokens, unit="token"
        )
    return f"The preface of {title}: " + "word " * 5000
