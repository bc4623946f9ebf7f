"""Encoder of the generic profile: JSON values as texts, whole or row by row (SPEC 7, 8)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from deltamcp.gcf.generic_cells import MISSING, OBJECT, SCALAR, CellWriter
from deltamcp.gcf.generic_table import MAX_COLUMNS, EncodedTable, JsonObject, TableEncoder, all_fields
from deltamcp.gcf.generic_v1 import encode_v1
from deltamcp.gcf.header import GENERIC_HEADER, MAX_DEPTH
from deltamcp.gcf.scalars import GcfError

WriteSteps = Iterator["WriteSteps"]
"""A generator that writes a section: it yields those of nested sections, and goes on when they have ended."""


def encode_generic(
    value: Any, *, flatten: bool = True, constants: bool = True, dialect: Literal["v1", "v3"] = "v3"
) -> str:
    """Encodes a JSON value as text that `decode_generic` decodes to the same value.

    The format carries neither the order of a row's keys where it differs from the table's columns, nor the spelling
    of a number: 1.0 comes back as 1.

    Args:
        flatten: whether members of nested objects become columns of a table.
        constants: whether constant columns go into the header, which readers older than GCF 3.6 do not understand.
        dialect: `v1` ignores both, and turns a missing member of a row into null.

    Raises:
        GcfError: the value is not JSON.
    """
    if dialect == "v1":
        return encode_v1(value)
    writer = _GenericWriter(flatten=flatten, constants=constants)
    writer.write(value)
    return "\n".join(writer.lines) + "\n"


class _GenericWriter:
    def __init__(self, *, flatten: bool, constants: bool) -> None:
        self.lines = [GENERIC_HEADER]
        self._cells = CellWriter()
        self._tables = TableEncoder(self._cells, flatten=flatten)
        self._constants = constants

    def write(self, value: Any) -> None:
        kind = self._cells.kinds[type(value)]
        if kind == SCALAR:
            self.lines.append(f"={self._cells.format_column([value])[0]}")
            return
        root = (
            self._write_object("## ", "", value, 0, 0)
            if kind == OBJECT
            else self._write_array("## ", value, 0, factor=True)
        )
        stack = [root] if root else []
        while stack:
            inner = next(stack[-1], None)
            if inner is None:
                stack.pop()
            elif len(stack) == MAX_DEPTH:
                raise GcfError("too_deep", f"sections are nested more than {MAX_DEPTH} deep")
            else:
                stack.append(inner)

    def _write_object(self, lead: str, opening: str, members: JsonObject, inner: int, rows: int) -> WriteSteps | None:
        """Writes an object: as a keyed table after `lead`, or as `opening` and its members at depth `inner`."""
        if fields := self._keyed_fields(members):
            label = "key"
            while label in fields:
                label = f"_{label}"
            values = list(members.values())
            table = self._tables.encode_table(values, fields, "  " * rows, factor=False)
            table.header.insert(0, label)
            table.columns.insert(0, self._cells.format_column(list(members)))
            return self._write_table(f"{lead}[{len(values)}:]", table, rows)
        if opening:
            self.lines.append(opening)
        return self._write_members(members, inner) if members else None

    def _keyed_fields(self, members: JsonObject) -> list[str] | None:
        """Returns the fields of the values if the object is a map of objects, None otherwise (SPEC 7.2a.1)."""
        if len(members) < 2 or self._cells.kinds_of(members.values()) != {OBJECT}:
            return None
        fields = all_fields(list(members.values()))
        list(map(self._cells.names.__getitem__, fields))
        list(map(self._cells.names.__getitem__, members))
        if len(fields) > MAX_COLUMNS or all(">" in name for name in fields):
            return None
        return fields

    def _write_members(self, members: JsonObject, depth: int) -> WriteSteps:
        pad = "  " * depth
        names, kinds = self._cells.names, self._cells.kinds
        formatters, add_line = self._cells.formatters, self.lines.append
        for name, value in members.items():
            kind = kinds[type(value)]
            if kind == SCALAR:
                add_line(f"{pad}{names[name]}={formatters[type(value)](value)}")
                continue
            section = f"{pad}## {names[name]}"
            if kind == OBJECT:
                inner = self._write_object(f"{section} ", section, value, depth + 1, depth)
            else:
                inner = self._write_array(f"{section} ", value, depth, factor=True, inline=f"{pad}{names[name]}")
            if inner:
                yield inner

    def _write_array(
        self, lead: str, items: Sequence[Any], depth: int, *, factor: bool = False, inline: str = ""
    ) -> WriteSteps | None:
        """Writes an array in the first form that fits it (SPEC 7.3); an array of scalars after `inline`, if given."""
        if not items:
            self.lines.append(f"{lead}[0]")
            return None
        kinds = self._cells.kinds_of(items)
        if kinds == {SCALAR}:
            self.lines.append(f"{inline or lead}[{len(items)}]: {','.join(self._cells.format_column(items))}")
            return None
        if kinds == {OBJECT}:
            fields = all_fields(items)
            list(map(self._cells.names.__getitem__, fields))
            if len(fields) <= MAX_COLUMNS and not all(">" in name for name in fields):
                table = self._tables.encode_table(items, fields, "  " * depth, factor=factor and self._constants)
                return self._write_table(f"{lead}[{len(items)}]", table, depth)
        self.lines.append(f"{lead}[{len(items)}]")
        return self._write_items(items, depth)

    def _write_items(self, items: Sequence[Any], depth: int) -> WriteSteps:
        """Writes an array in the expanded form (SPEC 7.6)."""
        pad = "  " * depth
        kinds, formatters = self._cells.kinds, self._cells.formatters
        for index, value in enumerate(items):
            kind = kinds[type(value)]
            lead = f"{pad}@{index} "
            if kind == SCALAR:
                self.lines.append(f"{lead}={formatters[type(value)](value)}")
                continue
            inner = (
                self._write_object(lead, f"{lead}{{}}", value, depth + 1, depth + 1)
                if kind == OBJECT
                else self._write_array(lead, value, depth + 1)
            )
            if inner:
                yield inner

    def _write_table(self, lead: str, table: EncodedTable, depth: int) -> WriteSteps | None:
        self.lines.append(f"{lead}{{{','.join(table.header)}}}")
        pad = "  " * depth
        if table.attachments:
            return self._write_rows(table, pad, depth)
        self.lines.extend(map(pad.__add__, table.lines()) if pad else table.lines())
        return None

    def _write_rows(self, table: EncodedTable, pad: str, depth: int) -> WriteSteps:
        kinds, formatters, add_line = self._cells.kinds, self._cells.formatters, self.lines.append
        for index, line in enumerate(table.lines()):
            numbered = False
            for attached in table.attachments:
                value = attached.values[index]
                kind = kinds[type(value)]
                if kind == MISSING or (kind == SCALAR and ">" not in attached.name):
                    continue
                if not numbered:
                    add_line(f"{pad}@{index} {line}")
                    numbered = True
                lead = f"{pad}.{attached.name} "
                inner = None
                if kind == SCALAR:
                    add_line(f"{lead}={formatters[type(value)](value)}")
                elif attached.lines:
                    add_line(next(attached.lines))
                elif kind == OBJECT:
                    inner = self._write_object(lead, f"{lead}{{}}", value, depth + 2, depth + 2)
                else:
                    inner = self._write_array(lead, value, depth + 2)
                if inner:
                    yield inner
            if not numbered:
                add_line(pad + line)


class GenericStreamEncoder:
    """Writes the members of an object as the caller passes them, line by line; `close` ends the text with the counts.

    The caller writes scalars and inline arrays first, then tables: a reader takes every line after a table without a
    count for another row. A section ends a table, and the members that follow belong to the section.

    Args:
        write: called with each line, including its line end.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._cells = CellWriter()
        self._names: set[str] = set()
        self._section_names: set[str] | None = None
        self._width = 0
        self._keys: set[str] | None = None
        self._table_open = self._closed = False
        self._counts: list[int] = []
        write(f"{GENERIC_HEADER}\n")

    def begin_array(self, name: str, fields: Sequence[str]) -> None:
        """Begins a table called `name` with these columns. Rows are flat, so no column may be a path."""
        self._begin_table(name, "[?]", fields, fields)

    def begin_keyed_map(self, name: str, key_label: str, value_fields: Sequence[str]) -> None:
        """Begins an object called `name`. Each row is a member: first its key, then the fields of its value."""
        self._begin_table(name, "[?:]", value_fields, [key_label, *value_fields])
        self._keys = set()

    def _begin_table(self, name: str, bracket: str, fields: Sequence[str], columns: Sequence[str]) -> None:
        self._check_state(table=False)
        names = [self._cells.names[column] for column in columns]
        if not fields or any(">" in column for column in columns):
            raise GcfError("malformed_header_field", "a stream has columns, and none of them is a path")
        if len(set(columns)) < len(columns):
            raise GcfError("duplicate_field_name", "a table declares a column twice")
        self._section_names = None
        self._write_line(f"## {self._register_name(name)} {bracket}{{{','.join(names)}}}")
        self._table_open, self._width, self._keys = True, len(columns), None
        self._counts.append(0)

    def write_row(self, values: Sequence[Any]) -> None:
        """Writes the next row of the open table: a scalar for each of its columns."""
        self._check_state(table=True)
        if len(values) != self._width:
            raise GcfError("row_width_mismatch", f"{self._width} cells are declared, {len(values)} are present")
        row = "|".join(self._format_scalars(values))
        if self._keys is not None:
            if not isinstance(values[0], str) or values[0] in self._keys:
                raise GcfError("keyed_map", "the keys of a map are strings, and none occurs twice")
            self._keys.add(values[0])
        self._write_line(row)
        self._counts[-1] += 1

    def end_array(self) -> None:
        """End the open table or map."""
        self._check_state(table=True)
        self._table_open = False

    def write_kv(self, name: str, value: Any) -> None:
        """Writes a member with a scalar; it belongs to the last section, or to the text if there is none."""
        (cell,) = self._format_scalars([value])
        self._write_member(name, f"={cell}")

    def write_inline_array(self, name: str, values: Sequence[Any]) -> None:
        """Writes a member with an array of scalars; it belongs to the last section, or to the text if there is none."""
        if values:
            self._write_member(name, f"[{len(values)}]: {','.join(self._format_scalars(values))}")
        else:
            self._write_member(name, " [0]", lead="## ")

    def write_section(self, name: str) -> None:
        """Begins an object called `name`; the scalars and inline arrays that follow are its members."""
        self._check_state(table=False)
        self._section_names = None
        self._write_line(f"## {self._register_name(name)}")
        self._section_names = set()

    def close(self) -> None:
        """End the text. The caller can write nothing more."""
        self._check_state(table=False)
        self._closed = True
        if self._counts:
            self._write(f"##! summary counts={','.join(map(str, self._counts))}\n")

    def _check_state(self, *, table: bool) -> None:
        if self._closed or self._table_open != table:
            reason = "the text is closed" if self._closed else f"a table is {'not ' if table else ''}open"
            raise GcfError("out_of_order", reason)

    def _write_member(self, name: str, rest: str, lead: str = "") -> None:
        self._check_state(table=False)
        if self._counts and self._section_names is None:
            raise GcfError("out_of_order", "a reader would take a member after a table for a row")
        self._write_line(f"{'' if self._section_names is None else '  '}{lead}{self._register_name(name)}{rest}")

    def _register_name(self, name: str) -> str:
        names = self._names if self._section_names is None else self._section_names
        if name in names:
            raise GcfError("duplicate_key", f"{name!a:.80} occurs twice")
        written = self._cells.names[name]
        names.add(name)
        return written

    def _format_scalars(self, values: Sequence[Any]) -> list[str]:
        if values and self._cells.kinds_of(values) != {SCALAR}:
            raise GcfError("unsupported_value", "a stream has scalars only")
        # A stream may be endless: the memo must not grow with it.
        self._cells.texts.clear()
        return self._cells.format_column(values)

    def _write_line(self, line: str) -> None:
        self._write(f"{line}\n")
