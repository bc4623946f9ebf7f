"""What differs between two definitions, in lines for a person. Pure: does no I/O."""

import difflib
import re
import unicodedata
from collections.abc import Iterator

from deltamcp.catalog.text.clean_text import json_text, visible, visible_line
from deltamcp.errors import UsageError
from deltamcp.values import JSON

_WIDTH = 70
"""The columns of a part of a text: with what precedes it, a line is on one row of a terminal."""
_MAX_LINES = 10_000
"""The lines that a person may be expected to read."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]+")
"""A key that needs no quotes: no two paths are written alike."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./-]+")


class UnreadableDiffError(UsageError):
    """A difference is too long to be read, and so to be approved."""


def diff_lines(old: JSON, new: JSON) -> list[str]:
    """Returns lines that begin with `-` for what was, and with `+` for what is; others are the same in both.

    Each has `path: value`, or, of a long text, `| ` and a part of it. A definition cannot imitate a line: what could
    end one is escaped, keys that are no plain words are quoted, and no line is longer than a row of a terminal.

    Raises:
        UnreadableDiffError: there are too many lines.
    """
    before, after = ({} if value is None else dict(_values(value)) for value in (old, new))
    lines: list[str] = []
    for path in sorted({*before, *after}):
        lines += _changed_rows(before.get(path, []), after.get(path, []))
        if len(lines) > _MAX_LINES:
            raise UnreadableDiffError(
                f"What changed has more than {_MAX_LINES:,} lines, which nobody reads, so that it cannot be approved; "
                'on_changed = "accept" of its server takes it as it is.'
            )
    return lines


def _changed_rows(before: list[str], after: list[str]) -> Iterator[str]:
    if before == after:
        return
    if before[:1] == after[:1]:  # the path of a text of several lines
        yield f" {before[0]}"
        before, after = before[1:], after[1:]
    if len(before) + len(after) > _MAX_LINES:  # to compare them takes too long
        yield from (f"-{row}" for row in before)
        yield from (f"+{row}" for row in after)
        return
    compared = difflib.unified_diff(before, after, n=1, lineterm="")
    yield from (row for row in compared if not row.startswith(("---", "+++", "@@")))


def name_text(name: str) -> str:
    """Writes a name on one line, so that it looks like nothing else: quoted unless it is a plain word."""
    return name if _PLAIN_NAME.fullmatch(name) else json_text(name)


def _key_text(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json_text(key)


def _values(value: JSON, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yields each value by its path, in rows that begin with a space: one, or the path and the parts of a text."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _values(child, f"{path}.{_key_text(key)}" if path else _key_text(key))
        return
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _values(item, f"{path}[{index}]")
        return
    is_text = isinstance(value, str) and "\n" in value
    row = f" {path}: {json_text(value)}"
    if not is_text and _end_of_part(row, 0) == len(row):
        yield path, [row]
        return
    first, *others = _parts(f"{path}:")
    rows = [f" {first}", *(f"   > {part}" for part in others)]
    for line in visible(value).split("\n") if isinstance(value, str) else [json_text(value)]:
        rows += (f"   | {part}" for part in _parts(visible_line(line)))
    yield path, rows


def _parts(line: str) -> list[str]:
    """Divides a line into parts that fit a row of a terminal, at a space where there is one."""
    parts: list[str] = []
    start = 0
    while (end := _end_of_part(line, start)) < len(line):
        space = line.rfind(" ", start + 1, end)
        end = end if space < 0 else space + 1
        parts.append(line[start:end])
        start = end
    return [*parts, line[start:]]


def _end_of_part(line: str, start: int) -> int:
    """Returns where a part that begins at `start` ends because it would be wider than a row."""
    columns = 0
    for place in range(start, len(line)):
        columns += 2 if unicodedata.east_asian_width(line[place]) in "WF" else 1
        if columns > _WIDTH:
            return place
    return len(line)
