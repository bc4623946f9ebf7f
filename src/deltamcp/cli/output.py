"""Prints servers' bytes and JSON for programs, and text and tables for people; with colour only on a terminal."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = "\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL, C1 and bidirectional controls (UAX #9), and lone surrogates: a terminal acts on them, or cannot write them."""
_UNESCAPED_CONTROL = re.compile(f"[{_CONTROLS}]")
"""A control character that JSON need not escape."""
_TERMINAL_CONTROL = re.compile(f"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f{_CONTROLS}]")
"""A character of a text that a terminal would act on; a tab and an end of line are harmless."""
_DEFAULT_WIDTH = 200
"""Columns of output that does not go to a terminal."""


def print_json(value: JSON) -> None:
    """
    Raises:
        ValueError: the value is nested too deeply.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_lines(_UNESCAPED_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def write_lines(text: str) -> None:
    """Writes a text to stdout and ends its last line; on a terminal without control characters, else in UTF-8."""
    if text and not text.endswith("\n"):
        text += "\n"
    if sys.stdout.isatty():
        sys.stdout.write(printable_text(text))
    else:
        write_bytes(text.encode(errors="replace"))


def write_bytes(data: bytes) -> None:
    """Writes bytes to stdout and adds nothing."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


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
    """Replaces the characters with which a server's text could control the terminal or reverse the writing."""
    return _TERMINAL_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
