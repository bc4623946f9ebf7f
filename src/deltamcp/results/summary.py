"""A value abridged to so many bytes: every key while there is room, small values whole, large ones begun.

Members share the room evenly, and what a small one leaves goes to the large ones. What is cut says how much is missing,
behind an ellipsis; where, for programs, is in `cuts`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from deltamcp.results import document
from deltamcp.results.budget import find_largest
from deltamcp.results.document import JSONKind, RawJSON
from deltamcp.results.notes import ELLIPSIS
from deltamcp.results.pointer import pointer
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON

_MAX_DEPTH = 24
"""Below it nothing is opened: nobody reads so deep in a summary."""
_MIN_MEMBER_BYTES = 18
"""The least a member costs besides its key: quotes, colon, comma, and a mark."""
_PROSE = re.compile(r"(?=[\s\S]{1000})\S{0,200}\s")
"""Long, and for a reader: an address, a key or a cursor has no blanks."""
_MAX_WIDENINGS = 3
_ALWAYS_WHOLE_BYTES: dict[JSONKind, int] = {"list": 2, "object": 2, "text": 12, "scalar": 31}
"""Bytes of what is whole in any room: a mark in its place would be no shorter."""


class AbridgedValue(NamedTuple):
    value: JSON
    cuts: tuple[str, ...]
    """Pointers to what is not whole, from the outermost on."""


class Summary:
    """A value to be abridged, perhaps to several sizes: what was looked into once is not looked into again."""

    def __init__(self, data: RawJSON, marked: bool = True, value: Any = None) -> None:
        """Without marks only lists and long prose are cut: programs take keys and addresses for what they are."""
        self._data = data
        self._marked = marked
        live = document.LazyMembers.from_dict(value)
        self._members: dict[tuple[str | int, ...], Mapping[str, RawJSON]] = {} if live is None else {(): live}

    def abridge(self, space: int) -> AbridgedValue:
        """In about `room` bytes; whole where that is enough. In no room at all only what it is remains."""
        cuts: list[str] = []
        return AbridgedValue(self._abridge_value(self._data, space, (), cuts), tuple(cuts))

    def _abridge_value(self, data: RawJSON, space: int, path: tuple[str | int, ...], cuts: list[str]) -> JSON:
        size, kind = len(data), document.kind(data)
        if size <= space or size <= _ALWAYS_WHOLE_BYTES[kind]:
            return document.decode(data)
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
        # An escape or a character beyond ASCII takes more room than one.
        keep = max(0, (space - 16) * len(text) // size)
        return f"{text[:keep]}{ELLIPSIS} +{len(text) - keep} chars"

    def _abridge_list(self, data: RawJSON, space: int, path: tuple[str | int, ...], cuts: list[str]) -> JSON:
        """The first items: whole while they fit, the next one begun."""
        items = document.items(data)
        left = space - 12
        shown: list[JSON] = []
        for place, item in enumerate(items):
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
            members = self._members[path] = document.members(data)
        left = space - 2
        shares: dict[str, int] = {}
        for key, value in members.items():
            least = len(key) + 4 + min(len(value), _MIN_MEMBER_BYTES)
            if least > left and self._marked:
                break
            shares[key] = len(value)
            left -= least
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
    """As much of a value as fits, where `show` makes a window of it; None where not even a mark in its place does.

    `value` is the value itself, where it is at hand.

    The room is found for JSON, which is soon made, and widened by what the shortest form leaves of it.
    """
    summary, tokens = Summary(data, not frame.structured, value), frame.budget.tokens
    most, plain = min(len(data), tokens * 8), frame.without_tables()
    made: dict[int, Window] = {}

    def cost(space: int) -> int:
        made[space] = show(plain, *summary.abridge(space))
        return frame.cost(made[space])

    space = find_largest(most, tokens * 3, cost, tokens, grain=max(1, tokens // 50))
    if space is None or not frame.policy.tables:
        return None if space is None else made[space]
    best = made[space]
    for _ in range(_MAX_WIDENINGS):
        shown = show(frame, *summary.abridge(space))
        spent = frame.cost(shown)
        if spent > tokens:
            break
        best, wider = shown, min(most, space * tokens // spent)
        if wider - space <= space // 10:
            break
        space = wider
    return best


def _share_out(shares: dict[str, int], left: int) -> None:
    """Sizes become shares: everyone's least, and what is left evenly, the small ones first."""
    waiting = len(shares)
    for key, size in sorted(shares.items(), key=lambda share: share[1]):
        extra = max(0, min(size - _MIN_MEMBER_BYTES, left // waiting))
        shares[key] = min(size, _MIN_MEMBER_BYTES) + extra
        left -= extra
        waiting -= 1
