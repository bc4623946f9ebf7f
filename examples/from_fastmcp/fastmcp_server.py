"""A library of books, written against FastMCP 4.1. `server.py` is the same server, line by line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.server.middleware import Middleware
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from pydantic import BaseModel, Field

PIXEL = b"\x89PNG\r\n\x1a\n"


class Book(BaseModel):
    id: int
    title: str
    author: str
    year: int
    lent_to: str | None = None


@dataclass
class Stats:
    books: int
    lent: int
    oldest: int


class Loan(BaseModel):
    reader: str
    weeks: int = 2


def first_books() -> dict[int, Book]:
    return {
        1: Book(id=1, title="Emma", author="Austen", year=1815),
        2: Book(id=2, title="Faust", author="Goethe", year=1808),
        3: Book(id=3, title="Persuasion", author="Austen", year=1817),
    }


@asynccontextmanager
async def open_shelf(server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"books": first_books(), "calls": []}


class CountCalls(Middleware):
    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        context.fastmcp_context.lifespan_context["calls"].append(context.message.name)
        return await call_next(context)


class ProtectBooks(Middleware):
    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        if (context.message.arguments or {}).get("id") == 2:
            raise ToolError("Faust may not be touched.")
        return await call_next(context)


mcp = FastMCP(
    "library",
    version="1.0",
    instructions="Look before you lend.",
    lifespan=open_shelf,
    middleware=[CountCalls(), ProtectBooks()],
    mask_error_details=True,
)


def shelf(ctx: Context) -> dict[int, Book]:
    books: dict[int, Book] = ctx.lifespan_context["books"]
    return books


def book_at(id: int, ctx: Context) -> Book:
    if id not in shelf(ctx):
        raise ToolError(f"There is no book {id}.")
    return shelf(ctx)[id]


# Structured output


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
async def get_book(id: int, ctx: Context) -> Book:
    """Get one book."""
    return book_at(id, ctx)


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
async def find_books(
    query: Annotated[str, "A part of the title or the author"],
    ctx: Context,
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
) -> list[Book]:
    """Find books by a part of their title or author."""
    found = [book for book in shelf(ctx).values() if query.lower() in f"{book.title} {book.author}".lower()]
    return found[:limit]


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
def count_books(ctx: Context) -> int:
    """Count the books."""
    return len(shelf(ctx))


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
def get_stats(ctx: Context) -> Stats:
    """Sum the shelf up."""
    books = shelf(ctx).values()
    return Stats(len(books), sum(book.lent_to is not None for book in books), min(book.year for book in books))


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
def titles_by(order: Literal["title", "year"], ctx: Context) -> list[str]:
    """List the titles in an order."""
    return [book.title for book in sorted(shelf(ctx).values(), key=lambda book: getattr(book, order))]


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"}, output_schema=None)
def describe_shelf(ctx: Context) -> str:
    """Describe the shelf in a sentence."""
    return f"{len(shelf(ctx))} books, from {get_stats(ctx).oldest} on."


# Content


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"}, output_schema=None)
def get_cover(id: int, ctx: Context) -> Image:
    """Show the cover of a book."""
    book_at(id, ctx)
    return Image(data=PIXEL, format="png")


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"}, output_schema=None)
def get_page(id: int, ctx: Context) -> list[str | Image]:
    """Show the first page of a book, with its picture."""
    return [f"{book_at(id, ctx).title}, page 1", Image(data=PIXEL, format="png")]


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
def price(id: int, ctx: Context) -> ToolResult:
    """Tell the price of a book."""
    book = book_at(id, ctx)
    return ToolResult(f"{book.title} costs 5 euros.", {"euros": 5}, {"source": "list"})


# Context


@mcp.tool(tags={"change"})
async def import_books(titles: list[str], ctx: Context) -> int:
    """Import books by their titles."""
    await ctx.info(f"{len(titles)} books are imported")
    for number, title in enumerate(titles, 1):
        free = max(shelf(ctx)) + 1
        shelf(ctx)[free] = Book(id=free, title=title, author="unknown", year=2000)
        await ctx.report_progress(number, len(titles), title)
    await ctx.warning("their authors are unknown")
    return len(shelf(ctx))


@mcp.tool(tags={"change"}, output_schema=None)
async def choose_shelf(name: str, ctx: Context) -> str:
    """Choose a shelf for the rest of the conversation."""
    await ctx.set_state("shelf", name)
    return f"The shelf is {name}."


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"}, output_schema=None)
async def get_shelf(ctx: Context) -> str:
    """Tell which shelf was chosen."""
    return f"The shelf is {await ctx.get_state('shelf') or 'unknown'}."


@mcp.tool(tags={"change"}, output_schema=None)
async def forget_shelf(ctx: Context) -> str:
    """Forget which shelf was chosen."""
    await ctx.delete_state("shelf")
    return "No shelf is chosen."


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"}, output_schema=None)
async def read_summary(ctx: Context) -> str:
    """Read the summary of the library."""
    result = await ctx.read_resource("library://summary")
    return str(result.contents[0].content)


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"}, output_schema=None)
async def write_review(title: str, ctx: Context) -> str:
    """Tell how a review of a book is asked for."""
    result = await ctx.get_prompt("review", {"title": title})
    return str(result.messages[0].content.text)


@mcp.tool(annotations={"readOnlyHint": True}, tags={"look"})
async def list_calls(ctx: Context) -> list[str]:
    """List the calls since the server started."""
    return list(ctx.lifespan_context["calls"])


# Questions to the user


@mcp.tool(tags={"change"}, output_schema=None)
async def lend_book(id: int, ctx: Context) -> str:
    """Lend a book to somebody."""
    book = book_at(id, ctx)
    if book.lent_to is not None:
        raise ToolError(f"{book.title} is lent to {book.lent_to}.")
    answer = await ctx.elicit(f"Who borrows {book.title}?", Loan)
    if answer.action != "accept":
        return f"{book.title} stays."
    book.lent_to = answer.data.reader
    return f"{book.title} is lent to {answer.data.reader} for {answer.data.weeks} weeks."


@mcp.tool(tags={"change"}, output_schema=None)
async def move_book(id: int, ctx: Context) -> str:
    """Move a book to another shelf."""
    answer = await ctx.elicit(f"Where does {book_at(id, ctx).title} go?", ["cellar", "attic"])
    return f"It goes to the {answer.data}." if answer.action == "accept" else "It stays."


@mcp.tool(annotations={"destructiveHint": True}, tags={"change"}, output_schema=None)
async def delete_book(id: int, ctx: Context) -> str:
    """Delete a book, if the user agrees."""
    answer = await ctx.elicit(f"Delete {book_at(id, ctx).title}?", bool)
    if answer.action != "accept" or not answer.data:
        raise ToolError("The user did not agree.")
    return f"{shelf(ctx).pop(id).title} is deleted."


# Errors and tags


@mcp.tool(tags={"change"})
def set_year(id: int, year: int, ctx: Context) -> Book:
    """Correct the year of a book."""
    if year > 2026:
        raise ToolError(f"{year} is in the future.")
    book_at(id, ctx).year = year
    return shelf(ctx)[id]


@mcp.tool(tags={"staff"}, output_schema=None)
def burn_library(ctx: Context) -> str:
    """Delete every book."""
    shelf(ctx).clear()
    return "Nothing is left."


mcp.disable(tags={"staff"})


# Resources and prompts


@mcp.resource("library://summary", mime_type="text/plain", tags={"look"})
def summary() -> str:
    """What the library is."""
    return "A library of three shelves."


@mcp.resource("library://pixel", mime_type="image/png")
def pixel() -> bytes:
    """A pixel."""
    return PIXEL


@mcp.resource("library://authors/{name}", mime_type="text/plain")
def author(name: str) -> str:
    """What is known of an author."""
    return f"{name} wrote books."


@mcp.prompt
def review(title: str) -> str:
    """Ask for a review of a book."""
    return f"Review {title} in three sentences."


@mcp.prompt
def discuss(title: str, tone: str = "kind") -> list[Message]:
    """Discuss a book."""
    return [Message(f"Let us discuss {title}."), Message(f"Gladly, and {tone}.", role="assistant")]


@mcp.completion
def complete(ref: Any, argument: Any, context: Any) -> list[str] | None:
    if getattr(ref, "name", None) == "review" and argument.name == "title":
        return [book.title for book in first_books().values() if book.title.startswith(argument.value)]
    return None


if __name__ == "__main__":
    mcp.run(show_banner=False)
