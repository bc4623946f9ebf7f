"""Replaces rows that a caller was sent before, by any call, with references to the earlier result."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltamcp.deltas.keys import key_rank, unique_values
from deltamcp.deltas.root import canonical_bytes
from deltamcp.results.pointer import pointer
from deltamcp.values import JSON

SEEN_KEY = "$seen"
"""The member of a reference that names the result with the row, and the path to it: `handle/path`."""
SEEN_NOTE = f"[{SEEN_KEY}: sent before, as handle/path]"
MAX_REMEMBERED_ROWS = 5_000
"""Rows that the server remembers per caller; it forgets the oldest first."""

_MIN_ROW_BYTES = 60
"""Shorter rows are sent again, as a reference would hardly be shorter."""


def replace_seen_rows(value: JSON, path: Sequence[str], seen: Mapping[str, str]) -> JSON | None:
    """Return the value with references in place of the rows at `path` that the caller has.

    `seen` has the `handle/path` of each row by its digest. The result is None where the caller has none of the rows,
    or where a row looks like a reference itself.
    """
    rows = _rows_at(value, path)
    if not seen or any(type(row) is dict and SEEN_KEY in row for row in rows):
        return None
    names = (
        [name for name in rows[0] if unique_values(rows, name) is not None] if rows and type(rows[0]) is dict else []
    )
    key = min(names, key=key_rank, default=None)
    new_rows = [_row_reference(row, key, seen) for row in rows]
    if all(new is row for new, row in zip(new_rows, rows, strict=True)):
        return None
    return _replace_rows(value, path, new_rows)


def _row_reference(row: Any, key: str | None, seen: Mapping[str, str]) -> JSON:
    place = seen.get(row_digest(row)) if type(row) is dict else None
    if place is None:
        return row
    return {SEEN_KEY: place} if key is None else {key: row[key], SEEN_KEY: place}


def restore_rows(value: JSON, path: Sequence[str], part: Callable[[str, str], JSON]) -> JSON:
    """Return the value with the original rows in place of the references among the rows at `path`.

    `part` returns the value at a path of the result with a handle.
    """

    def restore_row(row: Any) -> JSON:
        if type(row) is not dict or SEEN_KEY not in row:
            return row
        handle, _, inside = str(row[SEEN_KEY]).partition("/")
        return part(handle, f"/{inside}")

    return _replace_rows(value, path, [restore_row(row) for row in _rows_at(value, path)])


def row_pointers(value: JSON, path: Sequence[str]) -> dict[str, str]:
    """Return pointers to the rows of a result, by their digests."""
    pointers = {}
    for at, row in enumerate(_rows_at(value, path)):
        if type(row) is dict and (digest := row_digest(row)):
            pointers[digest] = pointer(*path, str(at))
    return pointers


def row_digest(row: JSON) -> str:
    """Return the digest of a row; empty where the row is too small for a reference."""
    data = canonical_bytes(row)
    return hashlib.sha256(data).hexdigest()[:32] if len(data) >= _MIN_ROW_BYTES else ""


def _rows_at(value: Any, path: Sequence[str]) -> list[Any]:
    """Return the rows at a path; an empty list where a base has no list there."""
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
