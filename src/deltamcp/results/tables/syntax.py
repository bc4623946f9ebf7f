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

ColumnPath = tuple[str, ...]

# What is no key of the row stands under names that no JSON text can hold: lone surrogates. They are written with an @.
_SPECIAL_PREFIX = "\udc00"
KEY_COLUMN, KEYS_COLUMN, ITEM_COLUMN = _SPECIAL_PREFIX + "key", _SPECIAL_PREFIX + "keys", _SPECIAL_PREFIX + "item"
OBJECT_HEAD = "#@object"
"""The first line of a table that is one object and has no lines."""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SEGMENT = re.compile(rf'({_QUOTED}|@(?:keys?|item|[0-9]+)|[^.,=*{{}}?#@&"\\\s\[]+(?: [^.,=*{{}}?#@&"\\\s\[]+)*)(\??)')
_PLAIN_KEY = re.compile(r'[^.,=*{}?#@&"\\\s\[\x00-\x1f]+(?: [^.,=*{}?#@&"\\\s\[\x00-\x1f]+)*')
_REFERENCE = re.compile(rf"\{{((?:{_QUOTED}|[^{{}}\"\\*])*)\}}")
_TEMPLATE = re.compile(rf"\\(.)|(\*)|{_REFERENCE.pattern}")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_NEEDS_QUOTES = re.compile(r'["\[{#&]|\s|.*(?:[\x00-\x1f\x7f]|\s\Z)', re.DOTALL)
_JSON_WORDS = frozenset({"true", "false", "null"})

_decode_json = msgspec.json.Decoder().decode


class ColumnReference(NamedTuple):
    path: ColumnPath


class Placeholder:
    """Where the cell stands."""


PLACEHOLDER = Placeholder()
TemplatePart = str | ColumnReference | Placeholder


def json_text(value: JSON) -> str:
    return jsonrpc.encode(value).decode()


def position_column(number: int) -> str:
    """The column of what stands at a place in rows that are lists."""
    return f"{_SPECIAL_PREFIX}{number}"


# Cells


def write_text_cell(text: str, delimiter: str) -> str:
    """The cell of a text in a column that holds nothing but text."""
    return json_text(text) if not text or delimiter in text or _NEEDS_QUOTES.match(text) else text


def looks_like_json(text: str) -> bool:
    return text in _JSON_WORDS or _NUMBER.fullmatch(text) is not None


def write_cell(value: JSON, delimiter: str) -> str:
    """The cell of any value but null."""
    if isinstance(value, str):
        return json_text(value) if looks_like_json(value) else write_text_cell(value, delimiter)
    return json_text(value)


def split_cells(line: str, delimiter: str) -> list[str]:
    """A line's cells as they are written.

    Raises:
        ValueError: a JSON cell has no end.
    """
    if '"' not in line and "[" not in line and "{" not in line:
        return line.split(delimiter)
    cells, at = [], 0
    while True:
        end = _json_end(line, at) if line[at : at + 1] in ('"', "[", "{") else line.find(delimiter, at)
        if end < 0 or end == len(line):
            cells.append(line[at:])
            return cells
        if line[end] != delimiter:
            raise ValueError("a cell goes on behind its JSON")
        cells.append(line[at:end])
        at = end + 1


_BRACKETS = re.compile(rf"{_QUOTED}|[\[{{]|[\]}}]")


def _json_end(line: str, at: int) -> int:
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


def read_text_cell(text: str) -> str:
    if text[:1] != '"':
        return text
    read = read_json(text)
    assert isinstance(read, str)
    return read


def read_json(text: str) -> JSON:
    try:
        value: JSON = _decode_json(text)
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


class NameWriter:
    """Writes names one after the other: each group's mark once, and a dot for a parent just named."""

    def __init__(self, optional: Collection[ColumnPath]) -> None:
        self._unmarked = set(optional)
        self._parent: ColumnPath = ()

    def write_name(self, path: ColumnPath, absent: bool = False) -> str:
        base = self._parent if self._parent and path[: len(self._parent)] == self._parent else ()
        if len(path) == len(base):
            base = ()
        made = "." if base else ""
        for end in range(len(base) + 1, len(path)):
            made += _key_text(path[end - 1])
            if path[:end] in self._unmarked:
                self._unmarked.discard(path[:end])
                made += "?"
            made += "."
        made += _key_text(path[-1])
        self._parent = path[:-1]
        return made + "?" * absent

    def write_lookup_key(self, path: ColumnPath) -> str:
        """The name of a column that has been named; not to be taken for a lookup's number."""
        self._parent = path[:-1]
        name = reference_text(path, ())
        return json_text(name) if name.isdecimal() else name


def _key_text(key: str) -> str:
    if key[:1] == _SPECIAL_PREFIX:
        return "@" + key[1:]
    return key if _PLAIN_KEY.fullmatch(key) else json_text(key)


def reference_text(path: ColumnPath, base: ColumnPath) -> str:
    if base and len(path) > len(base) and path[: len(base)] == base:
        return "." + ".".join(map(_key_text, path[len(base) :]))
    return ".".join(map(_key_text, path))


class ColumnName(NamedTuple):
    path: ColumnPath
    absent: bool
    """Whether an empty cell means that there is no such key."""
    optional: list[ColumnPath]
    """Groups above it that are marked here."""
    end: int


def read_name(text: str, at: int, base: ColumnPath) -> ColumnName:
    """The name that begins at a place.

    Raises:
        ValueError: there is none.
    """
    path: ColumnPath = ()
    marked: list[ColumnPath] = []
    if text[at : at + 1] == ".":
        path, at = base, at + 1
    while True:
        found = _SEGMENT.match(text, at)
        if found is None:
            raise ValueError(f"no column name: {text[at : at + 40]!r}")
        written, at = found[1], found.end()
        path = (*path, _SPECIAL_PREFIX + written[1:] if written[0] == "@" else read_text_cell(written))
        if text[at : at + 1] != ".":
            return ColumnName(path, bool(found[2]), marked, at)
        if found[2]:
            marked.append(path)
        at += 1


# Templates


def write_template(
    parts: list[TemplatePart], column_path: ColumnPath, known: Collection[ColumnPath], delimiter: str
) -> str:
    made = ""
    for part in parts:
        if isinstance(part, ColumnReference):
            made += "{" + reference_text(part.path, column_path[:-1]) + "}"
        elif isinstance(part, str):
            made += _escape_literal(part, column_path, known, delimiter)
        else:
            made += "*"
    return made


def _escape_literal(text: str, column_path: ColumnPath, known: Collection[ColumnPath], delimiter: str) -> str:
    text = re.sub(r'([\\*"])', r"\\\1", text).replace(delimiter, "\\" + delimiter)
    if "{" not in text:
        return text
    return _REFERENCE.sub(
        lambda found: ("\\" if _resolve_reference(found[1], column_path, known) else "") + found[0], text
    )


def _resolve_reference(text: str, column_path: ColumnPath, known: Collection[ColumnPath]) -> ColumnPath | None:
    try:
        name = read_name(text, 0, column_path[:-1])
    except (ValueError, AssertionError):
        return None
    return name.path if name.end == len(text) and name.path in known else None


def read_template(text: str, column_path: ColumnPath, known: Collection[ColumnPath]) -> list[TemplatePart]:
    parts: list[TemplatePart] = []
    literal, at = "", 0
    for found in _TEMPLATE.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        path = _resolve_reference(found[3], column_path, known) if found[3] is not None else None
        if found[1] is not None:
            literal += found[1]
        elif found[2] is None and path is None:
            literal += found[0]
        else:
            parts += [literal] * bool(literal) + [PLACEHOLDER if path is None else ColumnReference(path)]
            literal = ""
    literal += text[at:]
    return parts + [literal] * bool(literal)


def fill_template(parts: list[TemplatePart], cell_text: str, value: Callable[[ColumnPath], str]) -> str:
    return "".join(
        part if isinstance(part, str) else cell_text if isinstance(part, Placeholder) else value(part.path)
        for part in parts
    )
