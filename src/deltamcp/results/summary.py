"""Abridges a value to a number of bytes: it shows as many keys as fit, small values whole, and large ones in part.

Members share the space evenly, and what small ones leave goes to the large ones. An ellipsis marks what is cut, and
says how much; for programs, `cuts` has pointers to the cut values.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from deltamcp.results import document
from deltamcp.results.budget import find_largest
from deltamcp.results.document import JSONKind, RawJSON
from deltamcp.results.notes import ELLIPSIS
from deltamcp.results.pointer import pointer
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON
from deltamcp.work import Work

_MAX_DEPTH = 24
"""Values at a greater depth are not shown in part."""
_MIN_MEMBER_BYTES = 18
"""Smallest size of a member besides its key: quotes, colon, comma, and an ellipsis mark."""
_PROSE = re.compile(r"(?=[\s\S]{1000})\S{0,200}\s")
"""Matches long prose; an address, a key or a cursor has no blanks."""
_MAX_WIDENINGS = 3
_ALWAYS_WHOLE_BYTES: dict[JSONKind, int] = {"list": 2, "object": 2, "text": 12, "scalar": 31}
"""Values of at most this size are always whole, because a mark would not be shorter."""


class AbridgedValue(NamedTuple):
    value: JSON
    cuts: tuple[str, ...]
    """Pointers to the cut values."""


class Summary:
    """Abridges one value to several sizes; it parses each list and object in the value once."""

    def __init__(self, data: RawJSON, work: Work, marked: bool = True, value: Any = None) -> None:
        """Without `marked` only lists and long prose are cut, because programs would take a mark for a value.

        `value` is the decoded `data`, where available.
        """
        self._data = data
        self._work = work
        self._marked = marked
        members = document.LazyMembers.from_dict(value, work)
        self._members: dict[tuple[str | int, ...], Mapping[str, RawJSON]] = {} if members is None else {(): members}
        self._items: dict[tuple[str | int, ...], Sequence[RawJSON]] = {}

    def abridge(self, space: int) -> AbridgedValue:
        """Abridge the value to about `space` bytes; a value that is small enough stays whole."""
        cuts: list[str] = []
        return AbridgedValue(self._abridge_value(self._data, space, (), cuts), tuple(cuts))

    def _abridge_value(self, data: RawJSON, space: int, path: tuple[str | int, ...], cuts: list[str]) -> JSON:
        size, kind = len(data), document.kind(data)
        if size <= space or size <= _ALWAYS_WHOLE_BYTES[kind]:
            return document.decode_counted(data, self._work)
        if kind == "list":
            return self._abridge_list(data, space if len(path) < _MAX_DEPTH else 0, path, cuts)
        if kind == "object":
            return self._abridge_object(data, space if len(path) < _MAX_DEPTH else 0, path, cuts)
        if not self._marked and (kind == "scalar" or not _PROSE.match(document.decode(data))):
            return document.decode(data)
        cuts.append(pointer(*path))
        if kind == "scalar":
            return f"{ELLIPSIS} a number of {size} digits"
        text: str = document.decode(data)
        # An escape or a character beyond ASCII takes more than one byte.
        keep = max(0, (space - 16) * len(text) // size)
        return f"{text[:keep]}{ELLIPSIS} +{len(text) - keep} chars"

    def _abridge_list(self, data: RawJSON, space: int, path: tuple[str | int, ...], cuts: list[str]) -> JSON:
        """Return the items that fit whole; where not even the first does, a part of it."""
        items = self._items.get(path)
        if items is None:
            items = self._items[path] = document.items(data, self._work)
        left = space - 12
        shown: list[JSON] = []
        for place, item in enumerate(items):
            self._work.spend()
            whole = len(item) + 1
            if whole > left and (place or left < 2 * _MIN_MEMBER_BYTES or not self._marked):
                break
            shown.append(self._abridge_value(item, left - 1, (*path, place), cuts))
            left -= min(whole, left)
        if len(shown) < len(items):
            cuts.append(pointer(*path))
            if self._marked:
                shown.append(f"{ELLIPSIS} +{len(items) - len(shown)}")
        return shown

    def _abridge_object(self, data: RawJSON, space: int, path: tuple[str | int, ...], cuts: list[str]) -> JSON:
        members = self._members.get(path)
        if members is None:
            try:
                members = document.members(data, self._work)
            except document.TooManyMembersError:
                cuts.append(pointer(*path))
                return {ELLIPSIS: f"more than {document.MAX_MEMBERS} keys"}
            self._members[path] = members
        left = space - 2
        shares: dict[str, int] = {}
        for key, value in members.items():
            self._work.spend()
            min_size = len(key) + 4 + min(len(value), _MIN_MEMBER_BYTES)
            if min_size > left and self._marked:
                break
            shares[key] = len(value)
            left -= min_size
        missing = len(members) - len(shares)
        _share_out(shares, left - _MIN_MEMBER_BYTES if missing else left)
        shown: dict[str, JSON] = {
            key: self._abridge_value(members[key], share, (*path, key), cuts) for key, share in shares.items()
        }
        if missing:
            cuts.append(pointer(*path))
            shown[ELLIPSIS] = f"+{missing} key{'s' * (missing != 1)}"
        return shown


def summary_window(
    data: RawJSON, show: Callable[[Frame, JSON, tuple[str, ...]], Window], frame: Frame, value: Any = None
) -> Window | None:
    """Return a window with as much of a value as fits; None where not even a mark in its place fits.

    The search finds the space for plain JSON, which is fast to encode, and then widens it by what the shortest form
    saves.

    Args:
        data: the JSON of the value.
        show: makes a window from an abridged value.
        frame: the rest of the reply, with the budget.
        value: the decoded `data`, where available.
    """
    summary, tokens = Summary(data, frame.work, not frame.structured, value), frame.budget.tokens
    max_space, plain = min(len(data), tokens * 8), frame.without_tables()
    windows: dict[int, Window] = {}

    def cost(space: int) -> int:
        windows[space] = show(plain, *summary.abridge(space))
        return frame.cost(windows[space])

    space = find_largest(max_space, tokens * 3, cost, tokens, grain=max(1, tokens // 50))
    if space is None or not frame.policy.tables:
        return None if space is None else windows[space]
    best = windows[space]
    for _ in range(_MAX_WIDENINGS):
        shown = show(frame, *summary.abridge(space))
        spent = frame.cost(shown)
        if spent > tokens:
            break
        best, wider = shown, min(max_space, space * tokens // spent)
        if wider - space <= space // 10:
            break
        space = wider
    return best


def _share_out(shares: dict[str, int], left: int) -> None:
    """Replace each size by the member's share: its minimum, and an even part of what is left, the smallest first."""
    waiting = len(shares)
    for key, size in sorted(shares.items(), key=lambda share: share[1]):
        extra = max(0, min(size - _MIN_MEMBER_BYTES, left // waiting))
        shares[key] = min(size, _MIN_MEMBER_BYTES) + extra
        left -= extra
        waiting -= 1
