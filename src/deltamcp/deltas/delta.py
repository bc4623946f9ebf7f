"""Deltas as text: `make_delta` writes the changes between two values, `apply_delta` reads and applies them."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from deltamcp.deltas.diff import CostedEdit, changed_middle, diff, most_similar
from deltamcp.deltas.edits import (
    END,
    Copy,
    Edit,
    Hunk,
    InvalidDeltaError,
    LineEdits,
    MemberEdits,
    PickItem,
    PlacedRow,
    Put,
    ReplaceEverywhere,
    RowEdits,
    Splices,
    WrapInList,
    apply_edit,
    replace_everywhere,
    short_row_names,
)
from deltamcp.deltas.root import root_of
from deltamcp.deltas.writer import is_bare, to_json, write_edit
from deltamcp.values import JSON
from deltamcp.work import Work, unlimited_work

_match_changed_line = re.compile(r"Changed(?:; full: .*| since [0-9a-f]+, now [0-9a-f]+:)").fullmatch
"""The line that `results.changes.changed_text` writes above the changes in a reply. No delta begins with one."""
_MIN_REPEATS = 3
"""Strings in which the same piece must change before one `*` line replaces it in all of them."""
_MAX_COST_SHARE = 0.8
"""The largest share of the delta's characters that a delta with such a line may take."""
_MAX_REVISED_CHARS = 20_000
"""Characters of the longest delta that is searched for repeated changes."""
_MAX_STRAY_RATIO = 3
"""Occurrences of a piece per change of it, at most: the delta has to change the other occurrences back."""


def make_delta(
    base: JSON, new: JSON, keys: Iterable[str] = (), *, self_contained: bool = False, work: Work | None = None
) -> str:
    """Returns the changes from `base` to `new` as text, "" if there are none. The module `writer` shows the format.

    Args:
        keys: members that identify the rows of a table. If none of them does, `make_delta` looks for one that does.
        self_contained: for a reader that may not have seen all of the base: the delta neither copies parts of the base
            nor quotes pieces of its strings.
        work: counts the steps; without it the values are one's own, and there is no limit.
    """
    keys, work = tuple(keys), unlimited_work() if work is None else work
    costed = (None if self_contained else _diff_item_and_list(base, new, keys, work)) or diff(
        base, new, keys, work=work, self_contained=self_contained
    )
    if costed is None:
        return ""
    return write_edit(costed[0] if self_contained else _factor_out_repeats(base, new, keys, costed, work))


def apply_delta(base: JSON, text: str, root: str | None = None, *, work: Work | None = None) -> JSON:
    """Returns the new value: the base with the changes that `make_delta` wrote.

    Args:
        text: the delta as the server sent it, with or without the line above the changes.
        root: the root that the new value must have, as the reply's `_meta` states it.
        work: counts what the delta repeats; without it the values are one's own, and there is no limit.

    Raises:
        WorkLimitError: the new value is too large.
        InvalidDeltaError: the text is not a delta of this base, or the new value has another root.
    """
    head, _, rest = text.partition("\n")
    if _match_changed_line(head):
        text = rest
    try:
        new = apply_edit(base, parse_edit(text, base), work or unlimited_work()) if text else base
    except InvalidDeltaError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidDeltaError(f"the delta cannot be read: {type(error).__name__}") from None
    if root is not None and root_of(new) != root:
        raise InvalidDeltaError("the delta was made for another base")
    return new


def _diff_item_and_list(base: Any, new: Any, keys: tuple[str, ...], work: Work) -> CostedEdit | None:
    """Diffs an object that becomes a list of objects, or a list that becomes one of its items; None for other pairs."""
    if type(base) is dict and type(new) is list:
        inner = diff([base], new, keys, work=work)
        return (WrapInList(None), 6) if inner is None else _wrapped_edit(WrapInList(inner[0]), inner)
    if type(base) is list and type(new) is dict:
        work.spend(len(base) * (1 + len(new)))
    if type(base) is list and type(new) is dict and (place := most_similar(new, base)) is not None:
        inner = diff(base[place], new, keys, work=work)
        return (PickItem(place, None), 8) if inner is None else _wrapped_edit(PickItem(place, inner[0]), inner)
    return None


def _wrapped_edit(edit: Edit, inner: CostedEdit) -> CostedEdit | None:
    return None if isinstance(inner[0], Put) else (edit, inner[1] + 8)


def _factor_out_repeats(base: JSON, new: JSON, keys: tuple[str, ...], costed: CostedEdit, work: Work) -> Edit:
    """Returns the edit, or a shorter one that first replaces a piece in every string."""
    edit, cost = costed
    if cost > _MAX_REVISED_CHARS:
        return edit
    for (old, text), times in Counter(_changed_pieces(base, edit)).most_common(1):
        if (
            times < _MIN_REPEATS
            or len(text) > 10 * len(old)
            or to_json(base).count(to_json(old)[1:-1]) > _MAX_STRAY_RATIO * times
        ):
            continue
        changed = replace_everywhere(base, old, text)
        rest = diff(changed, new, keys, work=work)
        if rest is None:
            return ReplaceEverywhere(old, text, None)
        if not isinstance(rest[0], Put) and rest[1] + len(old) + len(text) < _MAX_COST_SHARE * cost:
            return ReplaceEverywhere(old, text, rest[0])
    return edit


def _changed_pieces(base: Any, edit: Edit) -> Iterator[tuple[str, str]]:
    """Yields the old and the new text of every piece of a string that the edit changes."""
    match edit:
        case Put(value):
            if isinstance(value, str) and isinstance(base, str) and (piece := changed_middle(base, value)):
                yield piece
        case Splices(pieces):
            yield from pieces
        case LineEdits(hunks):
            for _, _, new in hunks:
                if isinstance(new, Splices):
                    yield from new.pieces
        case MemberEdits(edits):
            for name, change in edits.items():
                yield from _changed_pieces(base.get(name), change)
        case RowEdits(key, edits) if edits:
            rows = None if key is None else dict(zip(short_row_names(base, key), base, strict=True))
            for name, change in edits.items():
                yield from _changed_pieces(base[int(name)] if rows is None else rows[name], change)


_match_name = re.compile(r'[A-Za-z0-9_$@/][A-Za-z0-9_$@/:-]*…?|"(?:[^"\\]|\\.)*"').match
_match_string = re.compile(r'"(?:[^"\\]|\\.)*"').match
_match_hunk = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12})|(\+))?(?: (.*))?", re.DOTALL).fullmatch
_match_picked = re.compile(r"base\[([0-9]{1,12})\]").fullmatch
_match_index = re.compile(r"[0-9]{1,12}").match
_decode_json = msgspec.json.Decoder().decode
_scan_json = json.JSONDecoder().raw_decode
_MAX_DEPTH = 60
"""Levels of a delta, and names in a path, at most; `diff` descends 40."""


def parse_edit(text: str, base: JSON) -> Edit:
    """Parses the delta of a base.

    Raises:
        InvalidDeltaError: the text is not a delta of a value like the base.
    """
    return _parse_edit(text, base, first=True)


def _parse_edit(text: str, base: JSON, first: bool) -> Edit:
    """Parses an edit. Only the `first` one may begin with a line that changes the whole base before the rest."""
    lines = text.split("\n")
    line, rest = lines[0], "\n".join(lines[1:])
    if first and line.startswith("*"):
        cursor = _LineCursor(line[1:])
        old, new = cursor.read_piece()
        cursor.expect_end()
        return ReplaceEverywhere(old, new, _parse_edit(rest, base, False) if rest else None)
    if first and line == "[base]" and isinstance(base, dict):
        return WrapInList(_parse_edit(rest, [base], False) if rest else None)
    picked = _match_picked(line) if first and isinstance(base, list) else None
    if picked is not None:
        if int(picked[1]) >= len(base):
            raise InvalidDeltaError(f"the base has no item {picked[1]}")
        return PickItem(int(picked[1]), _parse_edit(rest, base[int(picked[1])], False) if rest else None)
    if text.startswith("="):
        try:
            return Put(_decode_json(text[1:]))
        except (msgspec.DecodeError, RecursionError):
            raise InvalidDeltaError("the value in place of the base is not JSON") from None
    reader = _DeltaParser(lines)
    if isinstance(base, str):
        edit: Edit = (
            Splices(_LineCursor(text).read_pieces()) if text.startswith('"') else LineEdits(reader.parse_hunks(0))
        )
        if isinstance(edit, Splices):
            return edit
    elif isinstance(base, list):
        cursor = _LineCursor(reader.next_line(0) or "")
        edit = reader.parse_rows(cursor, -1)
    else:
        edit = reader.parse_members(0)
    reader.expect_end()
    return edit


class _LineCursor:
    """Reads one line of a delta from left to right."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0

    def is_at_end(self) -> bool:
        return self.at == len(self.line)

    def expect_end(self) -> None:
        if not self.is_at_end():
            raise self.unreadable_error()

    def unreadable_error(self) -> InvalidDeltaError:
        return InvalidDeltaError(f"a line of the delta cannot be read: {self.line[:80]!r}")

    def take(self, token: str) -> bool:
        """Moves past the token if it comes next; return whether it did."""
        if self.line.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.unreadable_error()

    def read_name(self) -> str:
        found = _match_name(self.line, self.at)
        if found is None:
            raise self.unreadable_error()
        self.at = found.end()
        return _parse_string(found[0]) if found[0].startswith('"') else found[0]

    def read_path(self) -> list[str]:
        names = [self.read_name()]
        while self.take("."):
            names.append(self.read_name())
            if len(names) > _MAX_DEPTH:
                raise InvalidDeltaError("the delta is nested too deeply")
        return names

    def read_index(self) -> int | None:
        found = _match_index(self.line, self.at)
        if found is None:
            return None
        self.at = found.end()
        return int(found[0])

    def read_value(self, whole_line: bool) -> JSON:
        """Reads a value up to the next comma, or to the end of the line if it has the `whole_line`."""
        if self.line[self.at : self.at + 1] in ('"', "{", "["):
            return self._read_json()
        end = -1 if whole_line else self.line.find(", ", self.at)
        token = self.line[self.at :] if end < 0 else self.line[self.at : end]
        self.at += len(token)
        if not token:
            raise self.unreadable_error()
        try:
            return _decode_json(token)
        except msgspec.DecodeError:
            if not is_bare(token):
                raise self.unreadable_error() from None
            return token

    def _read_json(self) -> JSON:
        try:
            _, end = _scan_json(self.line, self.at)
            value: JSON = _decode_json(self.line[self.at : end])
        except (ValueError, RecursionError):
            raise self.unreadable_error() from None
        self.at = end
        return value

    def read_string(self) -> str:
        found = _match_string(self.line, self.at)
        if found is None:
            raise self.unreadable_error()
        self.at = found.end()
        return _parse_string(found[0])

    def read_piece(self) -> tuple[str, str]:
        old = self.read_string()
        self.expect(">")
        return old, self.read_string()

    def read_pieces(self) -> tuple[tuple[str, str], ...]:
        pieces = [self.read_piece()]
        while self.line.startswith(' "', self.at):
            self.at += 1
            pieces.append(self.read_piece())
        return tuple(pieces)


class _DeltaParser:
    """Parses the lines of a delta, which are nested by their indentation."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def next_line(self, depth: int) -> str | None:
        """Returns the next line without its indentation, and move past it, if it has this depth; None otherwise."""
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at]
        if not line.startswith(" " * depth) or line.startswith(" ", depth):
            return None
        if depth > _MAX_DEPTH:
            raise InvalidDeltaError("the delta is nested too deeply")
        self._at += 1
        return line[depth:]

    def expect_end(self) -> None:
        if self._at < len(self._lines):
            raise InvalidDeltaError(f"a line of the delta cannot be read: {self._lines[self._at][:80]!r}")

    def _parse_lines(self, depth: int, parse_line: Callable[[_LineCursor], None]) -> None:
        while (line := self.next_line(depth)) is not None:
            cursor = _LineCursor(line)
            parse_line(cursor)
            cursor.expect_end()

    def parse_members(self, depth: int) -> MemberEdits:
        edits: dict[str, Edit] = {}
        removed: list[str] = []

        def parse_line(cursor: _LineCursor) -> None:
            self._parse_item(cursor, edits, removed, depth, whole_line=True)

        self._parse_lines(depth, parse_line)
        if not edits and not removed:
            raise InvalidDeltaError("the delta has nothing where members should be")
        return MemberEdits(edits, tuple(removed))

    def _parse_item(
        self, cursor: _LineCursor, edits: dict[str, Edit], removed: list[str], depth: int, whole_line: bool
    ) -> None:
        """Parses one change of a member, or of a member within it."""
        if cursor.take("-"):
            *above, last = cursor.read_path()
            if above:
                _merge(edits, above, MemberEdits({}, (last,)))
            else:
                removed.append(last)
            return
        path = cursor.read_path()
        _merge(edits, path, self._parse_change(cursor, depth, whole_line))

    def _parse_change(self, cursor: _LineCursor, depth: int, whole_line: bool) -> Edit:
        """Parses the change that follows a name."""
        if cursor.take("="):
            return Put(cursor.read_value(whole_line))
        if cursor.take("~"):
            return LineEdits(self.parse_hunks(depth + 1)) if cursor.is_at_end() else Splices(cursor.read_pieces())
        if not whole_line:
            if cursor.take(" like "):
                return Copy(cursor.read_name(), None)
            raise cursor.unreadable_error()
        if cursor.line.startswith("[", cursor.at):
            return self.parse_rows(cursor, depth)
        if cursor.take(" like "):
            return self._parse_copy(cursor, depth)
        return self._parse_inner_members(cursor, depth)

    def _parse_copy(self, cursor: _LineCursor, depth: int) -> Copy:
        source = cursor.read_name()
        if cursor.is_at_end():
            following = self._lines[self._at] if self._at < len(self._lines) else ""
            deeper = following.startswith(" " * (depth + 1))
            return Copy(source, self.parse_members(depth + 1) if deeper else None)
        return Copy(source, self._parse_inner_members(cursor, depth))

    def _parse_inner_members(self, cursor: _LineCursor, depth: int) -> MemberEdits:
        """Parses changes of members on the same line, or on the lines below."""
        if cursor.is_at_end():
            return self.parse_members(depth + 1)
        cursor.expect(" ")
        edits: dict[str, Edit] = {}
        removed: list[str] = []
        while True:
            self._parse_item(cursor, edits, removed, depth, whole_line=False)
            if not cursor.take(", "):
                return MemberEdits(edits, tuple(removed))

    def parse_rows(self, cursor: _LineCursor, depth: int) -> RowEdits:
        if depth > _MAX_DEPTH:
            raise InvalidDeltaError("the delta is nested too deeply")
        cursor.expect("[")
        key = None
        if not cursor.take("]"):
            key = cursor.read_name()
            cursor.expect("]")
        edits: dict[str, Edit] = {}
        removed: list[str] = []
        placed: list[PlacedRow] = []

        def parse_line(cursor: _LineCursor) -> None:
            if cursor.take("-"):
                removed.append(cursor.read_name())
                while cursor.take(" -"):
                    removed.append(cursor.read_name())
            elif cursor.take(">"):
                row = cursor.read_name()
                placed.append(PlacedRow(cursor.read_index() if cursor.take(" ") else None, row))
            elif cursor.take("+"):
                index = cursor.read_index()
                if cursor.take(" like "):
                    placed.append(PlacedRow(index, self._parse_copy(cursor, depth + 1)))
                else:
                    cursor.take(" ")
                    placed.append(PlacedRow(index, Put(cursor.read_value(whole_line=True))))
            else:
                row = cursor.read_name()
                if row in edits:
                    raise cursor.unreadable_error()
                edits[row] = self._parse_change(cursor, depth + 1, whole_line=True)

        if cursor.is_at_end():
            self._parse_lines(depth + 1, parse_line)
        else:
            cursor.expect(" ")
            parse_line(cursor)
            cursor.expect_end()
        return RowEdits(key, edits, tuple(removed), tuple(placed))

    def parse_hunks(self, depth: int) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while (line := self.next_line(depth)) is not None:
            if line == "$" or line.startswith("+"):
                self._at -= line != "$"
                hunks.append(Hunk(END, END, self._take_added_lines(depth)))
                continue
            match = _match_hunk(line)
            if match is None:
                raise InvalidDeltaError(f"a line of the delta cannot be read: {line[:80]!r}")
            first, last, inserts, pieces = match.groups()
            start, stop = (int(first), int(first)) if inserts else (int(first) - 1, int(last or first))
            if pieces is not None:
                cursor = _LineCursor(pieces)
                hunks.append(Hunk(start, stop, Splices(cursor.read_pieces())))
                cursor.expect_end()
                continue
            hunks.append(Hunk(start, stop, self._take_added_lines(depth)))
        if not hunks:
            raise InvalidDeltaError("the delta has nothing where lines should be")
        return tuple(hunks)

    def _take_added_lines(self, depth: int) -> tuple[str, ...]:
        mark = " " * depth + "+"
        begin = self._at
        while self._at < len(self._lines) and self._lines[self._at].startswith(mark):
            self._at += 1
        return tuple(line[depth + 1 :] for line in self._lines[begin : self._at])


def _merge(edits: dict[str, Edit], path: list[str], edit: Edit) -> None:
    for name in reversed(path[1:]):
        edit = MemberEdits({name: edit}, ())
    if path[0] in edits:
        raise InvalidDeltaError(f"the delta changes {path[0][:40]!r} twice")
    edits[path[0]] = edit


def _parse_string(quoted: str) -> str:
    try:
        return str(_decode_json(quoted))
    except msgspec.DecodeError:
        raise InvalidDeltaError(f"not a JSON string: {quoted[:40]}") from None
