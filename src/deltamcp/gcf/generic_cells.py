"""Cells and columns of tables: whole columns are formatted at once, schemas and lines parsed (SPEC 2.1, 7.4)."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltamcp.gcf.header import MAX_DEPTH
from deltamcp.gcf.scalars import (
    INT64_MAX,
    INT64_MIN,
    IS_NUMBER,
    GcfError,
    format_key,
    format_number,
    format_scalar,
    parse_key,
    parse_number,
    parse_quoted,
    parse_scalar,
    quote_if_needed,
)

SCALAR, OBJECT, ARRAY, MISSING = range(4)
NULL_TYPE = type(None)
MAX_MEMO = 10_000
"""Strings that a memo holds. Measured: beyond that, a lookup costs more than formatting the string again."""
_STRINGS, _INTEGERS = {str}, {int}
_SCALARS = {str, int, float, bool, NULL_TYPE}
_PLAIN_COLUMNS = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)\}", re.ASCII).match
_BARE_VALUE = re.compile(r"[^,}]*")
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_DECLARED_MARKER = re.compile(rf'\^\{{(?:{_QUOTED}|[^"}}|])*+\}}(?=\||\Z)')
_CELL_PATTERNS = {
    mark: re.compile(rf'[ \t]*({_QUOTED}[ \t]*|{_DECLARED_MARKER.pattern}|[^" \t\{mark}][^\{mark}]*|)\{mark}')
    for mark in "|,"
}
_NULL = "-"


class AbsentCell:
    """The type of `ABSENT`, the value of a cell that a row does not have."""


ABSENT = AbsentCell()


class ValueKinds(dict[type, int]):
    """The kind of a value by its type. A type that JSON does not have raises `GcfError`."""

    def __init__(self) -> None:
        super().__init__({str: SCALAR, int: SCALAR, float: SCALAR, bool: SCALAR, NULL_TYPE: SCALAR})
        self.update({dict: OBJECT, list: ARRAY, tuple: ARRAY, AbsentCell: MISSING})

    def __missing__(self, value_type: type) -> int:
        for base in (dict, list, tuple, str, int, float):
            if issubclass(value_type, base):
                self[value_type] = self[base]
                return self[base]
        raise GcfError("unsupported_value", f"{value_type.__name__} is not a JSON value")


class StringMemo(dict[str, str]):
    """Formatted strings, by the string."""

    def __missing__(self, text: str) -> str:
        if len(self) > MAX_MEMO:
            self.clear()
        self[text] = written = quote_if_needed(text)
        return written


class KeyMemo(dict[str, str]):
    """Formatted keys, by the key."""

    def __missing__(self, name: str) -> str:
        self[name] = written = format_key(name)
        return written


class CellFormatters(dict[type, Callable[[Any], str]]):
    """Functions that format a cell, by the type of its value. A nested value becomes `^` (SPEC 7.4.4)."""

    def __init__(self, texts: StringMemo, kinds: ValueKinds) -> None:
        super().__init__({str: texts.__getitem__, int: format_number, float: format_number})
        self.update({bool: {True: "true", False: "false"}.__getitem__, NULL_TYPE: {None: "-"}.__getitem__})
        self[AbsentCell] = {ABSENT: "~"}.__getitem__
        self._kinds = kinds

    def __missing__(self, value_type: type) -> Callable[[Any], str]:
        self[value_type] = formatter = format_scalar if self._kinds[value_type] == SCALAR else _nested_marker
        return formatter


def _nested_marker(_: Any) -> str:
    return "^"


class CellWriter:
    """Formats cells, and remembers formatted strings and the formatters of types."""

    def __init__(self) -> None:
        self.kinds: ValueKinds = ValueKinds()
        self.texts: StringMemo = StringMemo()
        self.names: KeyMemo = KeyMemo()
        self.formatters: CellFormatters = CellFormatters(self.texts, self.kinds)

    def kinds_of(self, values: Iterable[Any]) -> set[int]:
        """Returns the kinds that occur among `values`."""
        types = set(map(type, values))
        return {SCALAR} if types and types <= _SCALARS else {self.kinds[value_type] for value_type in types}

    def format_column(self, values: Sequence[Any]) -> list[str]:
        """Formats every value as a cell."""
        types = set(map(type, values))
        if types == _STRINGS:
            return list(map(self.texts.__getitem__, values))
        if types == _INTEGERS and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
            return list(map(str, values))
        formatters = self.formatters
        if AbsentCell in types:
            cells = ["~"] * len(values)
            for place, value in enumerate(values):
                if value is not ABSENT:
                    cells[place] = formatters[type(value)](value)
            return cells
        return [formatters[type(value)](value) for value in values]


@dataclass
class SchemaColumn:
    """A declared column. `constant` is its value in every row, `ABSENT` if each row has a cell of its own."""

    name: str
    constant: Any = ABSENT
    identity: bool = False


def parse_columns(text: str, start: int) -> tuple[list[SchemaColumn], int]:
    """Parses the columns whose brace opens at `start`; return them and the index after the declaration."""
    if plain := _PLAIN_COLUMNS(text, start):
        columns, end = [SchemaColumn(name) for name in plain[1].split(",")], plain.end()
    else:
        columns, end = _parse_columns(text, start)
    if len({column.name for column in columns}) < len(columns):
        raise GcfError("duplicate_field_name", "a table declares a column twice")
    return columns, end


def _parse_columns(text: str, start: int) -> tuple[list[SchemaColumn], int]:
    columns: list[SchemaColumn] = []
    mark = "{"
    while mark != "}":
        if text[start : start + 1] != mark:
            raise GcfError("malformed_header_field", "columns are not {name,name,...}")
        identity = text[start + 1 : start + 2] == "@"
        try:
            name, start = parse_key(text, start + 1 + identity)
        except GcfError as fault:
            category = "malformed_header_field" if fault.category == "malformed_key" else fault.category
            raise GcfError(category, "a column has no name") from None
        column = SchemaColumn(name, identity=identity)
        if text[start : start + 1] == "=":
            column.constant, start = _parse_constant(text, start + 1)
        columns.append(column)
        mark = text[start : start + 1]
        if mark not in ("}", ","):
            raise GcfError("malformed_header_field", "columns are not {name,name,...}")
    return columns, start + 1


def _parse_constant(text: str, start: int) -> tuple[Any, int]:
    if text[start : start + 1] == '"':
        return parse_quoted(text, start)
    found = _BARE_VALUE.match(text, start)
    assert found
    token = found.group()
    if token.strip(" \t") in ("", "~", "^"):
        raise GcfError("invalid_const_value", "the value of a constant column is not a scalar")
    return parse_scalar(token), found.end()


class RowSchema:
    """Builds the objects of rows from their cells."""

    def __init__(self, columns: list[SchemaColumn]) -> None:
        self.names: list[str] = [column.name for column in columns if column.constant is ABSENT]
        if not self.names:
            raise GcfError("no_bare_column", "every column is constant")
        self.width: int = len(self.names)
        self._constants = [(at, column.constant) for at, column in enumerate(columns) if column.constant is not ABSENT]
        self._paths = [_column_path(column) for column in columns]
        self._leaf_counts = Counter(path[0] for path in self._paths if len(path) > 1)
        self._check_paths()
        self._is_flat = not self._constants and not self._leaf_counts

    def _check_paths(self) -> None:
        tree: dict[str, Any] = {}
        for path in self._paths:
            members: Any = tree
            for name in path[:-1]:
                members = members.setdefault(name, {}) if members is not None else None
            if members is None or path[-1] in members:
                raise GcfError("duplicate_field_name", "a column is a value and an object at once")
            members[path[-1]] = None

    @cached_property
    def _parts(self) -> list[tuple[str, int, list[str]]]:
        """The members of a row: name, index of the first cell and, for an object, the names of its members.

        Empty if an object holds another, or if the cells of an object are not adjacent.
        """
        parts: list[tuple[str, int, list[str]]] = []
        for at, (name, *inner) in enumerate(self._paths):
            if not parts or parts[-1][0] != name:
                parts.append((name, at, []))
            parts[-1][2].extend(inner)
        simple = len({name for name, _, _ in parts}) == len(parts) and max(map(len, self._paths)) < 3
        return parts if simple else []

    def build_row(self, cells: list[Any], *, sparse: bool) -> dict[str, Any]:
        """Returns the object of these cells. Pass `sparse` if any of them may be `ABSENT`."""
        if self._is_flat and not sparse:
            return dict(zip(self.names, cells, strict=True))
        for at, constant in self._constants:
            cells.insert(at, constant)
        if sparse or not self._parts:
            return self._build_nested_row(cells)
        row: dict[str, Any] = {}
        for name, start, inner in self._parts:
            if not inner:
                row[name] = cells[start]
                continue
            members = cells[start : start + len(inner)]
            null = members.count(None) == len(members)
            row[name] = None if null else dict(zip(inner, members, strict=True))
        return row

    def _build_nested_row(self, cells: list[Any]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        nulls: Counter[str] = Counter()
        for path, value in zip(self._paths, cells, strict=True):
            if value is ABSENT:
                continue
            if len(path) == 1:
                row[path[0]] = value
                continue
            if value is None:
                nulls[path[0]] += 1
            members = row
            for name in path[:-1]:
                members = members.setdefault(name, {})
            members[path[-1]] = value
        for name, count in nulls.items():
            if count == self._leaf_counts[name]:
                row[name] = None  # SPEC 7.4.6.2
        return row


def _column_path(column: SchemaColumn) -> tuple[str, ...]:
    """Returns the names of the members that lead to a column's values; a single name if it is not a path."""
    path = tuple(column.name.split(">"))
    if len(path) > MAX_DEPTH:
        raise GcfError("too_deep", f"a path has more than {MAX_DEPTH} names")
    return path if all(path) and column.constant is ABSENT else (column.name,)


@dataclass(frozen=True)
class AttachmentMarker:
    """The cell of a value that is written under its row. `names` are the value's fields, if the cell declares them."""

    names: list[str] | None = None


_MARKERS = {"~": ABSENT, "^": AttachmentMarker()}


class TokenValues(dict[str, Any]):
    """The values of tokens, parsed once each. `~` and `^` have markers as values, which the reader takes or refuses."""

    def __missing__(self, token: str) -> Any:
        if len(self) > MAX_MEMO:
            self.clear()
        self[token] = value = _parse_token(token)
        return value


def _parse_token(token: str) -> Any:
    if token[:1] not in '"-~^tf0123456789 \t' and token[-1] not in " \t":
        return token
    token = token.strip(" \t")
    if token[:1].isdigit() or token[:1] == "-":
        return parse_number(token) if IS_NUMBER(token) else None if token == _NULL else token
    if token in _MARKERS:
        return _MARKERS[token]
    if token[:2] == "^{" and token[-1] == "}":
        columns, end = parse_columns(token, 1)
        if end != len(token):
            raise GcfError("trailing_characters", "text goes on after the fields of an attachment")
        return AttachmentMarker([column.name for column in columns])
    return parse_scalar(token)


def split_cells(line: str, mark: str) -> list[str]:
    """Splits a line into its cells. Quoted cells keep their quotes."""
    if '"' not in line:
        return line.split(mark)
    cells: list[str] = _CELL_PATTERNS[mark].findall(line + mark)
    if sum(map(len, cells)) + len(cells) == len(line) + 1:
        return cells
    return list(_scan_cells(line, mark))


def _scan_cells(line: str, mark: str) -> Any:
    """Yields the cells of a line that no encoder writes, or raise the error that it has."""
    start = 0
    while True:
        while line[start : start + 1] in (" ", "\t"):
            start += 1
        if line[start : start + 1] == '"':
            _, end = parse_quoted(line, start)
            cell = line[start:end]
            while line[end : end + 1] in (" ", "\t"):
                end += 1
            if line[end : end + 1] not in ("", mark):
                raise GcfError("trailing_characters", "text goes on after the closing quote")
        elif declared := _DECLARED_MARKER.match(line, start):
            cell, end = declared.group(), declared.end()
        else:
            end = line.find(mark, start)
            end = len(line) if end < 0 else end
            cell = line[start:end]
        yield cell
        if end >= len(line):
            return
        start = end + 1
