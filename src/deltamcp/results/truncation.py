"""Cuts a result to its budget: a text at a natural boundary, a list or an object to its first members, or to a summary.

Members share the space evenly, and what small ones leave goes to the large ones. An ellipsis marks what is cut, and
says how much; for programs, `cuts` has pointers to the cut values.

Of a single row or member that does not fit, the reply has a summary.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.results import document
from deltamcp.results.document import JSONKind, RawJSON, pointer
from deltamcp.results.window import ELLIPSIS, Frame, Unit, Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_CUT_SEARCH_SHARE = 0.25
"""The share of a part that may be given up for a better place to cut."""
_CUT_PATTERNS = (
    re.compile(r"\n(?=#{1,6} )"),
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…。！？][\"')\]]*\s"),
    re.compile(r"\s"),
)
"""Patterns after whose match a text may be cut, the best first. A heading must not end a part: the cut is before it."""
_LINE_END = re.compile(r"\n")
_COMBINING_MARK = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
"""Marks that belong to the character before them: accents, joiners, variants, skin tones."""


def find_largest(
    upper: int, guess: int, cost: Callable[[int], int], budget: int, grain: int = 1, lower: int = 0
) -> int | None:
    """Returns the largest number from `lower` to `upper` whose cost is within the budget; None where there is none.

    The search starts at `guess` and assumes that costs grow with the number. Where they do not, the number found still
    fits. With a `grain` above 1 the number found may be that much below the largest.
    """
    fits, fails = lower - 1, upper + 1
    at = max(lower, min(guess, upper))
    for step in range(64):
        spent = cost(at)
        if spent <= budget:
            fits = at
        else:
            fails = at
        if fails - fits <= (grain if fits >= lower else 1):
            break
        scaled = at * budget // spent if spent else upper
        # Notes have a fixed cost, which makes scaled guesses too small: the number doubles until one fails.
        at = max(scaled, 2 * at) if fails > upper else scaled if step < 6 else (fits + fails) // 2
        at = max(fits + grain, min(at, fails - grain)) if fails - fits > 2 * grain else (fits + fails) // 2
        at = max(at, lower, fits + 1)
    return fits if fits >= lower else None


def find_end(text: str, begin: int, length: int) -> int:
    """Returns the end of a part that starts at `begin`: at most `length` characters on, at the best boundary."""
    last = begin + length
    if last >= len(text):
        return len(text)
    reach = max(begin + 1, last - int(length * _CUT_SEARCH_SHARE))
    for pattern in _CUT_PATTERNS:
        end = 0
        for match in pattern.finditer(text, reach, last):
            end = match.end()
        if end:
            return end
    while last > reach and _COMBINING_MARK.match(text, last):
        last -= 1
    return last


def find_tail_start(text: str, first: int) -> int:
    """Returns the start of the part that shows the end of a text: `first`, or the first line that starts soon after."""
    if first >= len(text):
        return len(text)
    line = text.find("\n", max(0, first - 1), first + int((len(text) - first) * _CUT_SEARCH_SHARE))
    return line + 1 if line >= 0 else first


def text_window(text: str, begin: int, unit: Unit, frame: Frame, tail: float = 0.0, until: int | None = None) -> Window:
    """Returns a window with as much of a text as fits from `begin` on, at least one character.

    With a `tail`, that share of the window shows the end of the text. The window ends at `until` if not before.
    """
    rest = (until or len(text)) - begin
    windows: dict[int, Window] = {}

    def cost(chars: int) -> int:
        tail_chars = int(chars * tail)
        end = find_end(text, begin, chars - tail_chars) if chars < rest else begin + rest
        tail_start = (
            max(end, find_tail_start(text, len(text) - tail_chars)) if tail_chars and chars < rest else len(text)
        )
        shown = text[begin:end]
        value = shown if frame.structured and unit == "characters" else UNSET
        window = Window(unit, begin, end, len(text), shown, tail=text[tail_start:], form="text", value=value)
        windows[chars] = frame.add_note(window)
        return frame.cost(windows[chars])

    budget = frame.budget.tokens
    if until is not None and cost(rest) <= budget:
        return windows[rest]
    grain = max(1, budget // 25)
    chars = find_largest(min(rest, frame.budget.max_chars), budget * 3, cost, budget, grain, lower=min(1, rest))
    # A note with a very long name may leave no space for a single character.
    return _extend_by_lines(text, windows[min(1, rest) if chars is None else chars], frame)


def _extend_by_lines(text: str, window: Window, frame: Frame) -> Window:
    """Adds the further lines that fit, because the search stops a little early; but not past a better boundary."""
    better = text.startswith("#", window.end) or window.text.endswith(("\n\n", "\n\r\n"))
    if better or not window.text.endswith("\n"):
        return window
    budget = frame.budget.tokens
    last = min(len(text) - len(window.tail), window.end + (budget - frame.cost(window)) * 8)
    ends = [window.end, *(line.end() for line in _LINE_END.finditer(text, window.end, last))]
    windows = {0: window}

    def cost(lines: int) -> int:
        shown = text[window.start : ends[lines]]
        value = UNSET if window.value is UNSET else shown
        windows[lines] = frame.add_note(replace(window, end=ends[lines], text=shown, value=value))
        return frame.cost(windows[lines])

    return windows[find_largest(len(ends) - 1, 1, cost, budget) or 0]


# The whole

_DIRECT_BYTES_PER_TOKEN = 24
"""Values of at most this size per token of the budget are encoded whole; of larger ones, an excerpt first."""
_EXCERPT_BYTES_PER_TOKEN = 8
"""The size of the first excerpt that is encoded; where the value is hopeless, little more work was done."""
_EXCERPT_FACTOR = 2
"""How many times its share of the whole an excerpt may cost: a lookup needs values that repeat."""
_KEYS_PER_STEP = 4
_UNITS_PER_TOKEN = 2
"""The most rows, or members of an object, that a token can stand for: in a table, every line break is a token."""


def whole_window(data: bytes, rows: Sequence[str] | None, value: Any, frame: Frame) -> Window | None:
    """Returns a window with a whole JSON value; None where it is too large for one.

    Args:
        rows: The path to the rows; None where there are none.
        value: The decoded `data`, where available.
    """
    if not _may_fit(data, rows, value, frame):
        return None
    if document.estimate_values(data, frame.work) > document.MAX_VALUES:
        return None
    return frame.make_window("whole", document.decode_counted(data, frame.work), 0, 1, 1)


def _may_fit(data: bytes, rows: Sequence[str] | None, value: Any, frame: Frame) -> bool:
    """Whether a value is not so large that its table cannot fit.

    How much a table saves shows only when it is written, so larger and larger excerpts of a large value are
    written.
    """
    budget, work = frame.budget.tokens, frame.work
    if len(data) <= budget * _DIRECT_BYTES_PER_TOKEN:
        return True
    if not frame.has_tables:
        return False
    count = _largest_object(value, work) if rows is None else len(document.rows_at(data, rows, value, work))
    if count > budget * _UNITS_PER_TOKEN:
        return False
    size = budget * _EXCERPT_BYTES_PER_TOKEN
    while size < len(data):
        part = document.excerpt(data, size, work)
        shown = None if rows is None else document.LazyItems.at(part, rows)
        further_rows = 0 if shown is None else count - len(shown)
        text = frame.make_window("whole", part, 0, 1, 1).text
        cost = tokens.count(text, frame.policy.model)
        if cost > (budget - further_rows) * _EXCERPT_FACTOR or len(text) > frame.budget.max_chars * _EXCERPT_FACTOR:
            return False
        size *= 2 if cost > budget else 4
    return True


def _largest_object(value: Any, work: Work) -> int:
    """Returns the most members of the value, or of an object in it."""
    if not isinstance(value, dict):
        return 0
    work.spend(len(value) // _KEYS_PER_STEP)
    return max(len(value), *(len(member) for member in value.values() if isinstance(member, dict)), 0)


# A part

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
        """Abridges the value to about `space` bytes; a value that is small enough stays whole."""
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
        """Returns the items that fit whole; where not even the first does, a part of it."""
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
    """Returns a window with as much of a value as fits; None where not even a mark in its place fits.

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


def show_summary(frame: Frame, shown: JSON, cuts: tuple[str, ...]) -> Window:
    """Makes the window of `summary_window` from a part of the whole value."""
    return frame.make_window("whole", shown, 0, 0, 1, cuts)


def _share_out(shares: dict[str, int], left: int) -> None:
    """Replaces each size by the member's share: its minimum, and an even part of what is left, the smallest first."""
    waiting = len(shares)
    for key, size in sorted(shares.items(), key=lambda share: share[1]):
        extra = max(0, min(size - _MIN_MEMBER_BYTES, left // waiting))
        shares[key] = min(size, _MIN_MEMBER_BYTES) + extra
        left -= extra
        waiting -= 1


_MEMBERS_PER_STEP = 8
_BYTES_PER_TOKEN = 3
"""A first guess of the size of JSON that fits; the search corrects it."""
_MAX_PAIR_BYTES_PER_TOKEN = 200
"""Two rows of more JSON are not tried as a table."""


class Envelope(Struct, frozen=True):
    """What is around the rows of a result: at each level an object, and the name under which it has the rows."""

    levels: tuple[tuple[str, dict[str, JSON]], ...] = ()
    path: tuple[str, ...] = ()
    """The path to the rows."""
    cuts: tuple[str, ...] = ()
    """Pointers to what is cut beside the rows."""

    def around(self, rows: JSON) -> JSON:
        """Returns the value with the rows in it."""
        for name, members in reversed(self.levels):
            rows = {**members, name: rows}
        return rows


def envelope_of(data: RawJSON, path: Sequence[str], space: int, work: Work) -> Envelope:
    """Returns what is around rows.

    The members beside the rows are abridged to `space` bytes, at each level to half of what the level above has.
    """
    levels: list[tuple[str, dict[str, JSON]]] = []
    cuts: list[str] = []
    for depth, name in enumerate(path):
        if document.kind(data) == "list":  # a declared path through a list: only the one item is shown
            data = document.at(data, [name], work)
            continue
        members = document.members(data, work)
        beside = {key: value for key, value in members.items() if key != name}
        value, inner_cuts = Summary(jsonrpc.encode(beside), work).abridge(space)
        assert isinstance(value, dict), "an object is abridged to an object"
        names = [key for key in members if key in value or key == name]
        left_out = {key: mark for key, mark in value.items() if key not in members}
        levels.append((name, {key: value.get(key) for key in names} | left_out))
        cuts += [pointer(*path[:depth]) + cut for cut in inner_cuts]
        data, space = members[name], space // 2
    return Envelope(tuple(levels), tuple(path), tuple(cuts))


BARE_ROWS = Envelope()
"""The envelope of rows that are the whole value."""


def rows_window(units: Sequence[RawJSON], start: int, envelope: Envelope, frame: Frame) -> Window | None:
    """Returns a window with as many rows as fit, at least one; None where not even a summary of the first row fits."""
    decoded: list[JSON] = []

    def first(count: int) -> Window:
        further = units[start + len(decoded) : start + count]
        decoded.extend(document.decode_counted(unit, frame.work) for unit in further)
        rows: JSON = decoded[:count]
        value = envelope.around(rows) if envelope.levels else rows
        return frame.make_window("rows", value, start, start + count, len(units), envelope.cuts)

    def window_of_part(frame: Frame, value: JSON, cuts: tuple[str, ...]) -> Window:
        inside = (*envelope.cuts, *(pointer(*envelope.path, start) + cut for cut in cuts))
        return frame.make_window("rows", envelope.around([value]), start, start + 1, len(units), inside)

    max_count = min(len(units) - start, frame.policy.page_size or len(units))
    if max_count <= 0:
        return first(0)
    return _largest_window(max_count, (units[at] for at in range(start, len(units))), first, frame) or summary_window(
        units[start], window_of_part, frame
    )


def members_window(units: Mapping[str, RawJSON], start: int, frame: Frame) -> Window | None:
    """Returns a window with as many members of an object as fit; None where a key by itself is too long."""
    frame.work.spend(start // _MEMBERS_PER_STEP)
    keys: list[str] = []
    further_keys = islice(units, start, None)
    max_count = max(0, len(units) - start)

    def key_at(place: int) -> str:
        keys.extend(islice(further_keys, max(0, place + 1 - len(keys))))
        return keys[place]

    def first(count: int) -> Window:
        chosen = map(key_at, range(count))
        value = {key: document.decode_counted(units[key], frame.work) for key in chosen}
        return frame.make_window("keys", value, start, start + count, len(units))

    def window_of_part(frame: Frame, value: JSON, cuts: tuple[str, ...]) -> Window:
        inside = tuple(pointer(keys[0]) + cut for cut in cuts)
        return frame.make_window("keys", {keys[0]: value}, start, start + 1, len(units), inside)

    if not max_count:
        return first(0)
    sized = (units[key_at(place)] for place in range(max_count))
    return _largest_window(max_count, sized, first, frame) or summary_window(units[keys[0]], window_of_part, frame)


def _largest_window(
    max_count: int, units: Iterable[RawJSON], first: Callable[[int], Window], frame: Frame
) -> Window | None:
    windows: dict[int, Window] = {}

    def cost(count: int) -> int:
        windows[count] = first(count)
        return frame.cost(windows[count])

    tokens, size, guess, pair_size = frame.budget.tokens, 0, 0, 0
    for index, unit in enumerate(units):  # as many as the first window then encodes, which counts them
        size += len(unit) + 1
        pair_size = size if index < 2 else pair_size
        if size <= tokens * _BYTES_PER_TOKEN:
            guess = index + 1
        elif index:
            break
    # One row is JSON and often costs more than a table of two, so that a search from one row on would find none.
    lower = 2 if frame.has_tables and max_count > 1 and pair_size <= tokens * _MAX_PAIR_BYTES_PER_TOKEN else 1
    count = find_largest(max_count, guess, cost, tokens, lower=lower)
    if count is None and lower > 1 and cost(1) <= tokens:
        count = 1
    return None if count is None else windows[count]
