"""Finds the rows of a result: the list that it is, or that is most of it."""

from typing import Any

from deltamcp.results import document
from deltamcp.results.document import RawJSON
from deltamcp.results.pointer import parse_path
from deltamcp.work import Work

_USUAL_ROW_KEYS = ("data", "items", "results")
_NON_LIST_TYPES = frozenset({str, int, float, bool, dict, type(None)})
_MEMBERS_PER_STEP = 8
_MAX_ROWS_DEPTH = 3
"""Levels at which the server looks for rows."""


def find_rows(data: RawJSON, declared: str | None, work: Work, value: Any = None) -> list[str] | None:
    """Return the path to the rows of a result; None where it has none. `value` is the decoded result, where available.

    The path is the declared one; else the root, `data`, `items` or `results`; else the list that is most of the value.
    """
    if declared is not None:
        path = parse_path(declared)
        try:
            return path if document.kind(document.at(data, path, work)) == "list" else None
        except document.PathNotFoundError:
            return None
    if type(value) is dict:
        work.spend(len(value) // _MEMBERS_PER_STEP)
    if (
        type(value) is dict
        and value.keys().isdisjoint(_USUAL_ROW_KEYS)
        and all(type(member) in _NON_LIST_TYPES for member in value.values())
    ):
        return None  # takes a tenth of the time of reading the JSON
    return _find_rows_below(data, _MAX_ROWS_DEPTH, work)


def _find_rows_below(data: RawJSON, depth: int, work: Work) -> list[str] | None:
    kind = document.kind(data)
    if kind == "list":
        return []
    if kind != "object" or not depth:
        return None
    try:
        members = document.members(data, work)
    except document.TooManyMembersError:
        return None
    for name in _USUAL_ROW_KEYS:
        if name in members and len(members[name]) > 2:
            below = _find_rows_below(members[name], depth - 1, work)
            if below is not None:
                return [name, *below]
    largest = max(members, key=lambda name: len(members[name]), default=None)
    if largest is None or len(members[largest]) * 2 < len(data) or document.kind(members[largest]) != "list":
        return None
    return [largest]
