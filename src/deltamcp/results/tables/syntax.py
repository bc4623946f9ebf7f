"""Writes and reads the syntax elements of a table: cells, column names and templates.

cell      empty for null; JSON; or a text that cannot be mistaken for JSON
name      keys joined by dots; a key with special characters is a JSON string; `.b` has the parent of the previous name;
          `a?` is absent where its cell is empty, `a?.b` where all the cells below `a` are empty; `a[]` is an item of
          the list `a`
template  text with `*` for the cell and `{name}` for another column's value; a backslash escapes these characters
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from deltamcp.values import JSON

ColumnPath = tuple[str, ...]

# Columns that are not keys of a row have names with a lone surrogate, which JSON text cannot contain; a table has an @.
_SPECIAL_PREFIX = "\udc00"
KEY_COLUMN, KEYS_COLUMN, ITEM_COLUMN = _SPECIAL_PREFIX + "key", _SPECIAL_PREFIX + "keys", _SPECIAL_PREFIX + "item"
_LIST_SUFFIX = _SPECIAL_PREFIX + "[]"
OBJECT_HEAD = "#@object"
"""The first line of a table of one object, which has no lines for rows."""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SEGMENT = re.compile(
    rf'({_QUOTED}|@(?:keys?|item|[0-9]+)|[^.,=*{{}}?#@&"\\\s\[]+(?: [^.,=*{{}}?#@&"\\\s\[]+)*)(\[\])?(\??)'
)
_PLAIN_KEY = re.compile(r'[^.,=*{}?#@&"\\\s\[\x00-\x1f]+(?: [^.,=*{}?#@&"\\\s\[\x00-\x1f]+)*')
_REFERENCE = re.compile(rf"\{{((?:{_QUOTED}|[^{{}}\"\\*])*)\}}")
_TEMPLATE = re.compile(rf"\\(.)|(\*)|{_REFERENCE.pattern}")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_NEEDS_QUOTES = re.compile(r'["\[{#&]|\s|.*(?:[\x00-\x1f\x7f]|\s\Z)', re.DOTALL)
_JSON_WORDS = frozenset({"true", "false", "null"})

_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class ColumnReference(NamedTuple):
    """A part of a template that stands for the value of another column."""

    path: ColumnPath


class Placeholder:
    """The part of a template that stands for the cell."""


PLACEHOLDER = Placeholder()
TemplatePart = str | ColumnReference | Placeholder


def json_text(value: JSON) -> str:
    return _encode_json(value).decode()


def position_column(number: int) -> str:
    """Returns the name of the column for an index, in rows that are lists."""
    return f"{_SPECIAL_PREFIX}{number}"


def list_column(name: str) -> str:
    """Returns the name of the column for the items of a list, in rows that have one item each."""
    return name + _LIST_SUFFIX


def listed_name(column: str) -> str | None:
    """Returns the name of the list whose items a column has; None for other columns."""
    return column.removesuffix(_LIST_SUFFIX) if column.endswith(_LIST_SUFFIX) else None


# Cells


class AbsentKey:
    """Marks a column's value in a row that lacks the key."""


class AbsentParent:
    """Marks a column's value in a row that lacks the object that would contain the key."""


ABSENT, ABSENT_PARENT = AbsentKey(), AbsentParent()


def write_text_cell(text: str, delimiter: str) -> str:
    """Writes a text as a cell of a column in which every value is text."""
    return json_text(text) if not text or delimiter in text or _NEEDS_QUOTES.match(text) else text


def looks_like_json(text: str) -> bool:
    return text in _JSON_WORDS or _NUMBER.fullmatch(text) is not None


def write_cell(value: JSON, delimiter: str) -> str:
    """Writes a value other than null as a cell."""
    if isinstance(value, str):
        return json_text(value) if looks_like_json(value) else write_text_cell(value, delimiter)
    return json_text(value)


def write_cells(cells: Iterable[Any], is_text: bool, is_absent: bool, delimiter: str) -> list[str]:
    """Writes the cells of a column.

    Args:
        is_text: Whether the column has a template, so that every value is text.
        is_absent: Whether an empty cell means that the row lacks the key, and null has to be written.
    """
    if is_text:
        return [write_text_cell(value, delimiter) if isinstance(value, str) else "" for value in cells]
    null = "null" if is_absent else ""
    return [
        null if value is None else "" if value is ABSENT or value is ABSENT_PARENT else write_cell(value, delimiter)
        for value in cells
    ]


def split_cells(line: str, delimiter: str) -> list[str]:
    """Splits a line into its cells, which stay encoded.

    Raises:
        ValueError: a JSON cell is malformed.
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
            raise ValueError("a cell has more text after its JSON")
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
        raise ValueError(f"not JSON: {error}") from None
    return value


def is_json(text: str) -> bool:
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return False
    return True


# Names


class HeadWriter:
    """Writes columns in sequence: it marks each optional group once, and shortens a repeated parent to a dot."""

    def __init__(
        self,
        optional: Collection[ColumnPath],
        absent: Collection[ColumnPath],
        templates: Mapping[ColumnPath, Sequence[TemplatePart]],
        known: Collection[ColumnPath],
    ) -> None:
        """
        Args:
            absent: The columns that are absent where their cell is empty.
            templates: The templates of the columns that have one.
            known: The paths that a literal in braces could be mistaken for.
        """
        self._unmarked = set(optional)
        self._absent, self._templates, self._known = absent, templates, known
        self._parent: ColumnPath = ()

    def write_column(self, path: ColumnPath, delimiter: str) -> str:
        """Writes the name of a column with cells, and its template."""
        name, parts = self.write_name(path), self._templates.get(path)
        return name if parts is None else f"{name}={write_template(parts, path, self._known, delimiter)}"

    def write_name(self, path: ColumnPath) -> str:
        base = self._parent if self._parent and path[: len(self._parent)] == self._parent else ()
        if len(path) == len(base):
            base = ()
        name = "." if base else ""
        for end in range(len(base) + 1, len(path)):
            name += _key_text(path[end - 1])
            if path[:end] in self._unmarked:
                self._unmarked.discard(path[:end])
                name += "?"
            name += "."
        name += _key_text(path[-1])
        self._parent = path[:-1]
        return name + "?" * (path in self._absent)

    def write_lookup_key(self, path: ColumnPath) -> str:
        """Writes the name of a column that the head has already; quoted where it looks like a lookup's number."""
        self._parent = path[:-1]
        name = reference_text(path, ())
        return json_text(name) if name.isdecimal() else name


def _key_text(key: str) -> str:
    listed = listed_name(key)
    if listed is not None:
        return f"{_key_text(listed)}[]"
    if key[:1] == _SPECIAL_PREFIX:
        return "@" + key[1:]
    return key if _PLAIN_KEY.fullmatch(key) else json_text(key)


def reference_text(path: ColumnPath, base: ColumnPath) -> str:
    if base and len(path) > len(base) and path[: len(base)] == base:
        return "." + ".".join(map(_key_text, path[len(base) :]))
    return ".".join(map(_key_text, path))


class ColumnName(NamedTuple):
    """A column name that a reader parsed."""

    path: ColumnPath
    absent: bool
    """Whether an empty cell means that the row lacks the key."""
    optional: list[ColumnPath]
    """Groups above the column that the name marks as optional."""
    end: int
    """Where the name ends in the line."""


def read_name(text: str, at: int, base: ColumnPath) -> ColumnName:
    """Reads the column name that begins at a position.

    Raises:
        ValueError: no column name begins there.
    """
    path: ColumnPath = ()
    optional: list[ColumnPath] = []
    if text[at : at + 1] == ".":
        path, at = base, at + 1
    while True:
        found = _SEGMENT.match(text, at)
        if found is None:
            raise ValueError(f"not a column name: {text[at : at + 40]!r}")
        segment, at = found[1], found.end()
        key = _SPECIAL_PREFIX + segment[1:] if segment[0] == "@" else read_text_cell(segment)
        path = (*path, list_column(key) if found[2] else key)
        if text[at : at + 1] != ".":
            return ColumnName(path, bool(found[3]), optional, at)
        if found[3]:
            optional.append(path)
        at += 1


# Templates


def write_constant(
    value: JSON, parts: Sequence[TemplatePart], column_path: ColumnPath, known: Collection[ColumnPath]
) -> str:
    """Writes the value that a column has in every row: of a text its template, unless that reads as JSON."""
    if not isinstance(value, str) or looks_like_json(value) or write_text_cell(value, "\n") != value:
        return json_text(value)
    text = write_template(parts, column_path, known, "\n")
    return json_text(value) if is_json(text) else text


def write_template(
    parts: Sequence[TemplatePart], column_path: ColumnPath, known: Collection[ColumnPath], delimiter: str
) -> str:
    """Writes a template; `known` has the paths that a literal in braces could be mistaken for."""
    text = ""
    for part in parts:
        if isinstance(part, ColumnReference):
            text += "{" + reference_text(part.path, column_path[:-1]) + "}"
        elif isinstance(part, str):
            text += _escape_literal(part, column_path, known, delimiter)
        else:
            text += "*"
    return text


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
