"""Rows that a caller was sent before, by whatever call, as references to where they were."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltamcp.deltas.keys import rank, usable
from deltamcp.deltas.root import form
from deltamcp.results.pointer import pointer
from deltamcp.values import JSON

MARK = "$seen"
"""The member of a reference that says which result has the row, and where: `handle/path`."""
NOTE = f"[{MARK}: sent before, as handle/path]"
MOST_ROWS = 5_000
"""That are remembered of a caller; those sent longest ago go first."""

_LEAST = 60
"""Bytes of a row that is worth a reference."""


def referred(value: JSON, path: Sequence[str], seen: Mapping[str, str]) -> JSON | None:
    """A value with the rows at `path` that were seen as references; None where none was, or one cannot be told apart.

    `seen` gives the place of each row by its digest.
    """
    rows = _at(value, path)
    if not seen or any(type(row) is dict and MARK in row for row in rows):
        return None
    names = [name for name in rows[0] if usable(rows, name) is not None] if rows and type(rows[0]) is dict else []
    key = min(names, key=rank, default=None)
    made = [_reference(row, key, seen) for row in rows]
    return None if all(one is row for one, row in zip(made, rows, strict=True)) else _put(value, path, made)


def _reference(row: Any, key: str | None, seen: Mapping[str, str]) -> JSON:
    place = seen.get(digest(row)) if type(row) is dict else None
    if place is None:
        return row
    return {MARK: place} if key is None else {key: row[key], MARK: place}


def restored(value: JSON, path: Sequence[str], part: Callable[[str, str], JSON]) -> JSON:
    """The value again, of whose rows at `path` some are references; `part` is what a handle's result has at a path."""

    def row(found: Any) -> JSON:
        if type(found) is not dict or MARK not in found:
            return found
        name, _, inside = str(found[MARK]).partition("/")
        return part(name, f"/{inside}")

    return _put(value, path, [row(found) for found in _at(value, path)])


def places(value: JSON, path: Sequence[str]) -> dict[str, str]:
    """Pointers to the rows of a result, by their digests."""
    found = {}
    for at, row in enumerate(_at(value, path)):
        if type(row) is dict and (sign := digest(row)):
            found[sign] = pointer(*path, str(at))
    return found


def digest(row: JSON) -> str:
    """Empty where a row is too small to be worth it."""
    made = form(row)
    return hashlib.sha256(made).hexdigest()[:32] if len(made) >= _LEAST else ""


def _at(value: Any, path: Sequence[str]) -> list[Any]:
    """Nothing where the path leads nowhere: a base may be of another shape."""
    for step in path:
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return []
    return value if isinstance(value, list) else []


def _put(value: Any, path: Sequence[str], rows: list[JSON]) -> JSON:
    if not path:
        return rows
    if isinstance(value, list):
        at = int(path[0])
        return [*value[:at], _put(value[at], path[1:], rows), *value[at + 1 :]]
    return {**value, path[0]: _put(value[path[0]], path[1:], rows)}
