"""The words of a table: cells, column names and templates, written and read.

cell      empty is null; JSON, or a text that could not be taken for JSON
name      keys joined by dots; a key of odd characters is a JSON string; `.b` has the parent of the name before;
          `a?` is absent where its cell is empty, `a?.b` where all the cells below `a` are
template  text with `*` for the cell and `{name}` for another column's value; a backslash before what is meant as
          it stands
"""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

Path = tuple[str, ...]

# What is no key of the row stands under names that no JSON text can hold: lone surrogates. They are written with an @.
_SPECIAL = "\udc00"
KEY, KEYS, ITEM = _SPECIAL + "key", _SPECIAL + "keys", _SPECIAL + "item"
OBJECT = "#@object"
"""The first line of a table that is one object and has no lines."""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SEGMENT = re.compile(rf'({_QUOTED}|@(?:keys?|item|[0-9]+)|[^.,=*{{}}?#@&"\\\s\[]+(?: [^.,=*{{}}?#@&"\\\s\[]+)*)(\??)')
_PLAIN = re.compile(r'[^.,=*{}?#@&"\\\s\[\x00-\x1f]+(?: [^.,=*{}?#@&"\\\s\[\x00-\x1f]+)*')
_REFERENCE = re.compile(rf"\{{((?:{_QUOTED}|[^{{}}\"\\*])*)\}}")
_TEMPLATE = re.compile(rf"\\(.)|(\*)|{_REFERENCE.pattern}")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_UNSAFE = re.compile(r'["\[{#&]|\s|.*(?:[\x00-\x1f\x7f]|\s\Z)', re.DOTALL)
_SCALARS = frozenset({"true", "false", "null"})

_json = msgspec.json.Decoder().decode


class Reference(NamedTuple):
    path: Path


class Star:
    """Where the cell stands."""


STAR = Star()
Part = str | Reference | Star


def text_of(value: JSON) -> str:
    return jsonrpc.encode(value).decode()


def position(number: int) -> str:
    """The column of what stands at a place in rows that are lists."""
    return f"{_SPECIAL}{number}"


# Cells


def plain(text: str, delimiter: str) -> str:
    """The cell of a text in a column that holds nothing but text."""
    return text_of(text) if not text or delimiter in text or _UNSAFE.match(text) else text


def looks_like_json(text: str) -> bool:
    return text in _SCALARS or _NUMBER.fullmatch(text) is not None


def cell(value: JSON, delimiter: str) -> str:
    """The cell of any value but null."""
    if isinstance(value, str):
        return text_of(value) if looks_like_json(value) else plain(value, delimiter)
    return text_of(value)


def split(line: str, delimiter: str) -> list[str]:
    """A line's cells as they are written.

    Raises:
        ValueError: a JSON cell has no end.
    """
    if '"' not in line and "[" not in line and "{" not in line:
        return line.split(delimiter)
    cells, at = [], 0
    while True:
        end = _end(line, at) if line[at : at + 1] in ('"', "[", "{") else line.find(delimiter, at)
        if end < 0 or end == len(line):
            cells.append(line[at:])
            return cells
        if line[end] != delimiter:
            raise ValueError("a cell goes on behind its JSON")
        cells.append(line[at:end])
        at = end + 1


_BRACKETS = re.compile(rf"{_QUOTED}|[\[{{]|[\]}}]")


def _end(line: str, at: int) -> int:
    depth = 0
    for found in _BRACKETS.finditer(line, at):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    raise ValueError("a JSON cell has no end")


def read_cell(text: str) -> JSON:
    if text[:1] in ('"', "[", "{") or looks_like_json(text):
        return read_json(text)
    return text


def read_plain(text: str) -> str:
    if text[:1] != '"':
        return text
    read = read_json(text)
    assert isinstance(read, str)
    return read


def read_json(text: str) -> JSON:
    try:
        value: JSON = _json(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    return value


def is_json(text: str) -> bool:
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return False
    return True


# Names


class Namer:
    """Writes names one after the other: each group's mark once, and a dot for a parent just named."""

    def __init__(self, optional: Collection[Path]) -> None:
        self._unmarked = set(optional)
        self._parent: Path = ()

    def name(self, path: Path, absent: bool = False) -> str:
        base = self._parent if self._parent and path[: len(self._parent)] == self._parent else ()
        if len(path) == len(base):
            base = ()
        made = "." if base else ""
        for end in range(len(base) + 1, len(path)):
            made += _segment(path[end - 1])
            if path[:end] in self._unmarked:
                self._unmarked.discard(path[:end])
                made += "?"
            made += "."
        made += _segment(path[-1])
        self._parent = path[:-1]
        return made + "?" * absent

    def key(self, path: Path) -> str:
        """The name of a column that has been named; not to be taken for a lookup's number."""
        self._parent = path[:-1]
        name = reference(path, ())
        return text_of(name) if name.isdecimal() else name


def _segment(key: str) -> str:
    if key[:1] == _SPECIAL:
        return "@" + key[1:]
    return key if _PLAIN.fullmatch(key) else text_of(key)


def reference(path: Path, base: Path) -> str:
    if base and len(path) > len(base) and path[: len(base)] == base:
        return "." + ".".join(map(_segment, path[len(base) :]))
    return ".".join(map(_segment, path))


class Name(NamedTuple):
    path: Path
    absent: bool
    """Whether an empty cell means that there is no such key."""
    optional: list[Path]
    """Groups above it that are marked here."""
    end: int


def read_name(text: str, at: int, base: Path) -> Name:
    """The name that begins at a place.

    Raises:
        ValueError: there is none.
    """
    path: Path = ()
    marked: list[Path] = []
    if text[at : at + 1] == ".":
        path, at = base, at + 1
    while True:
        found = _SEGMENT.match(text, at)
        if found is None:
            raise ValueError(f"no column name: {text[at : at + 40]!r}")
        written, at = found[1], found.end()
        path = (*path, _SPECIAL + written[1:] if written[0] == "@" else read_plain(written))
        if text[at : at + 1] != ".":
            return Name(path, bool(found[2]), marked, at)
        if found[2]:
            marked.append(path)
        at += 1


# Templates


def write_template(parts: list[Part], of: Path, known: Collection[Path], delimiter: str) -> str:
    made = ""
    for part in parts:
        if isinstance(part, Reference):
            made += "{" + reference(part.path, of[:-1]) + "}"
        elif isinstance(part, str):
            made += _literal(part, of, known, delimiter)
        else:
            made += "*"
    return made


def _literal(text: str, of: Path, known: Collection[Path], delimiter: str) -> str:
    text = re.sub(r'([\\*"])', r"\\\1", text).replace(delimiter, "\\" + delimiter)
    if "{" not in text:
        return text
    return _REFERENCE.sub(lambda found: ("\\" if _resolve(found[1], of, known) else "") + found[0], text)


def _resolve(text: str, of: Path, known: Collection[Path]) -> Path | None:
    try:
        name = read_name(text, 0, of[:-1])
    except (ValueError, AssertionError):
        return None
    return name.path if name.end == len(text) and name.path in known else None


def read_template(text: str, of: Path, known: Collection[Path]) -> list[Part]:
    parts: list[Part] = []
    literal, at = "", 0
    for found in _TEMPLATE.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        path = _resolve(found[3], of, known) if found[3] is not None else None
        if found[1] is not None:
            literal += found[1]
        elif found[2] is None and path is None:
            literal += found[0]
        else:
            parts += [literal] * bool(literal) + [STAR if path is None else Reference(path)]
            literal = ""
    literal += text[at:]
    return parts + [literal] * bool(literal)


def fill(parts: list[Part], cell_text: str, value: Callable[[Path], str]) -> str:
    return "".join(
        part if isinstance(part, str) else cell_text if isinstance(part, Star) else value(part.path) for part in parts
    )
