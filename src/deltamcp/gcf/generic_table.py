"""Tables: rows of objects as columns, which may be flattened, constant, nested or grouped (SPEC 7.4)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from deltamcp.gcf.generic_cells import (
    ABSENT,
    ARRAY,
    MISSING,
    OBJECT,
    SCALAR,
    AttachmentMarker,
    CellWriter,
    RowSchema,
    SchemaColumn,
    TokenValues,
    split_cells,
)
from deltamcp.gcf.header import GENERIC_HEADER
from deltamcp.gcf.scalars import GcfError, parse_key, parse_scalar, quote

MAX_COLUMNS = 1_000
"""Columns of the widest table; rows with more fields are written one by one. Readers need not support more."""

MAX_FLATTEN_DEPTH = 32
"""Levels of nested objects that are flattened: each path repeats its names, so the header would outgrow the value."""

_MIN_INLINE_KEYS = 3  # SPEC 7.4.5.1

JsonObject = dict[str, Any]


@dataclass
class Attachment:
    """A field whose values are written under their rows. `lines` has them as text if they are encoded already."""

    name: str
    values: Sequence[Any]
    lines: Iterator[str] | None = None


@dataclass
class EncodedTable:
    """Encoded columns, and the attachments under their rows."""

    header: list[str] = field(default_factory=list)
    columns: list[list[str]] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Returns the lines of the rows, without attachments."""
        return map("|".join, zip(*self.columns, strict=True))


def all_fields(rows: Sequence[JsonObject]) -> list[str]:
    """Returns the fields of all rows in the order in which they first occur (SPEC 7.4.3)."""
    return list(dict.fromkeys(chain.from_iterable(rows)))


class TableEncoder:
    """Encodes rows as tables."""

    def __init__(self, cells: CellWriter, *, flatten: bool) -> None:
        self._cells = cells
        self._flatten = flatten

    def encode_table(self, rows: Sequence[JsonObject], fields: list[str], pad: str, *, factor: bool) -> EncodedTable:
        """Encodes rows as a table. `pad` precedes lines under a row; `factor` has constant columns in the header."""
        table = EncodedTable()
        path_columns: list[tuple[str, Sequence[Any]]] = []
        constant: list[int] = []
        for name, values in zip(fields, self._column_values(rows, fields), strict=True):
            written = self._cells.names[name]
            if ">" in name:
                path_columns.append((written, values))
                continue
            kinds = self._cells.kinds_of(values)
            if OBJECT not in kinds and ARRAY not in kinds:
                cells = self._cells.format_column(values)
                if factor and len(rows) > 1 and MISSING not in kinds and cells.count(cells[0]) == len(cells):
                    constant.append(len(table.columns))
                table.header.append(written)
                table.columns.append(cells)
            elif not (self._flatten and self._try_flatten(table, name, values, kinds)):
                self._add_nested(table, written, values, pad)
        for written, values in path_columns:
            table.attachments.append(Attachment(written, values, self._shared_lines(written, values, pad)))
        _factor_constants(table, constant)
        return table

    def _column_values(self, rows: Sequence[JsonObject], fields: list[str]) -> Iterable[Sequence[Any]]:
        width = len(fields)
        if all(len(row) == width for row in rows) and all(list(row) == fields for row in rows):
            return (list(map(itemgetter(name), rows)) for name in fields)
        columns: dict[str, list[Any]] = {name: [ABSENT] * len(rows) for name in fields}
        for place, row in enumerate(rows):
            for name, value in row.items():
                columns[name][place] = value
        return columns.values()

    def _try_flatten(self, table: EncodedTable, name: str, values: Sequence[Any], kinds: set[int]) -> bool:
        """Adds the members of a column's objects as columns; return False if they cannot be flattened (SPEC 7.4.6)."""
        if not name or ARRAY in kinds:
            return False
        objects = [value for value in values if value is not None and value is not ABSENT]
        if SCALAR in kinds and self._cells.kinds_of(objects) != {OBJECT}:
            return False
        leaves: list[tuple[str, Sequence[Any]]] = []
        if not self._collect_leaves(objects, name, leaves, MAX_FLATTEN_DEPTH):
            return False
        if None in leaves[0][1] and (None,) * len(leaves) in zip(*(leaf for _, leaf in leaves), strict=True):
            return False  # SPEC 7.4.6.2: a reader takes an object of nulls for a null
        for path, leaf in leaves:
            cells = self._cells.format_column(leaf)
            if len(objects) != len(values):
                present = iter(cells)
                cells = ["-" if value is None else "~" if value is ABSENT else next(present) for value in values]
            table.header.append(quote(path))
            table.columns.append(cells)
        return True

    def _collect_leaves(
        self, objects: list[JsonObject], path: str, leaves: list[tuple[str, Sequence[Any]]], depth: int
    ) -> bool:
        keys = list(objects[0])
        if not keys or not depth or any(list(other) != keys for other in objects):
            return False
        for name in keys:
            self._cells.names[name]
            values = list(map(itemgetter(name), objects))
            if not name or ">" in name:
                return False
            kinds = self._cells.kinds_of(values)
            if kinds == {SCALAR}:
                leaves.append((f"{path}>{name}", values))
            elif kinds != {OBJECT} or not self._collect_leaves(values, f"{path}>{name}", leaves, depth - 1):
                return False
        return True

    def _add_nested(self, table: EncodedTable, written: str, values: Sequence[Any], pad: str) -> None:
        cells = self._cells.format_column(values)
        if inline := self._inline_bodies(values):
            cells[0], bodies = inline
            lines: Iterator[str] | None = map(pad.__add__, bodies)
        else:
            lines = self._shared_lines(written, values, pad)
        table.attachments.append(Attachment(written, values, lines))
        table.header.append(written)
        table.columns.append(cells)

    def _present_values(self, kind: int, values: Sequence[Any]) -> list[Any]:
        """Returns the values that are neither null nor absent, if all are of this kind and the first row has one."""
        if self._cells.kinds[type(values[0])] != kind:
            return []
        present = [value for value in values if value is not None and value is not ABSENT]
        return present if self._cells.kinds_of(present) == {kind} else []

    def _inline_bodies(self, values: Sequence[Any]) -> tuple[str, Iterator[str]] | None:
        """Returns the first row's cell and every row's body if all objects have the same scalars (SPEC 7.4.5.1)."""
        objects: list[JsonObject] = self._present_values(OBJECT, values)
        if (
            not objects
            or len(keys := list(objects[0])) < _MIN_INLINE_KEYS
            or any(list(other) != keys for other in objects)
        ):
            return None
        columns = [list(map(itemgetter(name), objects)) for name in keys]
        if any(self._cells.kinds_of(values) != {SCALAR} for values in columns):
            return None
        bodies = map("|".join, zip(*map(self._cells.format_column, columns), strict=True))
        return f"^{{{','.join(map(self._cells.names.__getitem__, keys))}}}", bodies

    def _shared_lines(self, written: str, values: Sequence[Any], pad: str) -> Iterator[str] | None:
        """Returns every row's lines if all arrays have the same fields, and scalars only (SPEC 7.4.5.3)."""
        arrays: list[list[JsonObject]] = self._present_values(ARRAY, values)
        if not arrays or not all(arrays) or self._cells.kinds_of(chain.from_iterable(arrays)) != {OBJECT}:
            return None
        fields = all_fields(arrays[0])
        if not fields or len(fields) > MAX_COLUMNS or any(all_fields(other) != fields for other in arrays):
            return None
        names = ",".join([self._cells.names[name] for name in fields])
        if any(">" in name for name in fields):
            return None  # rows with an attachment begin with @, as items do: a reader could not tell them apart
        rows = list(chain.from_iterable(arrays))
        columns = list(self._column_values(rows, fields))
        if any(not self._cells.kinds_of(values) <= {SCALAR, MISSING} for values in columns):
            return None
        body = map("|".join, zip(*map(self._cells.format_column, columns), strict=True))
        return _attachment_lines(f"{pad}.{written}", f"{{{names}}}", arrays, map(f"{pad}    ".__add__, body))


def _attachment_lines(lead: str, header: str, arrays: list[list[JsonObject]], body: Iterator[str]) -> Iterator[str]:
    for array in arrays:
        yield "\n".join([f"{lead} [{len(array)}]{header}", *islice(body, len(array))])
        header = ""


def _factor_constants(table: EncodedTable, constant: list[int]) -> None:
    """Moves constant columns into the header; if all are constant, the last one stays a column (SPEC 7.4.7)."""
    if len(constant) == len(table.columns):
        del constant[-1:]
    for place in reversed(constant):
        table.header[place] += f"={quote_braces(table.columns.pop(place)[0])}"


def quote_braces(cell: str) -> str:
    """Returns a cell for use as a constant in the header, where an unquoted brace ends the columns."""
    return quote(cell) if "}" in cell and cell[0] != '"' else cell


_COUNTED_GROUP = re.compile(r"(.*) \[(0|[1-9][0-9]*)\]", re.ASCII | re.DOTALL).fullmatch


def encode_generic_grouped(value: Any, key_field: str, group_field: str) -> str:
    """Encodes rows of scalars, grouped by their `group_field`, as text that `decode_generic` decodes.

    The decoder returns the rows by group, in the order in which the groups first occur. The `key_field` of each row
    must be unique.
    """
    if not isinstance(value, list | tuple) or not value or not all(isinstance(row, dict) for row in value):
        raise GcfError("invalid_group_header", "only rows of objects are grouped")
    cells = CellWriter()
    fields = all_fields(value)
    names = [cells.names[name] for name in fields]
    if any(">" in name for name in fields) or key_field == group_field:
        raise GcfError("invalid_group_header", "no column may be a path, and the key cannot be the group")
    if any(name not in row for row in value for name in (key_field, group_field)):
        raise GcfError("invalid_group_header", "a row has no key or no group")
    columns = [cells.format_column([row.get(name, ABSENT) for row in value]) for name in fields]
    if any(cells.kinds_of(row.values()) != {SCALAR} for row in value):
        raise GcfError("unsupported_value", "rows in groups hold scalars only")
    key_place, group_place = fields.index(key_field), fields.index(group_field)
    if len(set(columns[key_place])) < len(value):
        raise GcfError("duplicate_key", "two rows have the same key")
    header, written_columns = [], []
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        has_cells = place in (key_place, group_place) or len(value) < 2 or column[0] == "~" or len(set(column)) > 1
        header.append(
            ("@" if place == key_place else "") + (name if has_cells else f"{name}={quote_braces(column[0])}")
        )
        if has_cells and place != group_place:
            written_columns.append(column)
    groups: dict[str, list[str]] = {}
    for group, row in zip(columns[group_place], map("|".join, zip(*written_columns, strict=True)), strict=True):
        groups.setdefault(group, []).append(row)
    lines = [GENERIC_HEADER, f"## [{len(value)}]{{{','.join(header)}}} group={names[group_place]}"]
    for group, rows in groups.items():
        lines += [f"{names[group_place]}={group} [{len(rows)}]", *rows]
    return "\n".join(lines) + "\n"


def read_grouped_rows(
    lines: Sequence[str], at: int, columns: list[SchemaColumn], clause: str, count: int | None, tokens: TokenValues
) -> tuple[list[dict[str, Any]], int]:
    """Reads a grouped table whose `group=` has the value `clause`; return its rows and the index of the next line."""
    group, end = parse_key(clause)
    place = _check_group_column(columns, group if end == len(clause) else "", count)
    rows: list[dict[str, Any]] = []
    identities: list[Any] = []
    seen: set[Any] = set()
    while len(rows) != count and lines[at]:
        value, size = _parse_subheader(lines[at], group)
        if (type(value), value) in seen:
            raise GcfError("duplicate_group", "two groups have the same value")
        seen.add((type(value), value))
        schema = RowSchema([*columns[:place], replace(columns[place], constant=value), *columns[place + 1 :]])
        identity = schema.names.index(next(column.name for column in columns if column.identity))
        at += 1
        for line in lines[at : at + size]:
            cells = split_cells(line, "|")
            if not line or len(cells) != schema.width:
                raise GcfError(
                    "row_width_mismatch" if line else "count_mismatch", "a group does not have the declared rows"
                )
            values = list(map(tokens.__getitem__, cells))
            if any(type(value) is AttachmentMarker for value in values):
                raise GcfError("invalid_attachment_marker", "rows in groups hold scalars only")
            identities.append(cells[identity])
            rows.append(schema.build_row(values, sparse=ABSENT in values))
            at += 1
    if len(rows) != count:
        raise GcfError("count_mismatch", f"{count} rows are declared, {len(rows)} are present")
    if len(set(identities)) < len(identities):
        raise GcfError("duplicate_key", "two rows have the same key")
    return rows, at


def _check_group_column(columns: list[SchemaColumn], group: str, count: int | None) -> int:
    places = [place for place, column in enumerate(columns) if column.name == group]
    if (
        count is None
        or len(places) != 1
        or sum(column.identity for column in columns) != 1
        or columns[places[0]].identity
        or columns[places[0]].constant is not ABSENT
    ):
        raise GcfError("invalid_group_header", "rows are grouped by a column that is neither key nor constant")
    return places[0]


def _parse_subheader(line: str, group: str) -> tuple[Any, int]:
    name, end = parse_key(line)
    found = _COUNTED_GROUP(line, end + 1)
    if name != group or line[end : end + 1] != "=" or not found:
        raise GcfError("invalid_group_header", f"{line!a:.80} does not begin a group of {group!a:.80}")
    if found[2] == "0":
        raise GcfError("invalid_count", "a group has at least one row")
    return parse_scalar(found[1]), int(found[2][:18])
