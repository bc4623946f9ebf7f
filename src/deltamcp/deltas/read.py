"""Edits out of the text that `write` made of them."""

import json
import re
from collections.abc import Callable

import msgspec

from deltamcp.deltas.edits import (
    END,
    Copy,
    DeltaError,
    Edit,
    Everywhere,
    Hunk,
    Lines,
    Listed,
    Members,
    Picked,
    Placed,
    Put,
    Rows,
    Splices,
)
from deltamcp.deltas.write import is_bare
from deltamcp.values import JSON

_name = re.compile(r'[A-Za-z0-9_$@/][A-Za-z0-9_$@/:-]*…?|"(?:[^"\\]|\\.)*"').match
_string = re.compile(r'"(?:[^"\\]|\\.)*"').match
_hunk = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12})|(\+))?(?: (.*))?", re.DOTALL).fullmatch
_picked = re.compile(r"base\[([0-9]{1,12})\]").fullmatch
_index = re.compile(r"[0-9]{1,12}").match
_decode = msgspec.json.Decoder().decode
_end = json.JSONDecoder().raw_decode
_DEEPEST = 60
"""Levels of a delta, and names in a path; `diff` goes down 40."""


def read(text: str, base: JSON) -> Edit:
    """
    Raises:
        DeltaError: it is no delta of a value like the base.
    """
    return _read(text, base, first=True)


def _read(text: str, base: JSON, first: bool) -> Edit:
    """What is done to a whole base before the rest stands `first`, once."""
    lines = text.split("\n")
    line, rest = lines[0], "\n".join(lines[1:])
    if first and line.startswith("*"):
        cursor = _Cursor(line[1:])
        old, new = cursor.piece()
        cursor.end()
        return Everywhere(old, new, _read(rest, base, False) if rest else None)
    if first and line == "[base]" and isinstance(base, dict):
        return Listed(_read(rest, [base], False) if rest else None)
    picked = _picked(line) if first and isinstance(base, list) else None
    if picked is not None:
        if int(picked[1]) >= len(base):
            raise DeltaError(f"the base has no item {picked[1]}")
        return Picked(int(picked[1]), _read(rest, base[int(picked[1])], False) if rest else None)
    if text.startswith("="):
        try:
            return Put(_decode(text[1:]))
        except (msgspec.DecodeError, RecursionError):
            raise DeltaError("what comes in place of the base is not JSON") from None
    reader = _Reader(lines)
    if isinstance(base, str):
        edit: Edit = Splices(_Cursor(text).pieces()) if text.startswith('"') else Lines(reader.hunks(0))
        if isinstance(edit, Splices):
            return edit
    elif isinstance(base, list):
        cursor = _Cursor(reader.line(0) or "")
        edit = reader.table(cursor, -1)
    else:
        edit = reader.members(0)
    reader.end()
    return edit


class _Cursor:
    """A place in one line."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0

    def done(self) -> bool:
        return self.at == len(self.line)

    def end(self) -> None:
        if not self.done():
            raise self.unread()

    def unread(self) -> DeltaError:
        return DeltaError(f"a line of the delta cannot be read: {self.line[:80]!r}")

    def take(self, what: str) -> bool:
        if self.line.startswith(what, self.at):
            self.at += len(what)
            return True
        return False

    def need(self, what: str) -> None:
        if not self.take(what):
            raise self.unread()

    def name(self) -> str:
        found = _name(self.line, self.at)
        if found is None:
            raise self.unread()
        self.at = found.end()
        return _text(found[0]) if found[0].startswith('"') else found[0]

    def path(self) -> list[str]:
        names = [self.name()]
        while self.take("."):
            names.append(self.name())
            if len(names) > _DEEPEST:
                raise DeltaError("the delta is nested too deeply")
        return names

    def index(self) -> int | None:
        found = _index(self.line, self.at)
        if found is None:
            return None
        self.at = found.end()
        return int(found[0])

    def value(self, whole: bool) -> JSON:
        """Up to a comma, or the line's end where it has the line to itself."""
        if self.line[self.at : self.at + 1] in ('"', "{", "["):
            return self._json()
        end = -1 if whole else self.line.find(", ", self.at)
        token = self.line[self.at :] if end < 0 else self.line[self.at : end]
        self.at += len(token)
        if not token:
            raise self.unread()
        try:
            return _decode(token)
        except msgspec.DecodeError:
            if not is_bare(token):
                raise self.unread() from None
            return token

    def _json(self) -> JSON:
        try:
            _, end = _end(self.line, self.at)
            made: JSON = _decode(self.line[self.at : end])
        except (ValueError, RecursionError):
            raise self.unread() from None
        self.at = end
        return made

    def string(self) -> str:
        found = _string(self.line, self.at)
        if found is None:
            raise self.unread()
        self.at = found.end()
        return _text(found[0])

    def piece(self) -> tuple[str, str]:
        old = self.string()
        self.need(">")
        return old, self.string()

    def pieces(self) -> tuple[tuple[str, str], ...]:
        found = [self.piece()]
        while self.line.startswith(' "', self.at):
            self.at += 1
            found.append(self.piece())
        return tuple(found)


class _Reader:
    """Lines of a delta, by their depth."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def line(self, depth: int) -> str | None:
        """The next line, if it is this deep; it counts as read."""
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at]
        if not line.startswith(" " * depth) or line.startswith(" ", depth):
            return None
        if depth > _DEEPEST:
            raise DeltaError("the delta is nested too deeply")
        self._at += 1
        return line[depth:]

    def end(self) -> None:
        if self._at < len(self._lines):
            raise DeltaError(f"a line of the delta cannot be read: {self._lines[self._at][:80]!r}")

    def _each(self, depth: int, read: Callable[[_Cursor], None]) -> None:
        while (line := self.line(depth)) is not None:
            cursor = _Cursor(line)
            read(cursor)
            cursor.end()

    def members(self, depth: int) -> Members:
        made = Members({}, ())
        removed: list[str] = []

        def one(cursor: _Cursor) -> None:
            self._item(cursor, made.edits, removed, depth, whole=True)

        self._each(depth, one)
        if not made.edits and not removed:
            raise DeltaError("the delta has nothing where members should be")
        return Members(made.edits, tuple(removed))

    def _item(self, cursor: _Cursor, edits: dict[str, Edit], removed: list[str], depth: int, whole: bool) -> None:
        """One change of a member, or deeper."""
        if cursor.take("-"):
            *above, last = cursor.path()
            if above:
                _merge(edits, above, Members({}, (last,)))
            else:
                removed.append(last)
            return
        path = cursor.path()
        _merge(edits, path, self._change(cursor, depth, whole))

    def _change(self, cursor: _Cursor, depth: int, whole: bool) -> Edit:
        """What follows a name."""
        if cursor.take("="):
            return Put(cursor.value(whole))
        if cursor.take("~"):
            return Lines(self.hunks(depth + 1)) if cursor.done() else Splices(cursor.pieces())
        if not whole:
            if cursor.take(" like "):
                return Copy(cursor.name(), None)
            raise cursor.unread()
        if cursor.line.startswith("[", cursor.at):
            return self.table(cursor, depth)
        if cursor.take(" like "):
            return self._copy(cursor, depth)
        return self._inner(cursor, depth)

    def _copy(self, cursor: _Cursor, depth: int) -> Copy:
        source = cursor.name()
        if cursor.done():
            following = self._lines[self._at] if self._at < len(self._lines) else ""
            deeper = following.startswith(" " * (depth + 1))
            return Copy(source, self.members(depth + 1) if deeper else None)
        return Copy(source, self._inner(cursor, depth))

    def _inner(self, cursor: _Cursor, depth: int) -> Members:
        """Members on the same line, or on those below."""
        if cursor.done():
            return self.members(depth + 1)
        cursor.need(" ")
        edits: dict[str, Edit] = {}
        removed: list[str] = []
        while True:
            self._item(cursor, edits, removed, depth, whole=False)
            if not cursor.take(", "):
                return Members(edits, tuple(removed))

    def table(self, cursor: _Cursor, depth: int) -> Rows:
        if depth > _DEEPEST:
            raise DeltaError("the delta is nested too deeply")
        cursor.need("[")
        key = None
        if not cursor.take("]"):
            key = cursor.name()
            cursor.need("]")
        edits: dict[str, Edit] = {}
        removed: list[str] = []
        placed: list[Placed] = []

        def one(cursor: _Cursor) -> None:
            if cursor.take("-"):
                removed.append(cursor.name())
                while cursor.take(" -"):
                    removed.append(cursor.name())
            elif cursor.take(">"):
                row = cursor.name()
                placed.append(Placed(cursor.index() if cursor.take(" ") else None, row))
            elif cursor.take("+"):
                index = cursor.index()
                if cursor.take(" like "):
                    placed.append(Placed(index, self._copy(cursor, depth + 1)))
                else:
                    cursor.take(" ")
                    placed.append(Placed(index, Put(cursor.value(whole=True))))
            else:
                row = cursor.name()
                if row in edits:
                    raise cursor.unread()
                edits[row] = self._change(cursor, depth + 1, whole=True)

        if cursor.done():
            self._each(depth + 1, one)
        else:
            cursor.need(" ")
            one(cursor)
            cursor.end()
        return Rows(key, edits, tuple(removed), tuple(placed))

    def hunks(self, depth: int) -> tuple[Hunk, ...]:
        found: list[Hunk] = []
        while (line := self.line(depth)) is not None:
            if line == "$" or line.startswith("+"):
                self._at -= line != "$"
                found.append(Hunk(END, END, self._added(depth)))
                continue
            match = _hunk(line)
            if match is None:
                raise DeltaError(f"a line of the delta cannot be read: {line[:80]!r}")
            first, last, inserts, pieces = match.groups()
            start, stop = (int(first), int(first)) if inserts else (int(first) - 1, int(last or first))
            if pieces is not None:
                cursor = _Cursor(pieces)
                found.append(Hunk(start, stop, Splices(cursor.pieces())))
                cursor.end()
                continue
            found.append(Hunk(start, stop, self._added(depth)))
        if not found:
            raise DeltaError("the delta has nothing where lines should be")
        return tuple(found)

    def _added(self, depth: int) -> tuple[str, ...]:
        mark = " " * depth + "+"
        begin = self._at
        while self._at < len(self._lines) and self._lines[self._at].startswith(mark):
            self._at += 1
        return tuple(line[depth + 1 :] for line in self._lines[begin : self._at])


def _merge(edits: dict[str, Edit], path: list[str], edit: Edit) -> None:
    for name in reversed(path[1:]):
        edit = Members({name: edit}, ())
    if path[0] in edits:
        raise DeltaError(f"{path[0][:40]!r} changes twice")
    edits[path[0]] = edit


def _text(quoted: str) -> str:
    try:
        return str(_decode(quoted))
    except msgspec.DecodeError:
        raise DeltaError(f"not a JSON string: {quoted[:40]}") from None
