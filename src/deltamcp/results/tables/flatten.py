"""Rows as columns: objects inside them become groups of columns, by path."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deltamcp.results.tables.cells import Path, position, text_of
from deltamcp.values import JSON

MOST_COLUMNS = 400
MOST_MEMBERS = 2000
"""Of one object, whose columns need not be compared with each other."""
DEEPEST = 8
FEW_ITEMS = 3


class Absent:
    """In place of a value: the row has no such key."""


class Outside:
    """In place of a value: the row does not even have the object the key would be in."""


ABSENT, OUTSIDE = Absent(), Outside()


class Flat(NamedTuple):
    size: int
    columns: dict[Path, list[Any]]
    optional: dict[Path, list[Any]]
    """Groups that not every row has: null, or no such key."""
    copies: dict[Path, Path]
    """Groups that are the same as another in every row."""
    order: list[Path]
    """Columns, groups and copies, as the keys stood in the rows."""


def flatten(rows: Sequence[dict[str, JSON]]) -> Flat | None:
    """None where the rows have too little in common, or nothing in them."""
    flat = Flat(len(rows), {}, {}, {}, [])
    groups: list[tuple[Path, list[Any]]] = []
    if not _spread(flat, groups, (), list(rows)) or not flat.columns:
        return None
    return flat


def _spread(flat: Flat, groups: list[tuple[Path, list[Any]]], above: Path, values: list[Any]) -> bool:
    keys = _keys(values)
    if keys is None:
        return False
    for key in keys:
        below = [value.get(key, ABSENT) if type(value) is dict else OUTSIDE for value in values]
        path = (*above, key)
        flat.order.append(path)
        if not _group(flat, groups, path, below):
            flat.columns[path] = below
            if len(flat.columns) > (MOST_COLUMNS if flat.size > 1 else MOST_MEMBERS):
                return False
    return True


def _keys(values: list[Any]) -> list[str] | None:
    """The keys of all, None where most of them are missing from most."""
    there = [value for value in values if type(value) is dict]
    first = there[0].keys()
    if all(value.keys() == first for value in there):
        return list(first)
    keys: dict[str, None] = {}
    held = 0
    for value in there:
        keys.update(dict.fromkeys(value))
        held += len(value)
        if len(keys) > MOST_COLUMNS:
            return None
    return list(keys) if held * 3 >= len(keys) * len(there) else None


def _group(flat: Flat, groups: list[tuple[Path, list[Any]]], path: Path, held: list[Any]) -> bool:
    values = _by_position(held) if flat.size == 1 else held
    kinds = set(map(type, values))
    if dict not in kinds or len(path) > DEEPEST or not kinds <= {dict, type(None), Absent, Outside}:
        return False
    if Absent in kinds and type(None) in kinds:
        return False
    optional = Absent in kinds or type(None) in kinds
    if optional and not _always(values):
        return False
    there = [value for value in values if type(value) is dict]
    if not any(there) or _keys(there) is None:
        return False
    if Absent not in kinds and Outside not in kinds:
        for other, others in groups:
            if others[0] == held[0] and others == held and text_of(others) == text_of(held):
                flat.copies[path] = other
                return True
        groups.append((path, held))
    columns, order = len(flat.columns), len(flat.order)
    if optional:
        flat.optional[path] = values
    if _spread(flat, groups, path, values):
        return True
    for made in list(flat.columns)[columns:]:
        del flat.columns[made]
    for made in flat.order[order:]:
        flat.optional.pop(made, None)
        flat.copies.pop(made, None)
    del flat.order[order:]
    flat.optional.pop(path, None)
    groups[:] = [group for group in groups if group[0][: len(path)] != path]
    return False


def _by_position(values: list[Any]) -> list[Any]:
    """A list of few objects, inside an only object, as an object with positions for keys."""
    items = values[0]
    if type(items) is not list or not 0 < len(items) <= FEW_ITEMS or any(type(item) is not dict for item in items):
        return values
    return [{position(at): item for at, item in enumerate(items)}]


def _always(values: list[Any]) -> bool:
    """Whether some key has a plain value wherever there is an object: by it one sees whether there is one."""
    there = [value for value in values if type(value) is dict]
    return any(
        all(value.get(key) is not None and type(value.get(key)) is not dict for value in there) for key in there[0]
    )
