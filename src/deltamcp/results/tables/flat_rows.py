"""Flattens rows into columns by path; an object inside the rows becomes a group of columns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deltamcp.results.tables.syntax import ColumnPath, json_text, position_column
from deltamcp.values import JSON
from deltamcp.work import Work

MAX_COLUMNS = 400
MAX_MEMBERS = 2000
"""The limit for a table of one object, whose columns are not compared with each other."""
MAX_DEPTH = 8
MAX_POSITIONED_ITEMS = 3
_CELLS_PER_STEP = 8
"""Cells of a column that are made or compared in the time of a step."""


class AbsentKey:
    """Marks a column's value in a row that lacks the key."""


class AbsentParent:
    """Marks a column's value in a row that lacks the object that would contain the key."""


ABSENT, ABSENT_PARENT = AbsentKey(), AbsentParent()


class FlatRows(NamedTuple):
    """Rows as columns of values, and the groups that the columns form."""

    row_count: int
    columns: dict[ColumnPath, list[Any]]
    optional_groups: dict[ColumnPath, list[Any]]
    """Values of the groups that are null or absent in some rows."""
    group_copies: dict[ColumnPath, ColumnPath]
    """Groups that equal another group in every row, with the path of that group."""
    key_order: list[ColumnPath]
    """Columns, groups and copies in the order of the keys in the rows."""


def flatten(rows: Sequence[dict[str, JSON]], work: Work) -> FlatRows | None:
    """Return the rows as columns; None where the rows are empty or have too few keys in common."""
    flat = FlatRows(len(rows), {}, {}, {}, [])
    groups: list[tuple[ColumnPath, list[Any]]] = []
    if not _add_columns(flat, groups, (), list(rows), work) or not flat.columns:
        return None
    return flat


def _add_columns(
    flat: FlatRows, groups: list[tuple[ColumnPath, list[Any]]], above: ColumnPath, values: list[Any], work: Work
) -> bool:
    keys = _all_keys(values)
    if keys is None:
        return False
    for key in keys:
        work.spend(1 + len(values) // _CELLS_PER_STEP)
        below = [value.get(key, ABSENT) if type(value) is dict else ABSENT_PARENT for value in values]
        path = (*above, key)
        flat.key_order.append(path)
        if not _add_group(flat, groups, path, below, work):
            flat.columns[path] = below
            if len(flat.columns) > (MAX_COLUMNS if flat.row_count > 1 else MAX_MEMBERS):
                return False
    return True


def _all_keys(values: list[Any]) -> list[str] | None:
    """Return the keys of all objects; None where the objects have on average less than a third of them."""
    objects = [value for value in values if type(value) is dict]
    first = objects[0].keys()
    if all(value.keys() == first for value in objects):
        return list(first)
    keys: dict[str, None] = {}
    member_count = 0
    for value in objects:
        keys.update(dict.fromkeys(value))
        member_count += len(value)
        if len(keys) > MAX_COLUMNS:
            return None
    return list(keys) if member_count * 3 >= len(keys) * len(objects) else None


def _add_group(
    flat: FlatRows, groups: list[tuple[ColumnPath, list[Any]]], path: ColumnPath, members: list[Any], work: Work
) -> bool:
    """Add an object of the rows as a group of columns; return whether it is one."""
    values = _key_by_position(members) if flat.row_count == 1 else members
    kinds = set(map(type, values))
    if dict not in kinds or len(path) > MAX_DEPTH or not kinds <= {dict, type(None), AbsentKey, AbsentParent}:
        return False
    if AbsentKey in kinds and type(None) in kinds:
        return False
    optional = AbsentKey in kinds or type(None) in kinds
    if optional and not _has_present_key(values):
        return False
    objects = [value for value in values if type(value) is dict]
    if not any(objects) or _all_keys(objects) is None:
        return False
    if AbsentKey not in kinds and AbsentParent not in kinds:
        for other, others in groups:
            work.spend(1 + len(members) // _CELLS_PER_STEP)
            if others[0] == members[0] and others == members and json_text(others) == json_text(members):
                flat.group_copies[path] = other
                return True
        groups.append((path, members))
    column_count, key_count = len(flat.columns), len(flat.key_order)
    if optional:
        flat.optional_groups[path] = values
    if _add_columns(flat, groups, path, values, work):
        return True
    for added in list(flat.columns)[column_count:]:
        del flat.columns[added]
    for added in flat.key_order[key_count:]:
        flat.optional_groups.pop(added, None)
        flat.group_copies.pop(added, None)
    del flat.key_order[key_count:]
    flat.optional_groups.pop(path, None)
    groups[:] = [group for group in groups if group[0][: len(path)] != path]
    return False


def _key_by_position(values: list[Any]) -> list[Any]:
    """Return a list of few objects, in a table of one object, as an object whose keys are positions."""
    items = values[0]
    if (
        type(items) is not list
        or not 0 < len(items) <= MAX_POSITIONED_ITEMS
        or any(type(item) is not dict for item in items)
    ):
        return values
    return [{position_column(at): item for at, item in enumerate(items)}]


def _has_present_key(values: list[Any]) -> bool:
    """Whether a key has a plain value in every object, so that its cell shows whether a row has the object."""
    objects = [value for value in values if type(value) is dict]
    return any(
        all(value.get(key) is not None and type(value.get(key)) is not dict for value in objects) for key in objects[0]
    )
