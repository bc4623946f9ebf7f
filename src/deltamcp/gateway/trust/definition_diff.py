"""What differs between two definitions, in lines for a person. Pure: does no I/O."""

import difflib
import textwrap
from collections.abc import Iterator

from deltamcp.catalog.clean_text import json_text, visible
from deltamcp.values import JSON

_WIDTH = 100
_MAX_LINES = 400


def diff_lines(old: JSON, new: JSON) -> list[str]:
    """Returns lines that begin with `-` for what was, and with `+` for what is; others are the same in both.

    Hidden characters are written as escapes. A definition cannot imitate a line of another kind, because its own begin
    with `-`, `+` or a space.
    """
    lines = list(
        difflib.unified_diff(list(_lines(old)), list(_lines(new)), n=1, lineterm="")
        if old is not None
        else (f"+{line}" for line in _lines(new))
    )
    shown = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    left_out = len(shown) - _MAX_LINES
    return shown if left_out <= 0 else [*shown[:_MAX_LINES], f" … {left_out} more lines"]


def _lines(value: JSON, path: str = "") -> Iterator[str]:
    """Yields a line for each value, by its path; a long text has several lines."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _lines(value[key], f"{path}.{visible(key)}" if path else visible(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _lines(item, f"{path}[{index}]")
    elif isinstance(value, str) and (len(value) > _WIDTH or "\n" in value):
        yield f" {path}:"
        for line in visible(value.replace("\t", "    ")).splitlines():
            yield from (f"   {part}" for part in textwrap.wrap(line, _WIDTH) or [""])
    else:
        yield f" {path}: {json_text(value)}"
