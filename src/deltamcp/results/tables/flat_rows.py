"""Rows as columns: objects inside them become groups of columns, by path."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deltamcp.results.tables.syntax import ColumnPath, json_text, position_column
from deltamcp.values import JSON

MAX_COLUMNS = 400
MAX_MEMBERS = 2000
"""Of one object, whose columns need not be compared with each other."""
MAX_DEPTH = 8
MAX_POSITIONED_ITEMS = 3


class AbsentKey:
    """In place of a value: the row has no such key."""


class AbsentParent:
    """In place of a value: the row does not even have the object the key would be in."""


ABSENT, ABSENT_PARENT = AbsentKey(), AbsentParent()


class FlatRows(NamedTuple):
    row_count: int
    columns: dict[ColumnPath, list[Any]]
    optional_groups: dict[ColumnPath, list[Any]]
    """Groups that not every row has: null, or no such key."""
    group_copies: dict[ColumnPath, ColumnPath]
    """Groups that are the same as another in every row."""
    key_order: list[ColumnPath]
    """Columns, groups and copies, as the keys stood in the rows."""


def flatten(rows: Sequence[dict[str, JSON]]) -> FlatRows | None:
    """None where the rows have too little in common, or nothing in them."""
    flat = FlatRows(len(rows), {}, {}, {}, [])
    groups: list[tuple[ColumnPath, list[Any]]] = []
    if not _add_columns(flat, groups, (), list(rows)) or not flat.columns:
        return None
    return flat


def _add_columns(
    flat: FlatRows, groups: list[tuple[ColumnPath, list[Any]]], above: ColumnPath, values: list[Any]
) -> bool:
    keys = _all_keys(values)
    if keys is None:
        return False
    for key in keys:
        below = [value.get(key, ABSENT) if type(value) is dict else ABSENT_PARENT for value in values]
        path = (*above, key)
        flat.key_order.append(path)
        if not _add_group(flat, groups, path, below):
            flat.columns[path] = below
            if len(flat.columns) > (MAX_COLUMNS if flat.row_count > 1 else MAX_MEMBERS):
                return False
    return True


def _all_keys(values: list[Any]) -> list[str] | None:
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
        if len(keys) > MAX_COLUMNS:
            return None
    return list(keys) if held * 3 >= len(keys) * len(there) else None


def _add_group(flat: FlatRows, groups: list[tuple[ColumnPath, list[Any]]], path: ColumnPath, held: list[Any]) -> bool:
    values = _key_by_position(held) if flat.row_count == 1 else held
    kinds = set(map(type, values))
    if dict not in kinds or len(path) > MAX_DEPTH or not kinds <= {dict, type(None), AbsentKey, AbsentParent}:
        return False
    if AbsentKey in kinds and type(None) in kinds:
        return False
    optional = AbsentKey in kinds or type(None) in kinds
    if optional and not _has_present_key(values):
        return False
    there = [value for value in values if type(value) is dict]
    if not any(there) or _all_keys(there) is None:
        return False
    if AbsentKey not in kinds and AbsentParent not in kinds:
        for other, others in groups:
            if others[0] == held[0] and others == held and json_text(others) == json_text(held):
                flat.group_copies[path] = other
                return True
        groups.append((path, held))
    columns, order = len(flat.columns), len(flat.key_order)
    if optional:
        flat.optional_groups[path] = values
    if _add_columns(flat, groups, path, values):
        return True
    for made in list(flat.columns)[columns:]:
        del flat.columns[made]
    for made in flat.key_order[order:]:
        flat.optional_groups.pop(made, None)
        flat.group_copies.pop(made, None)
    del flat.key_order[order:]
    flat.optional_groups.pop(path, None)
    groups[:] = [group for group in groups if group[0][: len(path)] != path]
    return False


def _key_by_position(values: list[Any]) -> list[Any]:
    """A list of few objects, inside an only object, as an object with positions for keys."""
    items = values[0]
    if (
        type(items) is not list
        or not 0 < len(items) <= MAX_POSITIONED_ITEMS
        or any(type(item) is not dict for item in items)
    ):
        return values
    return [{position_column(at): item for at, item in enumerate(items)}]


def _has_present_key(values: list[Any]) -> bool:
    """Whether some key has a plain value wherever there is an object: by it one sees whether there is one."""
    there = [value for value in values if type(value) is dict]
    return any(
        all(value.get(key) is not None and type(value.get(key)) is not dict for value in there) for key in there[0]
    )
