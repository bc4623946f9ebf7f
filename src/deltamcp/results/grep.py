"""What of a view holds one of some words: lines of a text, items of a list, members of an object.

Words are plain, letter case aside, and `|` stands between alternatives. Regular expressions could run for ever.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from deltamcp.results import document
from deltamcp.results.document import RawJSON
from deltamcp.wire import jsonrpc

_MAX_LINE_CHARS = 300
"""Of a line that matches; one may be megabytes long."""


def matching_lines(text: str, words: str) -> str:
    """The lines that match, each after the offset at which it begins, to read on there."""
    wanted = _pattern(words)
    found: list[str] = []
    begin = 0
    for line in text.splitlines(keepends=True):
        match = wanted.search(line)
        if match is not None:
            found.append(f"{begin}: {_excerpt(line, match.start())}")
        begin += len(line)
    return "\n".join(found)


def _excerpt(line: str, place: int) -> str:
    """A line, or of a long one what stands around the match."""
    line = line.rstrip()
    if len(line) <= _MAX_LINE_CHARS:
        return line
    start = max(0, min(place - _MAX_LINE_CHARS // 3, len(line) - _MAX_LINE_CHARS))
    return f"{'…' * (start > 0)}{line[start : start + _MAX_LINE_CHARS]}{'…' * (start + _MAX_LINE_CHARS < len(line))}"


def matching_items(units: Sequence[RawJSON], words: str) -> dict[str, RawJSON]:
    """The items that match, by their place in the list."""
    return matching_members({str(place): unit for place, unit in enumerate(units)}, words, keys=False)


def matching_members(units: Mapping[str, RawJSON], words: str, keys: bool = True) -> dict[str, RawJSON]:
    """The members that match, in key or value."""
    wanted = _pattern(words)
    # As they stand in JSON, without the quotes around them.
    written = _pattern(words, lambda word: jsonrpc.encode(word).decode()[1:-1])
    return {
        key: unit
        for key, unit in units.items()
        if written.search(str(memoryview(unit), "utf-8")) or (keys and wanted.search(key))
    }


def matching_units(units: document.Units, words: str) -> document.Units:
    """A view of what matches in another."""
    if isinstance(units, str):
        return matching_lines(units, words)
    if isinstance(units, bytes):
        return units
    return matching_members(units, words) if isinstance(units, Mapping) else matching_items(units, words)


def _pattern(words: str, written: Callable[[str], str] = str) -> re.Pattern[str]:
    alternatives = [word for word in words.split("|") if word] or [words]
    return re.compile("|".join(re.escape(written(word)) for word in alternatives), re.IGNORECASE)
