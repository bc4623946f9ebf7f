"""Grouped tables: rows that are written under a value they have in common (SPEC 7.4.8)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.cell_tokens import AttachmentMarker, TokenValues, split_cells
from deltamcp.gcf.generic.cells import ABSENT, SCALAR, CellWriter
from deltamcp.gcf.generic.lines import HEADER
from deltamcp.gcf.generic.schema import RowSchema, SchemaColumn
from deltamcp.gcf.generic.table import all_fields, quote_braces
from deltamcp.gcf.scalars import parse_key, parse_scalar

_COUNTED_GROUP = re.compile(r"(.*) \[(0|[1-9][0-9]*)\]", re.ASCII | re.DOTALL).fullmatch


def encode_generic_grouped(value: Any, key_field: str, group_field: str) -> str:
    """Encode rows of scalars, grouped by their `group_field`, as text that `decode_generic` decodes.

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
    lines = [HEADER, f"## [{len(value)}]{{{','.join(header)}}} group={names[group_place]}"]
    for group, rows in groups.items():
        lines += [f"{names[group_place]}={group} [{len(rows)}]", *rows]
    return "\n".join(lines) + "\n"


def read_grouped_rows(
    lines: Sequence[str], at: int, columns: list[SchemaColumn], clause: str, count: int | None, tokens: TokenValues
) -> tuple[list[dict[str, Any]], int]:
    """Read a grouped table whose `group=` has the value `clause`; return its rows and the index of the next line."""
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
