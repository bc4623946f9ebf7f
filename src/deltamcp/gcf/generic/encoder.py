"""Encoder of the generic profile: turns JSON values into texts (SPEC 7)."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.cells import MISSING, OBJECT, SCALAR, CellWriter
from deltamcp.gcf.generic.lines import HEADER, MAX_DEPTH
from deltamcp.gcf.generic.table import MAX_COLUMNS, EncodedTable, JsonObject, TableEncoder, all_fields
from deltamcp.gcf.generic.v1 import encode_v1

WriteSteps = Iterator["WriteSteps"]
"""A generator that writes a section: it yields those of nested sections, and goes on when they have ended."""


def encode_generic(
    value: Any, *, flatten: bool = True, constants: bool = True, dialect: Literal["v1", "v3"] = "v3"
) -> str:
    """Encode a JSON value as text that `decode_generic` decodes to the same value.

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
        self.lines = [HEADER]
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
        """Write an object: as a keyed table after `lead`, or as `opening` and its members at depth `inner`."""
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
        """Return the fields of the values if the object is a map of objects, None otherwise (SPEC 7.2a.1)."""
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
        """Write an array in the first form that fits it (SPEC 7.3); an array of scalars after `inline`, if given."""
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
        """Write an array in the expanded form (SPEC 7.6)."""
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
