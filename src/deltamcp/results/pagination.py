"""The largest part of a list or an object that fits: whole rows or members; of one that is too large, a part."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from deltamcp.results import document, summary
from deltamcp.results.budget import find_largest
from deltamcp.results.document import RawJSON
from deltamcp.results.pointer import parse_path, pointer
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON

_USUAL_ROW_KEYS = ("data", "items", "results")
_NON_LIST_TYPES = frozenset({str, int, float, bool, dict, type(None)})
_MAX_ROWS_DEPTH = 3
"""How far down rows are looked for."""
_BYTES_PER_TOKEN = 3
"""Of JSON; a first guess, put right by what the part costs."""


def find_rows(data: RawJSON, declared: str | None, value: Any = None) -> list[str] | None:
    """The path to the rows of a result, of `value` where that is at hand; None where it has none.

    Where it was declared, else the root, `data`, `items` or `results`, else the list that is most of it (RB-64).
    """
    if declared is not None:
        path = parse_path(declared)
        try:
            return path if document.kind(document.at(data, path)) == "list" else None
        except document.PathNotFoundError:
            return None
    if (
        type(value) is dict
        and value.keys().isdisjoint(_USUAL_ROW_KEYS)
        and all(type(one) in _NON_LIST_TYPES for one in value.values())
    ):
        return None  # seen in a tenth of the time that reading the JSON takes
    return _find_rows_below(data, _MAX_ROWS_DEPTH)


def _find_rows_below(data: RawJSON, depth: int) -> list[str] | None:
    kind = document.kind(data)
    if kind == "list":
        return []
    if kind != "object" or not depth:
        return None
    members = document.members(data)
    for name in _USUAL_ROW_KEYS:
        if name in members and len(members[name]) > 2:
            below = _find_rows_below(members[name], depth - 1)
            if below is not None:
                return [name, *below]
    # Another list is the rows where it is most of the result.
    most = max(members, key=lambda name: len(members[name]), default=None)
    if most is None or len(members[most]) * 2 < len(data) or document.kind(members[most]) != "list":
        return None
    return [most]


def rows_window(
    units: Sequence[RawJSON], start: int, around: Callable[[list[JSON]], JSON], below: Sequence[str], frame: Frame
) -> Window | None:
    """As many rows as fit, at least one; `around` puts them where they belong, which is `below` the view's root.

    None where not even a mark in place of the first fits.
    """
    decoded: list[JSON] = []

    def first(count: int) -> Window:
        decoded.extend(document.decode(unit) for unit in units[start + len(decoded) : start + count])
        return frame.make_window("rows", around(decoded[:count]), start, start + count, len(units))

    def window_of_part(frame: Frame, value: JSON, cuts: tuple[str, ...]) -> Window:
        inside = tuple(pointer(*below, start) + cut for cut in cuts)
        return frame.make_window("rows", around([value]), start, start + 1, len(units), inside)

    most = min(len(units) - start, frame.policy.page_size or len(units))
    if most <= 0:
        return first(0)
    return _largest_window(most, islice(units, start, None), first, frame) or summary.summary_window(
        units[start], window_of_part, frame
    )


def members_window(units: Mapping[str, RawJSON], start: int, frame: Frame) -> Window | None:
    """The same for the members of an object; None where a key by itself is too long."""
    keys = list(islice(units, start, None))

    def first(count: int) -> Window:
        value = {key: document.decode(units[key]) for key in keys[:count]}
        return frame.make_window("keys", value, start, start + count, len(units))

    def window_of_part(frame: Frame, value: JSON, cuts: tuple[str, ...]) -> Window:
        inside = tuple(pointer(keys[0]) + cut for cut in cuts)
        return frame.make_window("keys", {keys[0]: value}, start, start + 1, len(units), inside)

    if not keys:
        return first(0)
    sized = (units[key] for key in keys)
    return _largest_window(len(keys), sized, first, frame) or summary.summary_window(
        units[keys[0]], window_of_part, frame
    )


def _largest_window(most: int, units: Iterable[RawJSON], first: Callable[[int], Window], frame: Frame) -> Window | None:
    made: dict[int, Window] = {}

    def cost(count: int) -> int:
        made[count] = first(count)
        return frame.cost(made[count])

    space, guess = frame.budget.tokens * _BYTES_PER_TOKEN, 0
    for unit in units:
        space -= len(unit) + 1
        if space < 0:
            break
        guess += 1
    count = find_largest(most, guess, cost, frame.budget.tokens, least=1)
    return None if count is None else made[count]
