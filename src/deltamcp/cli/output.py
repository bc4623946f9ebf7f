"""Prints JSON for programs, and text and tables for people; with colour only on a terminal."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL_CHARACTERS = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON need not escape, but that a terminal may act on or cannot write."""
_DEFAULT_WIDTH = 200
"""Columns of output that does not go to a terminal."""


def print_json(value: JSON) -> None:
    """
    Raises:
        ValueError: the value is nested too deeply.
    """
    print(
        _CONTROL_CHARACTERS.sub(
            lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, indent=2, ensure_ascii=False)
        )
    )


def make_console() -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else _DEFAULT_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_table(
    title: str, texts: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]], console: "Console"
) -> None:
    """Prints a table with text columns, then number columns; `texts` and `figures` are their headings."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        show_header=bool(any(texts) or any(figures)),
    )
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(printable_text, row))
    console.print(table)


def printable_text(text: str) -> str:
    """Replaces characters with which a server's text could control the terminal or reverse the writing."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
