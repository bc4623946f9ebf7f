"""What changes between two JSON values, as a value itself; and what comes of it on the base it was made for."""

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from deltamcp.deltas.common import common_start
from deltamcp.values import JSON

ELLIPSIS = "…"
"""After the beginning of a row's name that no other row's begins with."""
_MOST_GROWTH = 20
"""Times its length that a piece may become everywhere."""
_LONG = 12
_SHORTENED = 6
"""Characters of a shortened name, at least."""


class DeltaError(ValueError):
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


class Lines(NamedTuple):
    """A text of lines."""

    hunks: tuple[Hunk, ...]


class Members(NamedTuple):
    """An object."""

    edits: "dict[str, Edit]"
    removed: tuple[str, ...] = ()


class Placed(NamedTuple):
    """A row and where it ends up; at the end without `at`. `row` is the name of one that moves."""

    at: int | None
    row: "str | Put | Copy"


class Rows(NamedTuple):
    """A list. Rows are named by what they have under `key`, or by their place in the base without one."""

    key: str | None
    edits: "dict[str, Edit]"
    removed: tuple[str, ...] = ()
    placed: tuple[Placed, ...] = ()


class Everywhere(NamedTuple):
    """The same piece of every string becomes another; then the rest."""

    old: str
    new: str
    edit: "Edit | None"


class Listed(NamedTuple):
    """The base becomes the one item of a list; then the rest. How one thing becomes several of its kind."""

    edit: "Edit | None"


class Picked(NamedTuple):
    """An item of the base, a list, is all that stays of it; then the rest."""

    place: int
    edit: "Edit | None"


Edit: TypeAlias = Put | Copy | Splices | Lines | Members | Rows | Everywhere | Listed | Picked


def apply(base: JSON, edit: Edit) -> JSON:
    """
    Raises:
        DeltaError: the base has not what the edit is about.
    """
    match edit:
        case Put(value):
            return value
        case Everywhere(old, new, then):
            changed = everywhere(base, old, new)
            return changed if then is None else apply(changed, then)
        case Listed(then):
            return [base] if then is None else apply([base], then)
        case Picked(place, then):
            items = _of(base, list)
            if place >= len(items):
                raise DeltaError(f"the base has no item {place}")
            return items[place] if then is None else apply(items[place], then)
        case Splices(pieces):
            return spliced(_of(base, str), pieces)
        case Lines(hunks):
            return _lined(_of(base, str), hunks)
        case Members():
            return _members(_of(base, dict), edit)
        case Rows():
            return _rows(_of(base, list), edit)
        case Copy():
            raise DeltaError("nothing stands beside the whole")


def everywhere(value: JSON, old: str, new: str) -> Any:
    """The value with a piece of every string in it replaced; names of members stay.

    Raises:
        DeltaError: it would be much larger than before, which no delta is for.
    """
    if len(new) > _MOST_GROWTH * max(len(old), 1):
        raise DeltaError("a piece becomes too long everywhere")
    return _everywhere(value, old, new)


def _everywhere(value: JSON, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new) if old in value else value
    if isinstance(value, list):
        return [_everywhere(item, old, new) for item in value]
    if isinstance(value, dict):
        return {name: _everywhere(item, old, new) for name, item in value.items()}
    return value


def spliced(text: str, pieces: tuple[tuple[str, str], ...]) -> str:
    """
    Raises:
        DeltaError: a piece is not there.
    """
    made, at = list[str](), 0
    for old, new in pieces:
        found = text.find(old, at)
        if found < 0 or not old:
            raise DeltaError(f"{old[:40]!r} is not in the base's text")
        made += (text[at:found], new)
        at = found + len(old)
    return "".join([*made, text[at:]])


def _lined(text: str, hunks: tuple[Hunk, ...]) -> str:
    lines, made, at = text.split("\n"), list[str](), 0
    for start, stop, new in hunks:
        if start == END:
            start = stop = len(lines)
        if not at <= start <= stop <= len(lines):
            raise DeltaError(f"the base has no lines {start + 1} to {stop}")
        made += lines[at:start]
        made += (spliced(line, new.pieces) for line in lines[start:stop]) if isinstance(new, Splices) else new
        at = stop
    return "\n".join(made + lines[at:])


def _members(base: dict[str, Any], edit: Members) -> dict[str, JSON]:
    made = dict(base)
    for name in edit.removed:
        if name not in made:
            raise DeltaError(f"the base has no member {name[:40]!r}")
        del made[name]
    for name, change in edit.edits.items():
        made[name] = _changed(change, base.get(name, _ABSENT), base.get)
    return made


_ABSENT: Any = object()


def _changed(edit: Edit, old: Any, beside: Callable[[str, Any], Any]) -> JSON:
    if isinstance(edit, Put):
        return edit.value
    if isinstance(edit, Copy):
        source = beside(edit.source, _ABSENT)
        if source is _ABSENT:
            raise DeltaError(f"the base has no {edit.source[:40]!r} to copy")
        return source if edit.edit is None else apply(source, edit.edit)
    if old is _ABSENT:
        raise DeltaError("the base has not what is edited")
    return apply(old, edit)


def _rows(base: list[Any], edit: Rows) -> list[JSON]:
    named = _Places(len(base)) if edit.key is None else _Named(names(base, edit.key))
    changed = list(base)
    for name, change in edit.edits.items():
        place = named[name]
        changed[place] = apply(base[place], change)
    leaving = [named[name] for name in edit.removed]
    leaving += [named[row] for _, row in edit.placed if isinstance(row, str)]
    away = set(leaving)
    if len(away) < len(leaving):
        raise DeltaError("a row goes twice")
    made = [row for place, row in enumerate(changed) if place not in away] if away else list(changed)
    last = -1
    for index, row in edit.placed:
        value = (
            changed[named[row]] if isinstance(row, str) else _changed(row, _ABSENT, lambda name, _: base[named[name]])
        )
        if index is None:
            index = len(made)
        if not last < index <= len(made):
            raise DeltaError(f"there is no place {index} for a row")
        made.insert(index, value)
        last = index
    return made


class _Places:
    """Places of rows that are named by them."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, name: str) -> int:
        if not name.isdecimal() or len(name) > 12 or int(name) >= self._count:
            raise DeltaError(f"the base has no row {name[:40]!r}")
        return int(name)


class _Named:
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
            raise DeltaError(f"the base has no row {name[:40]!r}, or more than one")
        return place


def names(rows: list[Any], key: str) -> list[str]:
    """What the rows of a base have under a key.

    Raises:
        DeltaError: they cannot all be told apart so.
    """
    try:
        found = [row[key] for row in rows]
    except (TypeError, KeyError, IndexError):
        raise DeltaError(f"not every row of the base has {key[:40]!r}") from None
    made = [name if isinstance(name, str) else str(name) for name in found]
    if len(set(made)) < len(made):
        raise DeltaError(f"rows of the base have the same {key[:40]!r}")
    return made


def called(rows: list[Any], key: str) -> list[str]:
    """What they are called in a delta: long ones by their beginnings, where no other begins so."""
    return _shortened(names(rows, key))


def _shortened(names: list[str]) -> list[str]:
    if all(len(name) <= _LONG for name in names) or any(name.endswith(ELLIPSIS) for name in names):
        return names
    ordered = sorted(names)
    needed = dict.fromkeys(names, _SHORTENED)
    for one, next_one in pairwise(ordered):
        common = common_start(one, next_one) + 1
        needed[one], needed[next_one] = max(needed[one], common), max(needed[next_one], common)
    short = {name: name[: needed[name]] for name in names}
    return [
        short[name] + ELLIPSIS
        if len(name) > _LONG and len(short[name]) < len(name) - 4 and _one_word(short[name])
        else name
        for name in names
    ]


_one_word = re.compile(r"[\w:/@-]+").fullmatch


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise DeltaError(f"the base has {type(value).__name__} where the delta edits {kind.__name__}")
    return value
