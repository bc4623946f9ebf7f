"""Stream encoder of the generic profile: writes row by row, before the number of rows is known (SPEC 8)."""

from collections.abc import Callable, Sequence
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.cells import SCALAR, CellWriter
from deltamcp.gcf.generic.lines import HEADER


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
        write(f"{HEADER}\n")

    def begin_array(self, name: str, fields: Sequence[str]) -> None:
        """Begin a table called `name` with these columns. Rows are flat, so no column may be a path."""
        self._begin_table(name, "[?]", fields, fields)

    def begin_keyed_map(self, name: str, key_label: str, value_fields: Sequence[str]) -> None:
        """Begin an object called `name`. Each row is a member: first its key, then the fields of its value."""
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
        """Write the next row of the open table: a scalar for each of its columns."""
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
        """Write a member with a scalar; it belongs to the last section, or to the text if there is none."""
        (cell,) = self._format_scalars([value])
        self._write_member(name, f"={cell}")

    def write_inline_array(self, name: str, values: Sequence[Any]) -> None:
        """Write a member with an array of scalars; it belongs to the last section, or to the text if there is none."""
        if values:
            self._write_member(name, f"[{len(values)}]: {','.join(self._format_scalars(values))}")
        else:
            self._write_member(name, " [0]", lead="## ")

    def write_section(self, name: str) -> None:
        """Begin an object called `name`; the scalars and inline arrays that follow are its members."""
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
