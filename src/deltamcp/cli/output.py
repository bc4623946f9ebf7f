"""What is printed: JSON for programs, text and tables for people, colour only on a terminal."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL_CHARACTERS = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON lets stand and a terminal may act on, or cannot write; inside a JSON text it only stands in strings."""
_DEFAULT_WIDTH = 200
"""Columns where no terminal says how many it has: nothing is cut for a file."""


def print_json(value: JSON) -> None:
    """
    Raises:
        ValueError: it is nested too deeply.
    """
    print(
        _CONTROL_CHARACTERS.sub(
            lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, indent=2, ensure_ascii=False)
        )
    )


def make_console() -> "Console":
    from rich.console import Console

    wide = None if sys.stdout.isatty() else _DEFAULT_WIDTH
    return Console(width=wide, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_table(
    title: str, texts: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]], to: "Console"
) -> None:
    """Columns of text, then columns of figures."""
    from rich import box
    from rich.table import Table

    made = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if to.is_terminal else None,
        show_header=bool(any(texts) or any(figures)),
    )
    for name in texts:
        made.add_column(name, overflow="fold")
    for name in figures:
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*map(printable_text, row))
    to.print(made)


def printable_text(text: str) -> str:
    """Names and texts are other people's: nothing in them steers a terminal or turns the writing around."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
