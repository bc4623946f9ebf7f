"""Schemas of tables: parses declared columns, and builds rows from cells (SPEC 7.4.1, 7.4.6, 7.4.7)."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.cells import ABSENT
from deltamcp.gcf.generic.lines import MAX_DEPTH
from deltamcp.gcf.scalars import parse_key, parse_quoted, parse_scalar

_PLAIN_COLUMNS = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)\}", re.ASCII).match
_BARE_VALUE = re.compile(r"[^,}]*")


@dataclass
class SchemaColumn:
    """A declared column. `constant` is its value in every row, `ABSENT` if each row has a cell of its own."""

    name: str
    constant: Any = ABSENT
    identity: bool = False


def parse_columns(text: str, start: int) -> tuple[list[SchemaColumn], int]:
    """Parse the columns whose brace opens at `start`; return them and the index after the declaration."""
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
        self.names = [column.name for column in columns if column.constant is ABSENT]
        if not self.names:
            raise GcfError("no_bare_column", "every column is constant")
        self.width = len(self.names)
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
        """Return the object of these cells. Pass `sparse` if any of them may be `ABSENT`."""
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
    """Return the names of the members that lead to a column's values; a single name if it is not a path."""
    path = tuple(column.name.split(">"))
    if len(path) > MAX_DEPTH:
        raise GcfError("too_deep", f"a path has more than {MAX_DEPTH} names")
    return path if all(path) and column.constant is ABSENT else (column.name,)
