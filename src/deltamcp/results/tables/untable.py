"""Tables read back into rows."""

import re
from typing import Any, NamedTuple

from deltamcp.results.tables.cells import (
    ITEM,
    KEY,
    KEYS,
    OBJECT,
    Part,
    Path,
    Reference,
    Star,
    fill,
    is_json,
    position,
    read_cell,
    read_json,
    read_name,
    read_plain,
    read_template,
    split,
    text_of,
)
from deltamcp.values import JSON

__all__ = ["read", "read_json"]

_NONE: Any = object()


class _Column:
    def __init__(self, path: Path, absent: bool) -> None:
        self.path, self.absent = path, absent
        self.celled = False
        self.template: str | None = None
        self.parts: list[Part] | None = None
        self.constant: Any = _NONE


class _Lookup(NamedTuple):
    key: Path | int
    members: list[Path]
    lines: dict[str, list[str]]


def read(lines: list[str]) -> JSON:
    """What a table stands for, from its lines, the first of them beginning with `#`.

    Raises:
        ValueError: it is no table.
    """
    if "" not in lines:
        raise ValueError("no empty line below the head")
    head_end = lines.index("")
    reader = _Reader(lines[:head_end])
    if lines[0] == OBJECT:
        return reader.read([""])[0]
    rows = reader.read(lines[head_end + 1 :])
    firsts = {path[0] for path in reader.columns}
    if KEYS in firsts:
        return _lists(rows)
    if KEY in firsts:
        return {row.pop(KEY): row[ITEM] if ITEM in firsts else row for row in rows}
    if position(0) in firsts:
        return [[row[position(at)] for at in range(len(firsts))] for row in rows]
    return [row[ITEM] for row in rows] if ITEM in firsts else list(rows)


def _lists(rows: list[dict[str, Any]]) -> JSON:
    made: dict[str, Any] = {}
    for row in rows:
        items = made.setdefault(row[KEYS], [])
        if ITEM in row:
            items.append(row[ITEM])
    return made


class _Reader:
    def __init__(self, head: list[str]) -> None:
        self.columns: dict[Path, _Column] = {}
        self.optional: set[Path] = set()
        self.lookups: list[_Lookup] = []
        self.parent: Path = ()
        self.delimiter = "\t" if "\t" in head[0] else ","
        self.places = self._read_columns(head[0], 1) if head[0] != OBJECT else []
        if len(self.places) == 1:
            self.delimiter = "\t"
        for line in head[1:]:
            if line.startswith("&"):
                key, *members = self._read_columns(line, 1)
                self.lookups.append(_Lookup(key, [path for path in members if isinstance(path, tuple)], {}))
            elif self.lookups:
                text, *cells = split(line, self.delimiter)
                self.lookups[-1].lines[text] = cells
            else:
                self._read_definition(line)
        self.groups = {path[:end] for path in self.columns for end in range(1, len(path))}
        lists = {path[:end] for path in self.columns for end in range(1, len(path)) if path[end] == position(0)}
        self.lists = sorted(lists, key=len, reverse=True)
        known = self.columns.keys() | self.groups
        for column in self.columns.values():
            self._resolve(column, known)
        self.order = self._ordered()

    def _name(self, line: str, at: int) -> tuple[_Column, int]:
        name = read_name(line, at, self.parent)
        self.optional.update(name.optional)
        self.parent = name.path[:-1]
        if name.path in self.columns:
            raise ValueError(f"a column stands twice: {line[at : name.end]!r}")
        column = self.columns[name.path] = _Column(name.path, name.absent)
        return column, name.end

    def _read_columns(self, line: str, at: int) -> list[Path | int]:
        places: list[Path | int] = []
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
                column, end = self._name(line, at)
                column.celled = True
                places.append(column.path)
                if line[end : end + 1] == "=":
                    found = ends.match(line, end + 1)
                    assert found is not None
                    column.template, end = found[0], found.end()
            if end == len(line):
                return places
            if line[end] != self.delimiter:
                raise ValueError(f"no column: {line[at : at + 60]!r}")
            at = end + 1

    def _read_definition(self, line: str) -> None:
        end, named = -1, []
        while end < 0 or line[end : end + 1] == ",":
            column, end = self._name(line, end + 1)
            named.append(column)
        if line[end : end + 1] != "=":
            raise ValueError(f"no definition: {line[:60]!r}")
        for column in named:
            column.template = line[end + 1 :]

    def _resolve(self, column: _Column, known: Any) -> None:
        if column.template is None:
            return
        if not column.celled and is_json(column.template):
            column.constant = read_json(column.template)
        else:
            column.parts = read_template(column.template, column.path, known)
            if column.celled and not any(isinstance(part, Star) for part in column.parts):
                raise ValueError("a column with cells and without a place for them")

    def _ordered(self) -> list[_Column]:
        """Columns after what they refer to."""
        done: dict[Path, _Column] = {}
        for path in self.columns:
            stack: list[tuple[Path, bool]] = [(path, False)]
            open_: set[Path] = set()
            while stack:
                at, left = stack.pop()
                if left:
                    open_.discard(at)
                    done[at] = self.columns[at]
                elif at in open_:
                    raise ValueError("columns that refer to each other")
                elif at not in done:
                    open_.add(at)
                    stack.append((at, True))
                    stack += [(other, False) for other in self._needs(self.columns[at])]
        return list(done.values())

    def _needs(self, column: _Column) -> list[Path]:
        needed: list[Path] = []
        for part in column.parts or ():
            if isinstance(part, Reference):
                needed += [path for path in self.columns if path[: len(part.path)] == part.path]
        return needed

    def read(self, lines: list[str]) -> list[dict[str, Any]]:
        return [self._row(self._cells(split(line, self.delimiter))) for line in lines]

    def _cells(self, cells: list[str]) -> dict[Path | int, str]:
        made = dict(zip(self.places, cells, strict=True)) if self.places else {}
        for number, lookup in enumerate(self.lookups, 1):
            text = made.pop(number) if isinstance(lookup.key, int) else made[lookup.key]
            made.update(zip(lookup.members, lookup.lines[text], strict=True))
        return made

    def _row(self, cells: dict[Path | int, str]) -> dict[str, Any]:
        missing = set(self.optional)
        for path, text in cells.items():
            if text and missing and isinstance(path, tuple):
                missing -= {path[:end] for end in range(1, len(path))}
        values: dict[Path, Any] = {}
        for column in self.order:
            if missing and any(column.path[:end] in missing for end in range(1, len(column.path))):
                continue
            text = cells[column.path] if column.celled else ""
            value = self._value(column, text, values, missing)
            if value is None and column.absent and not text:
                continue
            if value is not _NONE:
                values[column.path] = value
        row = self._assembled((), values, missing)
        assert isinstance(row, dict)
        return row

    def _value(self, column: _Column, text: str, values: dict[Path, Any], missing: set[Path]) -> Any:
        if column.celled and not text:
            return None
        if column.parts is None:
            return read_cell(text) if column.celled else column.constant
        if len(column.parts) == 1 and isinstance(column.parts[0], Reference):
            path = column.parts[0].path
            return self._assembled(path, values, missing) if path in self.groups else values.get(path)
        return self._filled(column.parts, text, values)

    def _filled(self, parts: list[Part], text: str, values: dict[Path, Any]) -> str | None:
        for part in parts:
            if isinstance(part, Reference) and values.get(part.path) is None:
                return None

        def known(path: Path) -> str:
            value = values[path]
            return value if isinstance(value, str) else text_of(value)

        return fill(parts, read_plain(text), known)

    def _assembled(self, above: Path, values: dict[Path, Any], missing: set[Path]) -> Any:
        """The object at a path, of what is at and below it."""
        if above in missing:
            return values.get(above, _NONE)
        made: dict[str, Any] = {}
        depth = len(above)
        for path in self.columns:
            if path[:depth] != above or len(path) == depth:
                continue
            inside, reached = made, True
            for end in range(depth + 1, len(path)):
                if path[:end] in missing:
                    reached = False
                    break
                inside = inside.setdefault(path[end - 1], {})
            if reached and path in values and (path not in self.groups or path in missing):
                inside[path[-1]] = values[path]
        for path in self.lists:
            if path[:depth] == above:
                made = _listed(made, path[depth:])
        return made


def _listed(made: dict[str, Any], path: Path) -> Any:
    """The object with a list where positions are the keys of the one at a path."""
    if not path:
        return [made[position(at)] for at in range(len(made))]
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = _listed(holder[path[-1]], ())
    return made
