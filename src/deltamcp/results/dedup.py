"""Rows that a caller was sent before, by whatever call, as references to where they were."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltamcp.deltas.keys import key_rank, unique_values
from deltamcp.deltas.root import canonical_bytes
from deltamcp.results.pointer import pointer
from deltamcp.values import JSON

SEEN_KEY = "$seen"
"""The member of a reference that says which result has the row, and where: `handle/path`."""
SEEN_NOTE = f"[{SEEN_KEY}: sent before, as handle/path]"
MAX_REMEMBERED_ROWS = 5_000
"""That are remembered of a caller; those sent longest ago go first."""

_MIN_ROW_BYTES = 60
"""Bytes of a row that is worth a reference."""


def replace_seen_rows(value: JSON, path: Sequence[str], seen: Mapping[str, str]) -> JSON | None:
    """A value with the rows at `path` that were seen as references; None where none was, or one cannot be told apart.

    `seen` gives the place of each row by its digest.
    """
    rows = _rows_at(value, path)
    if not seen or any(type(row) is dict and SEEN_KEY in row for row in rows):
        return None
    names = (
        [name for name in rows[0] if unique_values(rows, name) is not None] if rows and type(rows[0]) is dict else []
    )
    key = min(names, key=key_rank, default=None)
    made = [_row_reference(row, key, seen) for row in rows]
    return None if all(one is row for one, row in zip(made, rows, strict=True)) else _replace_rows(value, path, made)


def _row_reference(row: Any, key: str | None, seen: Mapping[str, str]) -> JSON:
    place = seen.get(row_digest(row)) if type(row) is dict else None
    if place is None:
        return row
    return {SEEN_KEY: place} if key is None else {key: row[key], SEEN_KEY: place}


def restore_rows(value: JSON, path: Sequence[str], part: Callable[[str, str], JSON]) -> JSON:
    """The value again, of whose rows at `path` some are references; `part` is what a handle's result has at a path."""

    def restore_row(found: Any) -> JSON:
        if type(found) is not dict or SEEN_KEY not in found:
            return found
        name, _, inside = str(found[SEEN_KEY]).partition("/")
        return part(name, f"/{inside}")

    return _replace_rows(value, path, [restore_row(found) for found in _rows_at(value, path)])


def row_pointers(value: JSON, path: Sequence[str]) -> dict[str, str]:
    """Pointers to the rows of a result, by their digests."""
    found = {}
    for at, row in enumerate(_rows_at(value, path)):
        if type(row) is dict and (sign := row_digest(row)):
            found[sign] = pointer(*path, str(at))
    return found


def row_digest(row: JSON) -> str:
    """Empty where a row is too small to be worth it."""
    made = canonical_bytes(row)
    return hashlib.sha256(made).hexdigest()[:32] if len(made) >= _MIN_ROW_BYTES else ""


def _rows_at(value: Any, path: Sequence[str]) -> list[Any]:
    """Nothing where the path leads nowhere: a base may be of another shape."""
    for step in path:
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return []
    return value if isinstance(value, list) else []


def _replace_rows(value: Any, path: Sequence[str], rows: list[JSON]) -> JSON:
    if not path:
        return rows
    if isinstance(value, list):
        at = int(path[0])
        return [*value[:at], _replace_rows(value[at], path[1:], rows), *value[at + 1 :]]
    return {**value, path[0]: _replace_rows(value[path[0]], path[1:], rows)}
