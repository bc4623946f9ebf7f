"""Reads a text table back into the list or object that it was written from."""

import re
from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple

from deltamcp.results.tables.item_rows import group_items
from deltamcp.results.tables.syntax import (
    ITEM_COLUMN,
    KEY_COLUMN,
    KEYS_COLUMN,
    OBJECT_HEAD,
    ColumnPath,
    ColumnReference,
    Placeholder,
    TemplatePart,
    fill_template,
    is_json,
    json_text,
    listed_name,
    position_column,
    read_cell,
    read_json,
    read_name,
    read_template,
    read_text_cell,
    split_cells,
)
from deltamcp.values import JSON
from deltamcp.work import Work

__all__ = ["read_json", "read_table"]

CHARS_PER_CELL = 24
"""Characters that take as much memory as a short cell does."""
_COLUMNS_PER_STEP = 4
_NO_COLUMNS = ""
"""The columns of a table whose rows are the same, and have no lines."""
_NO_VALUE: Any = object()
_ROW_COUNT = re.compile(r"#([0-9]{1,15})(?::([0-9]{1,15}))?(?: |\Z)")


class _ReadColumn:
    def __init__(self, path: ColumnPath, absent: bool) -> None:
        self.path, self.absent = path, absent
        self.has_cells = False
        self.template: str | None = None
        self.parts: list[TemplatePart] | None = None
        self.constant: Any = _NO_VALUE


class _ReadLookup(NamedTuple):
    key: ColumnPath | int
    members: list[ColumnPath]
    lines: dict[str, list[str]]


def read_table(lines: list[str], work: Work) -> JSON:
    """Returns the list or object that a table was written from; the first of its lines begins with `#`.

    A cell is a step, and so are every `CHARS_PER_CELL` characters that a template fills in: a short table may stand for
    a large value.

    Raises:
        ValueError: the lines are not a table.
        WorkLimitError: the value is too large.
    """
    if "" not in lines:
        raise ValueError("the table has no empty line after its head")
    head_end = lines.index("")
    count = _ROW_COUNT.match(lines[0])
    first = lines[0] if count is None else "#" + lines[0][count.end() :] if count.end() < len(lines[0]) else _NO_COLUMNS
    reader = _TableReader([first, *lines[1:head_end]], work)
    if lines[0] == OBJECT_HEAD:
        return reader.read_rows([""])[0]
    rows = _read_rows(reader, lines[head_end + 1 :], None if count is None else int(count[1]))
    if count is not None and int(count[1]) != len(rows):
        raise ValueError(f"the table has {len(rows)} rows, and says that it has {count[1]}")
    if count is not None and count[2] is not None and int(count[2]) != reader.item_count:
        raise ValueError(f"the table has {reader.item_count} items, and says that it has {count[2]}")
    firsts = {path[0] for path in reader.columns}
    if KEYS_COLUMN in firsts:
        return _group_lists(rows)
    if KEY_COLUMN in firsts:
        return {row.pop(KEY_COLUMN): row[ITEM_COLUMN] if ITEM_COLUMN in firsts else row for row in rows}
    if position_column(0) in firsts:
        return [[row[position_column(at)] for at in range(len(firsts))] for row in rows]
    return [row[ITEM_COLUMN] for row in rows] if ITEM_COLUMN in firsts else list(rows)


def _read_rows(reader: "_TableReader", lines: list[str], count: int | None) -> list[dict[str, Any]]:
    """Returns the rows that lines stand for; without lines, `count` rows that the head has."""
    listed = [(path, name) for path in reader.columns if (name := listed_name(path[0])) is not None]
    if not listed:
        if not lines and not reader.line_columns and count is not None:
            return reader.read_rows(repeat("", count))
        is_one_line = len(lines) == 1 and len(reader.line_columns) == 1 and count is not None and count > 1
        return reader.read_rows(split_cells(lines[0], ",") if is_one_line else lines)
    if any(path[0] != listed[0][0][0] for path, _ in listed):
        raise ValueError("the rows of a table are items of more than one list")
    (column, *_), name = listed[0]
    if len(listed) < len(reader.columns):
        rows = reader.read_rows(lines)
        reader.item_count = sum(column in row for row in rows)
        return group_items(rows, name)
    lists = [reader.read_rows(split_cells(line, ",") if line else []) for line in lines]
    reader.item_count = sum(map(len, lists))
    return [{name: [row[column] for row in rows]} for rows in lists]


def _group_lists(rows: list[dict[str, Any]]) -> JSON:
    lists: dict[str, Any] = {}
    for row in rows:
        items = lists.setdefault(row[KEYS_COLUMN], [])
        if ITEM_COLUMN in row:
            items.append(row[ITEM_COLUMN])
    return lists


class _TableReader:
    def __init__(self, head: list[str], work: Work) -> None:
        self._work = work
        self.columns: dict[ColumnPath, _ReadColumn] = {}
        self.optional: set[ColumnPath] = set()
        self.lookups: list[_ReadLookup] = []
        self.item_count = 0
        """How many items the rows have, where they are items of lists."""
        self.parent: ColumnPath = ()
        self.delimiter = "\t" if "\t" in head[0] else ","
        self.line_columns = self._read_columns(head[0], 1) if head[0] not in (OBJECT_HEAD, _NO_COLUMNS) else []
        if len(self.line_columns) == 1:
            self.delimiter = "\t"
        for line in head[1:]:
            if line.startswith("&"):
                key, *members = self._read_columns(line, 1)
                self.lookups.append(_ReadLookup(key, [path for path in members if isinstance(path, tuple)], {}))
            elif self.lookups:
                text, *cells = split_cells(line, self.delimiter)
                self.lookups[-1].lines[text] = cells
            else:
                self._read_derived_columns(line)
        self.groups = {path[:end] for path in self.columns for end in range(1, len(path))}
        lists = {path[:end] for path in self.columns for end in range(1, len(path)) if path[end] == position_column(0)}
        self.lists = sorted(lists, key=len, reverse=True)
        known = self.columns.keys() | self.groups
        for column in self.columns.values():
            self._resolve_template(column, known)
        self.resolution_order = self._order_columns()

    def _add_column(self, line: str, at: int) -> tuple[_ReadColumn, int]:
        name = read_name(line, at, self.parent)
        self.optional.update(name.optional)
        self.parent = name.path[:-1]
        if name.path in self.columns:
            raise ValueError(f"duplicate column: {line[at : name.end]!r}")
        column = self.columns[name.path] = _ReadColumn(name.path, name.absent)
        return column, name.end

    def _read_columns(self, line: str, at: int) -> list[ColumnPath | int]:
        places: list[ColumnPath | int] = []
        ends = re.compile(rf'(?:\\.|"(?:[^"\\]|\\.)*"|[^\\"{self.delimiter}])*')
        numbers = re.compile(r"(&?)([0-9]+)(?=[,\t]|\Z)")
        while True:
            number = numbers.match(line, at)
            if number and (number[1] if line[0] == "#" else not places):
                places.append(int(number[2]))
                end = number.end()
            elif line[0] == "&" and not places:
                name = read_name(line, at, ())
                self.parent, end = name.path[:-1], name.end
                places.append(name.path)
            else:
                column, end = self._add_column(line, at)
                column.has_cells = True
                places.append(column.path)
                if line[end : end + 1] == "=":
                    found = ends.match(line, end + 1)
                    assert found is not None
                    column.template, end = found[0], found.end()
            if end == len(line):
                return places
            if line[end] != self.delimiter:
                raise ValueError(f"not a column: {line[at : at + 60]!r}")
            at = end + 1

    def _read_derived_columns(self, line: str) -> None:
        end, named = -1, []
        while end < 0 or line[end : end + 1] == ",":
            column, end = self._add_column(line, end + 1)
            named.append(column)
        if line[end : end + 1] != "=":
            raise ValueError(f"not a column definition: {line[:60]!r}")
        for column in named:
            column.template = line[end + 1 :]

    def _resolve_template(self, column: _ReadColumn, known: Any) -> None:
        if column.template is None:
            return
        if not column.has_cells and is_json(column.template):
            column.constant = read_json(column.template)
        else:
            column.parts = read_template(column.template, column.path, known)
            if column.has_cells and not any(isinstance(part, Placeholder) for part in column.parts):
                raise ValueError("the template of a column with cells has no *")

    def _order_columns(self) -> list[_ReadColumn]:
        """Returns the columns, each after the columns it refers to."""
        ordered: dict[ColumnPath, _ReadColumn] = {}
        for path in self.columns:
            stack: list[tuple[ColumnPath, bool]] = [(path, False)]
            visiting: set[ColumnPath] = set()
            while stack:
                at, is_visited = stack.pop()
                if is_visited:
                    visiting.discard(at)
                    ordered[at] = self.columns[at]
                elif at in visiting:
                    raise ValueError("columns refer to each other")
                elif at not in ordered:
                    visiting.add(at)
                    stack.append((at, True))
                    stack += [(other, False) for other in self._referenced_columns(self.columns[at])]
        return list(ordered.values())

    def _referenced_columns(self, column: _ReadColumn) -> list[ColumnPath]:
        paths: list[ColumnPath] = []
        for part in column.parts or ():
            if isinstance(part, ColumnReference):
                self._work.spend(1 + len(self.columns) // _COLUMNS_PER_STEP)
                paths += [path for path in self.columns if path[: len(part.path)] == part.path]
        return paths

    def read_rows(self, lines: Iterable[str]) -> list[dict[str, Any]]:
        return [self._make_row(self._cells_by_column(split_cells(line, self.delimiter))) for line in lines]

    def _cells_by_column(self, cells: list[str]) -> dict[ColumnPath | int, str]:
        by_column = dict(zip(self.line_columns, cells, strict=True)) if self.line_columns else {}
        for number, lookup in enumerate(self.lookups, 1):
            text = by_column.pop(number) if isinstance(lookup.key, int) else by_column[lookup.key]
            by_column.update(zip(lookup.members, lookup.lines[text], strict=True))
        return by_column

    def _make_row(self, cells: dict[ColumnPath | int, str]) -> dict[str, Any]:
        self._work.spend(1 + len(self.columns))
        missing = set(self.optional)
        for path, text in cells.items():
            if text and missing and isinstance(path, tuple):
                missing -= {path[:end] for end in range(1, len(path))}
        values: dict[ColumnPath, Any] = {}
        for column in self.resolution_order:
            if missing and any(column.path[:end] in missing for end in range(1, len(column.path))):
                continue
            text = cells[column.path] if column.has_cells else ""
            value = self._column_value(column, text, values, missing)
            if value is None and column.absent and not text:
                continue
            if value is not _NO_VALUE:
                values[column.path] = value
        row = self._assemble((), values, missing)
        assert isinstance(row, dict)
        return row

    def _column_value(
        self, column: _ReadColumn, text: str, values: dict[ColumnPath, Any], missing: set[ColumnPath]
    ) -> Any:
        if column.has_cells and not text:
            return None
        if column.parts is None:
            return read_cell(text) if column.has_cells else column.constant
        if len(column.parts) == 1 and isinstance(column.parts[0], ColumnReference):
            path = column.parts[0].path
            return self._assemble(path, values, missing) if path in self.groups else values.get(path)
        return self._fill_template(column.parts, text, values)

    def _fill_template(self, parts: list[TemplatePart], text: str, values: dict[ColumnPath, Any]) -> str | None:
        for part in parts:
            if isinstance(part, ColumnReference) and values.get(part.path) is None:
                return None

        def text_at(path: ColumnPath) -> str:
            value = values[path]
            return value if isinstance(value, str) else json_text(value)

        cell = read_text_cell(text)
        for part in parts:
            literal = (
                part if isinstance(part, str) else text_at(part.path) if isinstance(part, ColumnReference) else cell
            )
            self._work.spend(len(literal) // CHARS_PER_CELL)
        return fill_template(parts, cell, text_at)

    def _assemble(self, above: ColumnPath, values: dict[ColumnPath, Any], missing: set[ColumnPath]) -> Any:
        """Builds the object at a path from the values of the columns below it."""
        if above in missing:
            return values.get(above, _NO_VALUE)
        self._work.spend(1 + len(self.columns) // _COLUMNS_PER_STEP)
        value: dict[str, Any] = {}
        depth = len(above)
        for path in self.columns:
            if path[:depth] != above or len(path) == depth:
                continue
            inside, reached = value, True
            for end in range(depth + 1, len(path)):
                if path[:end] in missing:
                    reached = False
                    break
                inside = inside.setdefault(path[end - 1], {})
            if reached and path in values and (path not in self.groups or path in missing):
                inside[path[-1]] = values[path]
        for path in self.lists:
            if path[:depth] == above:
                value = _restore_list(value, path[depth:])
        return value


def _restore_list(value: dict[str, Any], path: ColumnPath) -> Any:
    """Returns the object with a list in place of the object at a path, whose keys are positions."""
    if not path:
        return [value[position_column(at)] for at in range(len(value))]
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = _restore_list(parent[path[-1]], ())
    return value
