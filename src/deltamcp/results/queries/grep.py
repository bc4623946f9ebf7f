"""Finds the lines of a text, the rows of a list or the members of an object that match a pattern."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from deltamcp.results import document
from deltamcp.results.document import RawJSON, Units
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

if TYPE_CHECKING:
    from deltamcp.results.queries.pattern import Pattern


MAX_LINES = 10_000
"""Matching lines beyond this number are counted and left out; a caller that got so many needs another pattern."""
_MAX_LINE_BYTES = 300
"""Longer lines that match are cut around the match; a line may be megabytes long."""
_SEPARATOR = "--"
"""Between groups of lines that do not follow each other, where lines around matches are shown."""


class MatchingLines(NamedTuple):
    """The lines of a text that match, each after its number and a colon; those around them after a hyphen."""

    text: str
    matches: int
    """How many lines match."""
    total: int
    """How many lines the text has."""


class MatchingRows(NamedTuple):
    """The rows or members that match, by their index or name."""

    members: dict[str, RawJSON]
    total: int


def count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def matching_lines(text: str, pattern: "Pattern", work: Work) -> MatchingLines:
    """Returns the lines of a text that match a pattern."""
    work.scan(2 * len(text))
    data = text.encode()
    lines: list[str] = []
    count, number, counted_to, shown_to = 0, 1, 0, 0
    for start, end, place in pattern.matching_lines(data, work):
        count += 1
        if count > MAX_LINES:
            continue
        work.scan(start - counted_to)
        number += data.count(b"\n", counted_to, start)
        counted_to = start
        if not pattern.context:
            lines.append(f"{number}:{_excerpt(data, start, end, place)}")
            continue
        before = list(_lines_before(data, start, pattern.context, shown_to))
        if lines and (before[-1][0] if before else start) > shown_to:
            lines.append(_SEPARATOR)
        lines += (f"{number - back}-{_excerpt(data, *span)}" for back, span in _with_numbers(before))
        lines.append(f"{number}:{_excerpt(data, start, end, place)}")
        shown_to = end + 1
        following = _next_match(pattern, data, end + 1, work)
        for ahead, span in enumerate(_lines_after(data, end + 1, pattern.context, following), 1):
            lines.append(f"{number + ahead}-{_excerpt(data, *span)}")
            shown_to = span[1] + 1
    return MatchingLines("\n".join(lines), count, count_lines(text))


def _with_numbers(before: list[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields lines before a match in their order, each with how far it is before."""
    return reversed(list(enumerate(before, 1)))


def _next_match(pattern: "Pattern", data: bytes, begin: int, work: Work) -> int:
    """Returns where the next line that matches begins, which is not one of the lines around this match."""
    end = begin
    for _ in range(pattern.context):
        end = data.find(b"\n", end) + 1 or len(data)
    place = pattern.find(data, begin, end, work) if begin < end else -1
    return len(data) if place < 0 else (data.rfind(b"\n", begin, place) + 1 or begin)


def _lines_before(data: bytes, start: int, count: int, least: int) -> Iterator[tuple[int, int]]:
    """Yields the beginning and end of up to `count` lines before a place, the nearest first."""
    for _ in range(count):
        if start <= least:
            return
        end = start - 1
        start = max(least, data.rfind(b"\n", least, end) + 1)
        yield start, end


def _lines_after(data: bytes, start: int, count: int, least: int) -> Iterator[tuple[int, int]]:
    """Yields the beginning and end of up to `count` lines from a place on, before `least`."""
    for _ in range(count):
        if start >= min(least, len(data)):
            return
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield start, end
        start = end + 1


def _excerpt(data: bytes, start: int, end: int, place: int | None = None) -> str:
    """Returns a line; of a long line, the part around a place."""
    if end - start <= _MAX_LINE_BYTES:
        return data[start:end].decode(errors="ignore").rstrip()
    begin = start if place is None else max(start, min(place - _MAX_LINE_BYTES // 3, end - _MAX_LINE_BYTES))
    shown = data[begin : begin + _MAX_LINE_BYTES].decode(errors="ignore")
    return f"{'…' * (begin > start)}{shown}{'…' * (begin + _MAX_LINE_BYTES < end)}"


def matching_rows(units: Units, pattern: "Pattern", work: Work) -> MatchingRows:
    """Returns the items of a list, or the members of an object, that match: in their JSON, or in a text inside.

    A member matches by its name, too.
    """
    assert not isinstance(units, str), "texts have lines"
    if isinstance(units, bytes):
        return MatchingRows({"": units} if _matches(units, "", pattern, work) else {}, 1)
    named = units.items() if isinstance(units, Mapping) else ((str(at), units[at]) for at in range(len(units)))
    own_names = isinstance(units, Mapping)
    found = {name: unit for name, unit in named if _matches(unit, name if own_names else "", pattern, work)}
    return MatchingRows(found, len(units))


def _matches(unit: RawJSON, name: str, pattern: "Pattern", work: Work) -> bool:
    work.spend()
    value = document.decode_counted(unit, work)
    texts = chain((name, jsonrpc.encode(value).decode()), _texts(value, work))
    return pattern.matches("\n".join(text for text in texts if text), work)


def _texts(value: JSON, work: Work) -> Iterator[str]:
    """Yields the texts in a value, as they are without JSON's escapes."""
    stack = [value]
    while stack:
        work.spend()
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            stack += node.values()
