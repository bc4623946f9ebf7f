"""Edits: the changes between two JSON values as data, and `apply_edit`, which applies them to their base."""

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from deltamcp.deltas.root import canonical_bytes
from deltamcp.values import JSON
from deltamcp.work import Work

ELLIPSIS = "…"
"""Ends a shortened row name: the beginning of a name, which no other row's name begins with."""
_MAX_GROWTH = 20
"""How many times longer `ReplaceEverywhere` may make a piece."""
_CHARS_PER_STEP = 24
"""Characters that take as much memory as a short value does."""
_MAX_FULL_NAME = 12
_MIN_SHORTENED = 6
"""Characters that a shortened name has at least."""


def common_prefix_length(base: str, new: str) -> int:
    """Returns how many characters both strings begin with."""
    low, high = 0, min(len(base), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if base.startswith(new[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


class InvalidDeltaError(ValueError):
    """The delta cannot be parsed, or does not belong to the base that the caller applies it to."""


class Put(NamedTuple):
    """A new value, or a value that replaces the old one."""

    value: JSON


class Copy(NamedTuple):
    """A new value: a copy of the sibling that the base has under the name `source`, changed by `edit`."""

    source: str
    edit: "Edit | None"


class Splices(NamedTuple):
    """Pieces of a string and their replacements, from left to right. Each piece is the next occurrence of its text."""

    pieces: tuple[tuple[str, str], ...]


END = -1
"""The line number of a hunk that appends lines."""


class Hunk(NamedTuple):
    """New lines in place of the lines from `start` up to but excluding `stop` (from 0), or splices of one line."""

    start: int
    stop: int
    lines: "tuple[str, ...] | Splices"


class LineEdits(NamedTuple):
    """Changes of a text by its lines."""

    hunks: tuple[Hunk, ...]


class MemberEdits(NamedTuple):
    """Changes of an object: edits of its members, and the names of removed members."""

    edits: "dict[str, Edit]"
    removed: tuple[str, ...] = ()


class PlacedRow(NamedTuple):
    """A row and its new index, None for the end. `row` is a new row, or the name of a row that moves."""

    at: int | None
    row: "str | Put | Copy"


class RowEdits(NamedTuple):
    """Changes of a list. Rows are named by their value under `key`, or by their index in the base without a key."""

    key: str | None
    edits: "dict[str, Edit]"
    removed: tuple[str, ...] = ()
    placed: tuple[PlacedRow, ...] = ()


class ReplaceEverywhere(NamedTuple):
    """Replaces a piece in every string of the base; `edit` applies to the changed base."""

    old: str
    new: str
    edit: "Edit | None"


class WrapInList(NamedTuple):
    """Makes the base the only item of a list; `edit` applies to the list. So an object becomes several of its kind."""

    edit: "Edit | None"


class PickItem(NamedTuple):
    """Keeps one item of the base, which is a list; `edit` applies to the item."""

    place: int
    edit: "Edit | None"


Edit: TypeAlias = Put | Copy | Splices | LineEdits | MemberEdits | RowEdits | ReplaceEverywhere | WrapInList | PickItem


def apply_edit(base: JSON, edit: Edit, work: Work) -> JSON:
    """Returns the base with the edit applied. The base itself does not change.

    Each `_CHARS_PER_STEP` characters that the edit repeats are a step: a short edit may repeat much of the base.

    Raises:
        InvalidDeltaError: the base lacks a part that the edit changes.
        WorkLimitError: the new value is too large.
    """
    match edit:
        case Put(value):
            return value
        case ReplaceEverywhere(old, new, then):
            work.spend(_MAX_GROWTH * len(canonical_bytes(base)) // _CHARS_PER_STEP if len(new) > len(old) else 1)
            changed = replace_everywhere(base, old, new)
            return changed if then is None else apply_edit(changed, then, work)
        case WrapInList(then):
            return [base] if then is None else apply_edit([base], then, work)
        case PickItem(place, then):
            items = _expect_type(base, list)
            if place >= len(items):
                raise InvalidDeltaError(f"the base has no item {place}")
            return items[place] if then is None else apply_edit(items[place], then, work)
        case Splices(pieces):
            return splice(_expect_type(base, str), pieces)
        case LineEdits(hunks):
            return _apply_hunks(_expect_type(base, str), hunks, work)
        case MemberEdits():
            return _apply_to_members(_expect_type(base, dict), edit, work)
        case RowEdits():
            return _apply_to_rows(_expect_type(base, list), edit, work)
        case Copy():
            raise InvalidDeltaError("the whole value has no sibling to copy")


def replace_everywhere(value: JSON, old: str, new: str) -> Any:
    """Returns the value with a piece replaced in every string, but not in the names of members.

    Raises:
        InvalidDeltaError: the new piece is more than 20 times as long as the old one.
    """
    if len(new) > _MAX_GROWTH * max(len(old), 1):
        raise InvalidDeltaError("the delta replaces a piece everywhere by one that is too long")
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
    """Returns the text with its pieces replaced.

    Raises:
        InvalidDeltaError: the text lacks a piece.
    """
    parts, at = list[str](), 0
    for old, new in pieces:
        found = text.find(old, at)
        if found < 0 or not old:
            raise InvalidDeltaError(f"{old[:40]!r} is not in the base's text")
        parts += (text[at:found], new)
        at = found + len(old)
    return "".join([*parts, text[at:]])


def _apply_hunks(text: str, hunks: tuple[Hunk, ...], work: Work) -> str:
    lines, new_lines, at = text.split("\n"), list[str](), 0
    for start, stop, new in hunks:
        if start == END:
            start = stop = len(lines)
        if not at <= start <= stop <= len(lines):
            raise InvalidDeltaError(f"the base has no lines {start + 1} to {stop}")
        new_lines += lines[at:start]
        if isinstance(new, Splices):
            work.spend((stop - start) * (1 + sum(len(piece) for _, piece in new.pieces) // _CHARS_PER_STEP))
        new_lines += (splice(line, new.pieces) for line in lines[start:stop]) if isinstance(new, Splices) else new
        at = stop
    return "\n".join(new_lines + lines[at:])


def _apply_to_members(base: dict[str, Any], edit: MemberEdits, work: Work) -> dict[str, JSON]:
    members = dict(base)
    for name in edit.removed:
        if name not in members:
            raise InvalidDeltaError(f"the base has no member {name[:40]!r}")
        del members[name]
    for name, change in edit.edits.items():
        members[name] = _apply_to_part(change, base.get(name, _ABSENT), base.get, work)
    return members


_ABSENT: Any = object()


def _apply_to_part(edit: Edit, old: Any, find_sibling: Callable[[str, Any], Any], work: Work) -> JSON:
    if isinstance(edit, Put):
        return edit.value
    if isinstance(edit, Copy):
        source = find_sibling(edit.source, _ABSENT)
        if source is _ABSENT:
            raise InvalidDeltaError(f"the base has no {edit.source[:40]!r} to copy")
        work.spend(1 + len(canonical_bytes(source)) // _CHARS_PER_STEP)
        return source if edit.edit is None else apply_edit(source, edit.edit, work)
    if old is _ABSENT:
        raise InvalidDeltaError("the base lacks a part that the delta edits")
    return apply_edit(old, edit, work)


def _apply_to_rows(base: list[Any], edit: RowEdits, work: Work) -> list[JSON]:
    places = _RowsByPlace(len(base)) if edit.key is None else _RowsByName(row_names(base, edit.key))
    changed = list(base)
    for name, change in edit.edits.items():
        place = places[name]
        changed[place] = apply_edit(base[place], change, work)
    leaving = [places[name] for name in edit.removed]
    leaving += [places[row] for _, row in edit.placed if isinstance(row, str)]
    leaving_places = set(leaving)
    if len(leaving_places) < len(leaving):
        raise InvalidDeltaError("the delta removes or moves a row twice")
    rows = (
        [row for place, row in enumerate(changed) if place not in leaving_places] if leaving_places else list(changed)
    )
    placed: list[JSON] = []
    taken, last = 0, -1
    for index, row in edit.placed:
        value = (
            changed[places[row]]
            if isinstance(row, str)
            else _apply_to_part(row, _ABSENT, lambda name, _: base[places[name]], work)
        )
        length = len(placed) + len(rows) - taken
        if index is None:
            index = length
        if not last < index <= length:
            raise InvalidDeltaError(f"the delta cannot place a row at {index}")
        before = index - len(placed)
        placed += rows[taken : taken + before]
        taken += before
        placed.append(value)
        last = index
    return placed + rows[taken:]


class _RowsByPlace:
    """Indices of rows that are named by their index."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, name: str) -> int:
        if not name.isdecimal() or len(name) > 12 or int(name) >= self._count:
            raise InvalidDeltaError(f"the base has no row {name[:40]!r}")
        return int(name)


class _RowsByName:
    """Indices of rows by their names, or by shortened names."""

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
    """Returns the values that the rows of a base have under the key, as strings.

    Raises:
        InvalidDeltaError: a row has no such value, or two rows have the same.
    """
    try:
        values = [row[key] for row in rows]
    except (TypeError, KeyError, IndexError):
        raise InvalidDeltaError(f"not every row of the base has {key[:40]!r}") from None
    names = [value if isinstance(value, str) else str(value) for value in values]
    if len(set(names)) < len(names):
        raise InvalidDeltaError(f"rows of the base have the same {key[:40]!r}")
    return names


def short_row_names(rows: list[Any], key: str) -> list[str]:
    """Returns the names of the rows in a delta: a long name is shortened to a beginning that no other name has."""
    return _shorten_names(row_names(rows, key))


def _shorten_names(names: list[str]) -> list[str]:
    if all(len(name) <= _MAX_FULL_NAME for name in names) or any(name.endswith(ELLIPSIS) for name in names):
        return names
    ordered = sorted(names)
    needed = dict.fromkeys(names, _MIN_SHORTENED)
    for name, next_name in pairwise(ordered):
        length = common_prefix_length(name, next_name) + 1
        needed[name], needed[next_name] = max(needed[name], length), max(needed[next_name], length)
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
