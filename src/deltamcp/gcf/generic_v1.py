"""The v1 dialect of the generic profile, whose texts have no header: encoder and decoder (SPEC 1.4, section 6a)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from deltamcp.gcf.generic_cells import ARRAY, OBJECT, SCALAR, CellWriter, parse_columns, split_cells
from deltamcp.gcf.generic_table import JsonObject, all_fields
from deltamcp.gcf.header import ContentLines
from deltamcp.gcf.scalars import GcfError, canonical_cell, format_scalar, parse_key, parse_scalar

MAX_V1_DEPTH = 100

_SAMPLED_ROWS, _MIN_OVERLAP = 5, 0.7
_BRACKET = re.compile(r"\[(0|[1-9][0-9]{0,17})\]", re.ASCII).match
_ID = re.compile(r"@(?:0|[1-9][0-9]*)(?: |\Z)", re.ASCII).match


def encode_v1(value: Any) -> str:
    """Encodes a value in the v1 dialect. A missing member of a row becomes null, and members may change their order."""
    writer = _V1Writer()
    kind = writer.cells.kinds[type(value)]
    if kind == SCALAR:
        text = format_scalar(value)
        return canonical_cell(value) if _member_end(text) else text
    lines = writer.write_members(value, 0) if kind == OBJECT else writer.write_array("## ", "## ", value, 0)
    return "".join(f"{line}\n" for line in lines)


class _V1Writer:
    def __init__(self) -> None:
        self.cells = CellWriter()

    def write_members(self, members: JsonObject, depth: int) -> Iterator[str]:
        """Writes the members of an object; sections of nested objects are one level deeper, like their content."""
        _check_depth(depth)
        pad = "  " * depth
        # Arrays go last: a reader would take an object's section after an array for a part of its last row.
        for name, value in sorted(members.items(), key=self._has_lines):
            kind, written = self.cells.kinds[type(value)], self.cells.names[name]
            if kind == SCALAR:
                yield f"{pad}{written}={format_scalar(value)}"
            elif kind == OBJECT:
                yield f"{pad}  ## {written}"
                yield from self.write_members(value, depth + 1)
            else:
                yield from self.write_array(f"{pad}## {written} ", f"{pad}{written}", value, depth)

    def _has_lines(self, member: tuple[str, Any]) -> bool:
        kinds = self.cells.kinds
        return kinds[type(member[1])] == ARRAY and self.cells.kinds_of(member[1]) != {SCALAR}

    def write_array(self, lead: str, inline: str, items: Sequence[Any], depth: int) -> Iterator[str]:
        _check_depth(depth)
        kinds = self.cells.kinds_of(items)
        if kinds == {SCALAR}:
            yield f"{inline}[{len(items)}]: {','.join(self.cells.format_column(items))}"
        elif kinds == {OBJECT} and _is_uniform(items) and (columns := self._scalar_columns(items)):
            yield f"{lead}[{len(items)}]{{{','.join(map(self.cells.names.__getitem__, columns))}}}"
            yield from self._write_rows(items, columns, depth)
        else:
            yield f"{lead}[{len(items)}]"
            yield from self._write_items(items, depth)

    def _scalar_columns(self, rows: Sequence[JsonObject]) -> list[str]:
        nested = {name for row in rows for name, value in row.items() if self.cells.kinds[type(value)] != SCALAR}
        return [name for name in all_fields(rows) if name not in nested]

    def _write_rows(self, rows: Sequence[JsonObject], columns: list[str], depth: int) -> Iterator[str]:
        pad = "  " * depth
        for place, row in enumerate(rows):
            line = "|".join([format_scalar(row.get(name)) for name in columns])
            nested = {name: value for name, value in row.items() if name not in columns}
            yield f"{pad}@{place} {line}" if nested else pad + line
            # Arrays go first: a reader would take them for members of an object's section before them.
            objects = {name: value for name, value in nested.items() if self.cells.kinds[type(value)] == OBJECT}
            yield from self.write_members({name: nested[name] for name in nested if name not in objects}, depth + 1)
            yield from self.write_members(objects, depth)

    def _write_items(self, items: Sequence[Any], depth: int) -> Iterator[str]:
        pad = "  " * depth
        for place, value in enumerate(items):
            kind = self.cells.kinds[type(value)]
            if kind == SCALAR:
                yield f"{pad}@{place} ={format_scalar(value)}"
            elif kind == ARRAY:
                yield from self.write_array(f"{pad}@{place} ", f"{pad}@{place} ", value, depth + 1)
            else:
                yield f"{pad}@{place}"
                yield from self.write_members(value, depth + 1)


def _check_depth(depth: int) -> None:
    if depth > MAX_V1_DEPTH:
        raise GcfError("too_deep", f"a v1 text cannot be nested deeper than {MAX_V1_DEPTH}")


def _is_uniform(rows: Sequence[JsonObject]) -> bool:
    first = set(rows[0])
    return all(len(first & set(row)) >= _MIN_OVERLAP * len(first | set(row)) for row in rows[:_SAMPLED_ROWS])


def _member_end(content: str) -> int:
    """Returns the index after the name of a member; 0 if the line is not a member."""
    try:
        _, end = parse_key(content)
    except GcfError:
        return 0
    bracket = _BRACKET(content, end)
    after = content[bracket.end() : bracket.end() + 1] if bracket else ""
    return end if content[end : end + 1] == "=" or after == ":" else 0


def decode_v1(text: str | bytes) -> Any:
    """Decodes a text in the v1 dialect; a single line that is not a member is a scalar."""
    lines = ContentLines(text, headed=False)
    reader = _V1Reader(lines.lines)
    try:
        return reader.read()
    except GcfError as fault:
        raise GcfError(fault.category, fault.message, line=lines.line_number(reader.at)) from None


class _V1Reader:
    def __init__(self, lines: list[str]) -> None:
        self.at = 0
        self._lines = lines

    def read(self) -> Any:
        first = self._lines[0]
        if not first:
            return {}
        if len(self._lines) == 2 and not first.lstrip().startswith("##") and not _member_end(first):
            return parse_scalar(first)
        value: Any
        if first.startswith("## ["):
            self.at += 1
            value = self._read_array(first, 3, 0)
        else:
            value = self._read_members(0)
        if self._lines[self.at]:
            raise GcfError("invalid_line", f"{self._lines[self.at]!a:.80} is not part of the value")
        return value

    def _read_members(self, depth: int) -> JsonObject:
        _check_depth(depth)
        members: JsonObject = {}
        pad = "  " * depth
        while line := self._lines[self.at]:
            if line.startswith(f"{pad}  ## "):
                name, end = parse_key(line, len(pad) + 5)
                if end != len(line):
                    break
                self.at += 1
                value: Any = self._read_members(depth + 1)
            elif line.startswith(f"{pad}## "):
                name, end = parse_key(line, len(pad) + 3)
                if end == len(line):
                    break
                self.at += 1
                value = self._read_array(line, end + 1, depth)
            elif line.startswith(pad) and (end := _member_end(line[len(pad) :])):
                end += len(pad)
                name, _ = parse_key(line, len(pad))
                self.at += 1
                value = parse_scalar(line[end + 1 :]) if line[end] == "=" else self._read_array(line, end, depth)
            else:
                break
            if name in members:
                raise GcfError("duplicate_key", f"{name!a:.80} occurs twice")
            members[name] = value
        return members

    def _read_array(self, line: str, start: int, depth: int) -> list[Any]:
        _check_depth(depth)
        if not (found := _BRACKET(line, start)):
            raise GcfError("invalid_count", f"{line[start:]!a:.80} does not begin with a count")
        count, rest = int(found[1]), line[found.end() :]
        if rest[:2] == ": ":
            items = list(map(parse_scalar, split_cells(rest[2:], ",")))
        elif rest:
            columns, _ = parse_columns(rest, 0)
            items = list(self._read_rows([column.name for column in columns], count, depth))
        else:
            items = list(self._read_items(count, depth))
        if len(items) != count:
            raise GcfError("count_mismatch", f"{count} items are declared, {len(items)} are present")
        return items

    def _read_rows(self, names: list[str], count: int, depth: int) -> Iterator[JsonObject]:
        pad = "  " * depth
        while count and (line := self._lines[self.at]).startswith(pad) and line:
            content = line[len(pad) :]
            numbered = _ID(content)
            cells = split_cells(content[numbered.end() :] if numbered else content, "|")
            if len(cells) != len(names):
                raise GcfError("row_width_mismatch", f"{len(names)} cells are declared, {len(cells)} are present")
            self.at += 1
            row = dict(zip(names, map(parse_scalar, cells), strict=True))
            if numbered:
                self._read_attachments(depth, row)
            yield row
            count -= 1

    def _read_attachments(self, depth: int, row: JsonObject) -> None:
        """Reads the members under a row, one level deeper, and add them to it."""
        pad = "  " * (depth + 1)
        while (line := self._lines[self.at]).startswith(pad):
            section = line.startswith(f"{pad}## ")
            if not section and not _member_end(line[len(pad) :]):
                return
            name, end = parse_key(line, len(pad) + 3 * section)
            self.at += 1
            if end == len(line):
                row[name] = self._read_members(depth + 1)
            elif line[end] == "=":
                row[name] = parse_scalar(line[end + 1 :])
            else:
                row[name] = self._read_array(line, end + section, depth + 1)

    def _read_items(self, count: int, depth: int) -> Iterator[Any]:
        pad = "  " * depth
        while count and (line := self._lines[self.at]).startswith(pad):
            found = _ID(line, len(pad))
            if not found:
                return
            self.at += 1
            rest = line[found.end() :]
            if rest[:1] == "=":
                yield parse_scalar(rest[1:])
            elif rest:
                yield self._read_array(line, found.end(), depth + 1)
            else:
                yield self._read_members(depth + 1)
            count -= 1
