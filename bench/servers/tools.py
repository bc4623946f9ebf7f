"""The tools every server registers: the same functions in each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

Function = Callable[..., Any]


async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def functions(tools: str) -> list[Function]:
    """`add`, or a number of functions with typed parameters."""
    kind, _, number = tools.partition(":")
    if kind == "add":
        return [add]
    make = {"many": _make_plain, "described": _make_described}[kind]
    return [_set_name(make(place), place) for place in range(int(number))]


def read_listed(tools: str) -> list[dict[str, Any]]:
    """Reads tools from a file, as a `tools/list` gave them."""
    found: list[dict[str, Any]] = json.loads(Path(tools).read_text())
    return found


def _make_plain(place: int) -> Function:
    async def tool(query: str, limit: int = 10, tags: list[str] | None = None, exact: bool = False) -> str:
        return f"{place}: {query}"

    return tool


def _make_described(place: int) -> Function:
    """No two tools share an annotation, so whoever keeps schemas by annotation gains nothing."""

    async def tool(
        query: Annotated[str, Field(description=f"What to look for in place {place}")],
        limit: Annotated[int, Field(description=f"How many of place {place}", ge=1)] = 10,
        tags: Annotated[list[str] | None, Field(description=f"Only with these tags of place {place}")] = None,
        exact: Annotated[bool, Field(description=f"No near matches in place {place}")] = False,
    ) -> str:
        return f"{place}: {query}"

    return tool


def _set_name(function: Function, place: int) -> Function:
    function.__name__ = function.__qualname__ = f"search_{place}"
    function.__doc__ = f"Searches place {place} and gives what it finds as text."
    return function
