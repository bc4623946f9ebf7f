"""Columns that another column decides: their cells stand once for each of its values, not once for each row."""

from collections.abc import Sequence
from typing import NamedTuple

from deltamcp.results.tables.syntax import looks_like_json

_MIN_ROWS = 4
_MAX_LOOKUPS = 6
_SAMPLE_ROWS = 100
_CHARS_PER_TOKEN = 3.2
"""Characters a token of a cell holds, about."""
_MIN_LOOKUP_SAVING = 16
_MIN_MEMBER_SAVING = 10
_MIN_NUMBERED_SAVING = 40
"""Tokens saved from which the reader's trouble of looking up is paid for."""
_MIN_NUMBERED_CHARS = 12
"""Characters on average. What is shorter is not replaced by a number: a line should say what it is about."""
_NAME_BONUS_TOKENS = 1.5
"""Tokens per line a key may cost more if it is a name."""


class Lookup(NamedTuple):
    key: int | None
    """The number of the column that decides; None where the lines are numbered for it."""
    members: list[int]
    cells: Sequence[str]
    """What stands in the rows: the key column's cells, or numbers."""
    lines: dict[str, tuple[str, ...]]
    """The members' cells for each of them."""


def find_lookups(columns: list[list[str]]) -> list[Lookup]:
    """What to move out of rows, given the cells of their columns."""
    size = len(columns[0])
    if size < _MIN_ROWS:
        return []
    distinct = [len(set(cells)) for cells in columns]
    keys = {key: _decided_columns(columns, distinct, key) for key, values in enumerate(distinct) if values * 2 <= size}
    made: list[Lookup] = []
    while keys and len(made) < _MAX_LOOKUPS:
        gain, numbered, key = max(_gain(columns[key], key, decided) for key, decided in keys.items())
        if gain <= 0:
            break
        members = [number for number in keys[key] if number != key or numbered]
        made.append(_make_lookup(columns, key, members, numbered))
        gone = {key, *members}
        keys = {
            other: {number: saved for number, saved in decided.items() if number not in gone}
            for other, decided in keys.items()
            if other not in gone
        }
    return made


def _decided_columns(columns: list[list[str]], distinct: list[int], key: int) -> dict[int, float]:
    """The columns that have one cell for each of the key's, itself among them, with the tokens a lookup saves."""
    found: dict[int, float] = {}
    cells = columns[key]
    at = {cell: row for row, cell in enumerate(cells)}
    first = cells[:_SAMPLE_ROWS]
    few = len(set(first))
    for number, others in enumerate(columns):
        if distinct[number] > distinct[key] or len(set(zip(first, others, strict=False))) > few:
            continue
        if len(cells) > _SAMPLE_ROWS and len(set(zip(cells, others, strict=True))) > distinct[key]:
            continue
        spared = sum(map(len, others)) - sum(len(others[row]) for row in at.values())
        saved = spared / _CHARS_PER_TOKEN + len(cells) - len(at)
        if number == key or saved >= _MIN_MEMBER_SAVING:
            found[number] = saved
    return found


def _gain(cells: list[str], key: int, decided: dict[int, float]) -> tuple[float, bool, int]:
    """Tokens saved beyond what must be saved, whether with numbered lines, and the key again."""
    size, lines = len(cells), set(cells)
    members = sum(decided.values()) - decided[key]
    named = members - sum(map(len, lines)) / _CHARS_PER_TOKEN - len(lines) - _MIN_LOOKUP_SAVING
    numbered = members + decided[key] - 2 * size - 2 * len(lines) - _MIN_NUMBERED_SAVING
    if sum(map(len, cells)) >= _MIN_NUMBERED_CHARS * size and numbered > 1.3 * named:
        return numbered, True, key
    if named > 0 and not any(map(looks_like_json, lines)):
        named += _NAME_BONUS_TOKENS * size
    return (named if members else 0.0), False, key


def _make_lookup(columns: list[list[str]], key: int, members: list[int], numbered: bool) -> Lookup:
    cells: Sequence[str] = columns[key]
    if numbered:
        number = {cell: str(place) for place, cell in enumerate(dict.fromkeys(cells))}
        cells = [number[cell] for cell in cells]
    lines: dict[str, tuple[str, ...]] = {}
    for row, cell in enumerate(cells):
        if cell not in lines:
            lines[cell] = tuple(columns[member][row] for member in members)
    return Lookup(None if numbered else key, members, cells, lines)
