"""A server whose tools return books: rows that have little in common."""

import copy
from typing import Any

from deltamcp import DeltaServer, ResultPolicy

DEDUP_AND_DELTAS = ResultPolicy(dedup=True, deltas=True)


# Rows


def book(number: int, **changes: Any) -> dict[str, Any]:
    """A row whose cells have little in common with those of others."""
    words = f"{number * 7919 % 104729} {number * 104651 % 1299709}"
    return {
        "id": number,
        "title": f"The {words} of them, told anew",
        "by": {"name": f"Author {number * 31 % 997}", "born": 1900 + number % 80},
        "about": f"In which {words} is found, lost, and found once more, and what {number * 97 % 1009} said of it.",
    } | changes


def books(*numbers: int) -> list[dict[str, Any]]:
    return [book(number) for number in numbers]


def book_server(values: dict[str, Any], policy: ResultPolicy | None = DEDUP_AND_DELTAS, **options: Any) -> DeltaServer:
    """A server with a tool for every value; what is in `values` when it is called is what it gives."""
    server = DeltaServer("library", results=policy, **{"conversation": "process", **options})
    for name in values:
        add_book_tool(server, name, values)
    return server


def add_book_tool(server: DeltaServer, name: str, values: dict[str, Any], policy: ResultPolicy | None = None) -> None:
    async def give(query: str = "") -> Any:
        return copy.deepcopy(values[name])

    server.tool(name=name, results=policy or ResultPolicy())(give)
