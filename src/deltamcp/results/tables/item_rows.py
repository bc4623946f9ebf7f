"""Flattens rows that have a list each into rows for the items of the lists, and puts the lists together again.

[{"tag":"v2","assets":[{"name":"a.zip"},{"name":"b.zip"}]},{"tag":"v1","assets":[]}]

#2:2 tag,assets[]?.name

v2,a.zip
v2,b.zip
v1,
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from deltamcp.results.tables.syntax import json_text, list_column
from deltamcp.values import JSON
from deltamcp.work import Work

_MAX_ITEM_NAMES = 2
"""Items with more members are rows with a table of their own."""
_MAX_OTHER_MEMBERS = 4
"""With more members beside the list, the rows repeat too much."""
_MEMBERS_PER_STEP = 4
_NESTED_TYPES = (dict, list)


class ItemRows(NamedTuple):
    """Rows for the items of the lists in other rows."""

    rows: list[dict[str, JSON]]
    """An empty list has a row without the list's column."""
    sizes: list[int]
    """How many items each list has."""
    have_others: bool
    """Whether the rows have members beside the list, which tell to which of them an item belongs."""


def find_item_rows(rows: Sequence[dict[str, JSON]], work: Work) -> ItemRows | None:
    """Returns the rows for the items of the one list that each row has; None where they would not come back.

    The items are scalars, or objects with one or two members, which are scalars.
    """
    name = _list_name(rows, work)
    if name is None:
        return None
    column = list_column(name)
    flat: list[dict[str, JSON]] = []
    sizes: list[int] = []
    others: list[str] = []
    for row in rows:
        items = row[name]
        assert isinstance(items, list), "the member is a list in every row"
        work.spend(1 + len(items))
        beside: dict[str, JSON] = {key: value for key, value in row.items() if key != name}
        others.append(json_text(dict(sorted(beside.items()))))
        work.scan(len(others[-1]))
        sizes.append(len(items))
        if not items:
            flat.append(beside)
        flat += ({column if key == name else key: item if key == name else row[key] for key in row} for item in items)
    have_others = any(len(row) > 1 for row in rows)
    if have_others and any(one == other for one, other in pairwise(others)):
        return None
    return ItemRows(flat, sizes, have_others)


def _list_name(rows: Sequence[dict[str, JSON]], work: Work) -> str | None:
    """Returns the name of the only list in every row; None if there is none with such items."""
    found = [name for name, value in rows[0].items() if type(value) is list]
    if len(found) != 1 or len(rows[0]) > _MAX_OTHER_MEMBERS + 1:
        return None
    name, names = found[0], set[str]()
    kinds: set[type] = set()
    for row in rows:
        work.spend(1 + len(row) // _MEMBERS_PER_STEP)
        items = row.get(name)
        if type(items) is not list or len(row) > _MAX_OTHER_MEMBERS + 1:
            return None
        if any(type(value) in _NESTED_TYPES for key, value in row.items() if key != name):
            return None
        work.spend(len(items))
        for item in items:
            kinds.add(type(item))
            if type(item) is dict:
                names.update(item)
                if any(type(value) in _NESTED_TYPES for value in item.values()):
                    return None
        if len(names) > _MAX_ITEM_NAMES or list in kinds or (dict in kinds and len(kinds) > 1):
            return None
    return name if kinds else None


def group_items(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Returns the rows with a list under a name, from rows for the items of the lists.

    Raises:
        ValueError: an empty list has items.
    """
    column = list_column(name)
    grouped: list[dict[str, Any]] = []
    for _, same in groupby(rows, key=lambda row: json_text({key: row[key] for key in sorted(row) if key != column})):
        found = list(same)
        items = [row[column] for row in found if column in row]
        if len(items) != len(found) and len(found) > 1:
            raise ValueError("a row without items is there twice")
        grouped.append({name if key == column else key: items if key == column else found[0][key] for key in found[0]})
        grouped[-1].setdefault(name, items)
    return grouped


def split_by_sizes(lines: Sequence[str], sizes: Sequence[int]) -> Iterator[list[str]]:
    """Yields so many of the lines after each other."""
    start = 0
    for size in sizes:
        yield list(lines[start : start + size])
        start += size
