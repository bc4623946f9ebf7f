"""What changes between two JSON values, as a value itself; and what comes of it on the base it was made for."""

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from deltamcp.deltas.prefix import common_prefix_length
from deltamcp.values import JSON

ELLIPSIS = "…"
"""After the beginning of a row's name that no other row's begins with."""
_MAX_GROWTH = 20
"""Times its length that a piece may become everywhere."""
_MAX_FULL_NAME = 12
_MIN_SHORTENED = 6
"""Characters of a shortened name, at least."""


class InvalidDeltaError(ValueError):
    """A delta that cannot be read, or does not belong to the base it was to be applied to."""


class Put(NamedTuple):
    """Something new, or in place of what was there."""

    value: JSON


class Copy(NamedTuple):
    """Something new that is like what the base has beside it, up to an edit."""

    source: str
    edit: "Edit | None"


class Splices(NamedTuple):
    """Pieces of a string, from left to right: each is the next that reads so."""

    pieces: tuple[tuple[str, str], ...]


END = -1
"""In place of a line's number: after the last."""


class Hunk(NamedTuple):
    """Lines `start` to `stop` (from 0, without `stop`) become others, or one of them is spliced."""

    start: int
    stop: int
    lines: "tuple[str, ...] | Splices"


class LineEdits(NamedTuple):
    """A text of lines."""

    hunks: tuple[Hunk, ...]


class MemberEdits(NamedTuple):
    """An object."""

    edits: "dict[str, Edit]"
    removed: tuple[str, ...] = ()


class PlacedRow(NamedTuple):
    """A row and where it ends up; at the end without `at`. `row` is the name of one that moves."""

    at: int | None
    row: "str | Put | Copy"


class RowEdits(NamedTuple):
    """A list. Rows are named by what they have under `key`, or by their place in the base without one."""

    key: str | None
    edits: "dict[str, Edit]"
    removed: tuple[str, ...] = ()
    placed: tuple[PlacedRow, ...] = ()


class ReplaceEverywhere(NamedTuple):
    """The same piece of every string becomes another; then the rest."""

    old: str
    new: str
    edit: "Edit | None"


class WrapInList(NamedTuple):
    """The base becomes the one item of a list; then the rest. How one thing becomes several of its kind."""

    edit: "Edit | None"


class PickItem(NamedTuple):
    """An item of the base, a list, is all that stays of it; then the rest."""

    place: int
    edit: "Edit | None"


Edit: TypeAlias = Put | Copy | Splices | LineEdits | MemberEdits | RowEdits | ReplaceEverywhere | WrapInList | PickItem


def apply_edit(base: JSON, edit: Edit) -> JSON:
    """
    Raises:
        DeltaError: the base has not what the edit is about.
    """
    match edit:
        case Put(value):
            return value
        case ReplaceEverywhere(old, new, then):
            changed = replace_everywhere(base, old, new)
            return changed if then is None else apply_edit(changed, then)
        case WrapInList(then):
            return [base] if then is None else apply_edit([base], then)
        case PickItem(place, then):
            items = _expect_type(base, list)
            if place >= len(items):
                raise InvalidDeltaError(f"the base has no item {place}")
            return items[place] if then is None else apply_edit(items[place], then)
        case Splices(pieces):
            return splice(_expect_type(base, str), pieces)
        case LineEdits(hunks):
            return _apply_hunks(_expect_type(base, str), hunks)
        case MemberEdits():
            return _apply_to_members(_expect_type(base, dict), edit)
        case RowEdits():
            return _apply_to_rows(_expect_type(base, list), edit)
        case Copy():
            raise InvalidDeltaError("nothing stands beside the whole")


def replace_everywhere(value: JSON, old: str, new: str) -> Any:
    """The value with a piece of every string in it replaced; names of members stay.

    Raises:
        DeltaError: it would be much larger than before, which no delta is for.
    """
    if len(new) > _MAX_GROWTH * max(len(old), 1):
        raise InvalidDeltaError("a piece becomes too long everywhere")
    return _replace_in_strings(value, old, new)


def _replace_in_strings(value: JSON, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new) if old in value else value
    if isinstance(value, list):
        return [_replace_in_strings(item, old, new) for item in value]
    if isinstance(value, dict):
        return {name: _replace_in_strings(item, old, new) for name, item in value.items()}
    return value


def splice(text: str, pieces: tuple[tuple[str, str], ...]) -> str:
    """
    Raises:
        DeltaError: a piece is not there.
    """
    made, at = list[str](), 0
    for old, new in pieces:
        found = text.find(old, at)
        if found < 0 or not old:
            raise InvalidDeltaError(f"{old[:40]!r} is not in the base's text")
        made += (text[at:found], new)
        at = found + len(old)
    return "".join([*made, text[at:]])


def _apply_hunks(text: str, hunks: tuple[Hunk, ...]) -> str:
    lines, made, at = text.split("\n"), list[str](), 0
    for start, stop, new in hunks:
        if start == END:
            start = stop = len(lines)
        if not at <= start <= stop <= len(lines):
            raise InvalidDeltaError(f"the base has no lines {start + 1} to {stop}")
        made += lines[at:start]
        made += (splice(line, new.pieces) for line in lines[start:stop]) if isinstance(new, Splices) else new
        at = stop
    return "\n".join(made + lines[at:])


def _apply_to_members(base: dict[str, Any], edit: MemberEdits) -> dict[str, JSON]:
    made = dict(base)
    for name in edit.removed:
        if name not in made:
            raise InvalidDeltaError(f"the base has no member {name[:40]!r}")
        del made[name]
    for name, change in edit.edits.items():
        made[name] = _apply_to_part(change, base.get(name, _ABSENT), base.get)
    return made


_ABSENT: Any = object()


def _apply_to_part(edit: Edit, old: Any, beside: Callable[[str, Any], Any]) -> JSON:
    if isinstance(edit, Put):
        return edit.value
    if isinstance(edit, Copy):
        source = beside(edit.source, _ABSENT)
        if source is _ABSENT:
            raise InvalidDeltaError(f"the base has no {edit.source[:40]!r} to copy")
        return source if edit.edit is None else apply_edit(source, edit.edit)
    if old is _ABSENT:
        raise InvalidDeltaError("the base has not what is edited")
    return apply_edit(old, edit)


def _apply_to_rows(base: list[Any], edit: RowEdits) -> list[JSON]:
    named = _RowsByPlace(len(base)) if edit.key is None else _RowsByName(row_names(base, edit.key))
    changed = list(base)
    for name, change in edit.edits.items():
        place = named[name]
        changed[place] = apply_edit(base[place], change)
    leaving = [named[name] for name in edit.removed]
    leaving += [named[row] for _, row in edit.placed if isinstance(row, str)]
    away = set(leaving)
    if len(away) < len(leaving):
        raise InvalidDeltaError("a row goes twice")
    made = [row for place, row in enumerate(changed) if place not in away] if away else list(changed)
    last = -1
    for index, row in edit.placed:
        value = (
            changed[named[row]]
            if isinstance(row, str)
            else _apply_to_part(row, _ABSENT, lambda name, _: base[named[name]])
        )
        if index is None:
            index = len(made)
        if not last < index <= len(made):
            raise InvalidDeltaError(f"there is no place {index} for a row")
        made.insert(index, value)
        last = index
    return made


class _RowsByPlace:
    """Places of rows that are named by them."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, name: str) -> int:
        if not name.isdecimal() or len(name) > 12 or int(name) >= self._count:
            raise InvalidDeltaError(f"the base has no row {name[:40]!r}")
        return int(name)


class _RowsByName:
    """Places of rows by their names, or by as much of a name as only one begins with."""

    def __init__(self, names: list[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._sorted: list[str] = []

    def __getitem__(self, name: str) -> int:
        place = self._places.get(name)
        if place is None and name.endswith(ELLIPSIS):
            beginning = name[:-1]
            self._sorted = self._sorted or sorted(self._places)
            at = bisect_left(self._sorted, beginning)
            found = [full for full in self._sorted[at : at + 2] if full.startswith(beginning)]
            place = self._places[found[0]] if len(found) == 1 else None
        if place is None:
            raise InvalidDeltaError(f"the base has no row {name[:40]!r}, or more than one")
        return place


def row_names(rows: list[Any], key: str) -> list[str]:
    """What the rows of a base have under a key.

    Raises:
        DeltaError: they cannot all be told apart so.
    """
    try:
        found = [row[key] for row in rows]
    except (TypeError, KeyError, IndexError):
        raise InvalidDeltaError(f"not every row of the base has {key[:40]!r}") from None
    made = [name if isinstance(name, str) else str(name) for name in found]
    if len(set(made)) < len(made):
        raise InvalidDeltaError(f"rows of the base have the same {key[:40]!r}")
    return made


def short_row_names(rows: list[Any], key: str) -> list[str]:
    """What they are called in a delta: long ones by their beginnings, where no other begins so."""
    return _shorten_names(row_names(rows, key))


def _shorten_names(names: list[str]) -> list[str]:
    if all(len(name) <= _MAX_FULL_NAME for name in names) or any(name.endswith(ELLIPSIS) for name in names):
        return names
    ordered = sorted(names)
    needed = dict.fromkeys(names, _MIN_SHORTENED)
    for one, next_one in pairwise(ordered):
        common = common_prefix_length(one, next_one) + 1
        needed[one], needed[next_one] = max(needed[one], common), max(needed[next_one], common)
    short = {name: name[: needed[name]] for name in names}
    return [
        short[name] + ELLIPSIS
        if len(name) > _MAX_FULL_NAME and len(short[name]) < len(name) - 4 and _is_one_word(short[name])
        else name
        for name in names
    ]


_is_one_word = re.compile(r"[\w:/@-]+").fullmatch


def _expect_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise InvalidDeltaError(f"the base has {type(value).__name__} where the delta edits {kind.__name__}")
    return value
