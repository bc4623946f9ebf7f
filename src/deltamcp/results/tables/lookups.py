"""Finds columns that a key column determines; a lookup has their cells once per key instead of once per row."""

from collections.abc import Sequence
from typing import NamedTuple

from deltamcp.results.tables.syntax import looks_like_json
from deltamcp.work import Work

_MIN_ROWS = 4
_MAX_LOOKUPS = 6
_CELLS_PER_STEP = 8
"""Cells of two columns that are compared in the time of a step."""
_SAMPLE_ROWS = 100
_CHARS_PER_TOKEN = 3.2
"""Average characters of a token in a cell."""
_MIN_LOOKUP_SAVING = 16
_MIN_MEMBER_SAVING = 10
_MIN_NUMBERED_SAVING = 40
"""Tokens that a lookup, a member of it and a numbered lookup must save, to be worth the model's effort."""
_MIN_NUMBERED_CHARS = 12
"""Cells that are shorter on average are not replaced by numbers, so that a line stays readable."""
_NAME_BONUS_TOKENS = 1.5
"""Tokens per line that a key may cost more if it is a name rather than a number."""


class Lookup(NamedTuple):
    """Columns whose cells move from the rows into the head."""

    key: int | None
    """The number of the key column; None where the rows have the number of the lookup's line instead."""
    members: list[int]
    cells: Sequence[str]
    """The cells that stay in the rows: those of the key column, or numbers."""
    lines: dict[str, tuple[str, ...]]
    """The cells of the members, by the cell that stays in the rows."""


def find_lookups(columns: list[list[str]], work: Work) -> list[Lookup]:
    """Return the lookups that save tokens, given the cells of all columns."""
    size = len(columns[0])
    if size < _MIN_ROWS:
        return []
    distinct = [len(set(cells)) for cells in columns]
    keys = {
        key: _determined_columns(columns, distinct, key, work)
        for key, values in enumerate(distinct)
        if values * 2 <= size
    }
    lookups: list[Lookup] = []
    while keys and len(lookups) < _MAX_LOOKUPS:
        gain, numbered, key = max(_gain(columns[key], key, determined) for key, determined in keys.items())
        if gain <= 0:
            break
        members = [number for number in keys[key] if number != key or numbered]
        lookups.append(_make_lookup(columns, key, members, numbered))
        used = {key, *members}
        keys = {
            other: {number: saved for number, saved in determined.items() if number not in used}
            for other, determined in keys.items()
            if other not in used
        }
    return lookups


def _determined_columns(columns: list[list[str]], distinct: list[int], key: int, work: Work) -> dict[int, float]:
    """Return the columns that have one cell per cell of the key, the key included, with the tokens a lookup saves."""
    savings: dict[int, float] = {}
    cells = columns[key]
    row_by_cell = {cell: row for row, cell in enumerate(cells)}
    sample = cells[:_SAMPLE_ROWS]
    sample_distinct = len(set(sample))
    for number, others in enumerate(columns):
        if distinct[number] > distinct[key]:
            continue
        work.spend(1 + len(sample) // _CELLS_PER_STEP)
        if len(set(zip(sample, others, strict=False))) > sample_distinct:
            continue
        work.spend(len(cells) // _CELLS_PER_STEP)
        if len(cells) > _SAMPLE_ROWS and len(set(zip(cells, others, strict=True))) > distinct[key]:
            continue
        saved_chars = sum(map(len, others)) - sum(len(others[row]) for row in row_by_cell.values())
        saved = saved_chars / _CHARS_PER_TOKEN + len(cells) - len(row_by_cell)
        if number == key or saved >= _MIN_MEMBER_SAVING:
            savings[number] = saved
    return savings


def _gain(cells: list[str], key: int, savings: dict[int, float]) -> tuple[float, bool, int]:
    """Return the tokens saved beyond the minimum, whether the lookup's lines are numbered, and the key."""
    size, lines = len(cells), set(cells)
    members = sum(savings.values()) - savings[key]
    named = members - sum(map(len, lines)) / _CHARS_PER_TOKEN - len(lines) - _MIN_LOOKUP_SAVING
    numbered = members + savings[key] - 2 * size - 2 * len(lines) - _MIN_NUMBERED_SAVING
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
