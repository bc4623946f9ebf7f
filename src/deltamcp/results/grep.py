"""Finds the lines of a text, items of a list or members of an object that contain one of several words.

The search ignores case, and `|` separates alternatives. Words are plain text, because a regular expression could run
without end.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from deltamcp.results import document
from deltamcp.results.document import RawJSON
from deltamcp.wire import jsonrpc

_MAX_LINE_CHARS = 300
"""Longer lines that match are cut; a line may be megabytes long."""


def matching_lines(text: str, words: str) -> str:
    """Return the lines that match, each after its offset, from which the model can read on."""
    pattern = _pattern(words)
    lines: list[str] = []
    begin = 0
    for line in text.splitlines(keepends=True):
        match = pattern.search(line)
        if match is not None:
            lines.append(f"{begin}: {_excerpt(line, match.start())}")
        begin += len(line)
    return "\n".join(lines)


def _excerpt(line: str, place: int) -> str:
    """Return a line; of a long line, the part around the match."""
    line = line.rstrip()
    if len(line) <= _MAX_LINE_CHARS:
        return line
    start = max(0, min(place - _MAX_LINE_CHARS // 3, len(line) - _MAX_LINE_CHARS))
    return f"{'…' * (start > 0)}{line[start : start + _MAX_LINE_CHARS]}{'…' * (start + _MAX_LINE_CHARS < len(line))}"


def matching_items(units: Sequence[RawJSON], words: str) -> dict[str, RawJSON]:
    """Return the items that match, by their index in the list."""
    return matching_members({str(place): unit for place, unit in enumerate(units)}, words, keys=False)


def matching_members(units: Mapping[str, RawJSON], words: str, keys: bool = True) -> dict[str, RawJSON]:
    """Return the members whose value matches, or with `keys` whose key matches."""
    key_pattern = _pattern(words)
    # Values are still encoded, so the words are escaped as JSON escapes them.
    value_pattern = _pattern(words, lambda word: jsonrpc.encode(word).decode()[1:-1])
    return {
        key: unit
        for key, unit in units.items()
        if value_pattern.search(str(memoryview(unit), "utf-8")) or (keys and key_pattern.search(key))
    }


def matching_units(units: document.Units, words: str) -> document.Units:
    """Return the units that match."""
    if isinstance(units, str):
        return matching_lines(units, words)
    if isinstance(units, bytes):
        return units
    return matching_members(units, words) if isinstance(units, Mapping) else matching_items(units, words)


def _pattern(words: str, escape: Callable[[str], str] = str) -> re.Pattern[str]:
    alternatives = [word for word in words.split("|") if word] or [words]
    return re.compile("|".join(re.escape(escape(word)) for word in alternatives), re.IGNORECASE)
