"""The functions behind `operations.json`: a lending library in memory."""

import itertools
from typing import Any

from deltamcp import ToolError

_numbers = itertools.count(4)
_books: dict[int, dict[str, Any]] = {
    1: {"id": 1, "title": "The Left Hand of Darkness", "author": {"name": "Ursula K. Le Guin"}, "lent_to": None},
    2: {"id": 2, "title": "Invisible Cities", "author": {"name": "Italo Calvino"}, "lent_to": None},
    3: {"id": 3, "title": "The Summer Book", "author": {"name": "Tove Jansson"}, "lent_to": "Ada"},
}


async def list_books(available: bool = False) -> list[dict[str, Any]]:
    return [book for book in _books.values() if not available or book["lent_to"] is None]


async def add_book(title: str, author: str) -> dict[str, Any]:
    number = next(_numbers)
    _books[number] = {"id": number, "title": title, "author": {"name": author}, "lent_to": None}
    return _books[number]


async def lend_book(book: int, member: str) -> str:
    found = _book(book)
    if found["lent_to"] is not None:
        raise ToolError(f"{found['title']} is lent to {found['lent_to']}.")
    found["lent_to"] = member
    return f"{found['title']} is lent to {member}."


async def remove_book(book: int) -> str:
    return f"{_books.pop(_book(book)['id'])['title']} is gone."


def _book(number: int) -> dict[str, Any]:
    if number not in _books:
        raise ToolError(f"There is no book {number}; list_books shows all.")
    return _books[number]
