"""Decoder of the generic profile: turns texts into JSON values (SPEC 7)."""

import re
from collections.abc import Generator
from types import GeneratorType
from typing import Any, Literal

from deltamcp.gcf.generic_cells import (
    ABSENT,
    AbsentCell,
    AttachmentMarker,
    RowSchema,
    SchemaColumn,
    TokenValues,
    parse_columns,
    split_cells,
)
from deltamcp.gcf.generic_table import read_grouped_rows
from deltamcp.gcf.generic_v1 import decode_v1
from deltamcp.gcf.header import MAX_DEPTH, ContentLines
from deltamcp.gcf.scalars import BARE_KEY, GcfError, parse_key, parse_scalar

_COUNT = re.compile(r"\[(?:(0|[1-9][0-9]*)|(\?))(:?)\]", re.ASCII).match
_ID = re.compile(r"@(0|[1-9][0-9]*) ", re.ASCII).match
_MARKER_TYPES = frozenset({AbsentCell, AttachmentMarker})

ReadSteps = Generator["ReadSteps", Any, Any]
"""A generator that reads a section: it yields those of nested sections, is sent their values, and returns its own."""


def decode_generic(text: str | bytes, *, dialect: Literal["v1", "v3"] = "v3") -> Any:
    """Decodes a text in the generic profile, any version from 3.0 to 3.6.

    Graphs, deltas and sets that take part in deltas have functions of their own, which the error names. Texts in the
    v1 dialect have no header that identifies them: the caller has to pass the dialect.
    """
    if dialect == "v1":
        return decode_v1(text)
    lines = ContentLines(text)
    reader = _GenericReader(lines.lines)
    try:
        return reader.read()
    except GcfError as fault:
        if fault.line:
            raise
        raise GcfError(fault.category, fault.message, line=lines.line_number(reader.at)) from None


class _GenericReader:
    def __init__(self, lines: list[str]) -> None:
        self.at = 0
        self._lines = lines
        self._tokens = TokenValues()
        self._schemas: dict[str, tuple[list[SchemaColumn], RowSchema]] = {}
        self._open_counts: list[int] = []
        self._bare_names: set[str] = set()

    def read(self) -> Any:
        first = self._lines[0]
        if first[:1] == "=":
            self.at += 1
            value = self._read_scalar(first[1:])
            surplus_category = "trailing_characters"
        elif first.startswith("## ["):
            self.at += 1
            value = self._run_steps(self._read_array(first, 3, 0, {}, ""))
            surplus_category = "count_mismatch"
        else:
            value = self._run_steps(self._read_members(0))
            surplus_category = "trailing_characters"
        while self._lines[self.at].startswith("##! "):
            self._check_trailer(self._lines[self.at])
            self.at += 1
        if self._lines[self.at]:
            raise GcfError(surplus_category, "lines follow after the end of the value")
        return value

    def _run_steps(self, section: Any) -> Any:
        if type(section) is not GeneratorType:
            return section
        stack: list[ReadSteps] = [section]
        value = None
        while stack:
            try:
                inner = stack[-1].send(value)
            except StopIteration as done:
                value = done.value
                stack.pop()
            else:
                if len(stack) > MAX_DEPTH:
                    raise GcfError("too_deep", f"sections are nested more than {MAX_DEPTH} deep")
                stack.append(inner)
                value = None
        return value

    def _read_scalar(self, token: str) -> Any:
        value = self._tokens[token]
        return parse_scalar(token) if type(value) in _MARKER_TYPES else value

    def _read_members(self, depth: int) -> ReadSteps:
        pad = "  " * depth
        indent = len(pad)
        lines, tokens, bare = self._lines, self._tokens, self._bare_names
        members: dict[str, Any] = {}
        while line := lines[self.at]:
            if not line.startswith(pad):
                break
            content = line[indent:]
            if content[:2] == "##":
                if content[2:4] == "! ":
                    break
                name, end = parse_key(content, 3)
                if name in members:
                    raise _duplicate_key_error(name)
                self.at += 1
                value = self._read_section(content, end, depth)
                if type(value) is GeneratorType:
                    value = yield value
            else:
                name, equals, token = content.partition("=")
                if equals and (name in bare or BARE_KEY.fullmatch(name)):
                    bare.add(name)
                    value = tokens[token]
                    if type(value) in _MARKER_TYPES:
                        value = parse_scalar(token)
                else:
                    name, value = self._read_odd_member(content)
                if name in members:
                    raise _duplicate_key_error(name)
                self.at += 1
            members[name] = value
        return members

    def _read_section(self, content: str, end: int, depth: int) -> Any:
        """Reads the section whose name ends at `end`."""
        if end == len(content):
            return self._read_members(depth + 1) if self._has_deeper_line(depth) else {}
        if content[2] != " " or content[end : end + 2] != " [":
            raise GcfError("invalid_line", f"{content!a:.80} is not a section")
        return self._read_array(content, end + 1, depth, {}, "")

    def _has_deeper_line(self, depth: int) -> bool:
        return self._lines[self.at].startswith("  " * (depth + 1))

    def _read_odd_member(self, content: str) -> tuple[str, Any]:
        """Reads a member whose name is quoted, or whose value is an inline array."""
        if content[0] == " ":
            raise GcfError("invalid_indent", "a line is indented too deeply")
        if content[0] == '"' or BARE_KEY.match(content):
            name, end = parse_key(content)
            if content[end : end + 1] == "=":
                return name, self._read_scalar(content[end + 1 :])
            if (count := _COUNT(content, end)) and content[count.end() : count.end() + 1] == ":":
                return name, self._read_array(content, end, 0, {}, "")
        if content[0] == "@":
            raise GcfError("count_mismatch", "an item follows after the last that was declared")
        if content[0] == ".":
            raise GcfError("orphan_attachment", "an attachment belongs to no row")
        category = "orphan_inline_attachment" if "|" in content else "invalid_line"
        raise GcfError(category, f"{content!a:.80} is not a member")

    def _read_array(self, line: str, start: int, depth: int, shared: dict[str, Any], name: str) -> Any:
        """Reads the array or keyed table whose bracket opens at `start`. `shared` has the columns of earlier tables."""
        if not (found := _COUNT(line, start)):
            raise GcfError("invalid_count", f"{line[start:]!a:.80} does not begin with a count")
        digits, keyed = found[1], bool(found[3])
        # No text has as many lines as a count of more digits says.
        count = None if digits is None else int(digits[:18])
        rest = line[found.end() :].rstrip(" ")
        if rest[:1] == ":" and not keyed and count is not None:
            return self._read_inline_array(rest[1:], count)
        if keyed:
            return self._read_keyed_table(rest, count, depth)
        if not rest and name in shared and count and not self._lines[self.at].startswith("  " * depth + "@"):
            return self._defer_count(self._read_rows(shared[name][1], count, depth), count)
        if not rest:
            return self._defer_count(self._read_items(count, depth), count) if count != 0 else []
        columns, schema, end = self._read_schema(rest)
        if rest[end:].startswith(" group="):
            rows, self.at = read_grouped_rows(self._lines, self.at, columns, rest[end + 7 :], count, self._tokens)
            return rows
        if rest[end:]:
            raise GcfError("trailing_characters", f"{rest[end:]!a:.80} after the columns of a table")
        if any(column.identity for column in columns):
            raise GcfError(
                "participating_payload", "the text is a set that takes part in deltas: use decode_generic_full"
            )
        shared.setdefault(name, (columns, schema))
        return self._defer_count(self._read_rows(schema, count, depth), count)

    def _read_schema(self, rest: str) -> tuple[list[SchemaColumn], RowSchema, int]:
        columns, end = parse_columns(rest, 0)
        text = rest[:end]
        if text not in self._schemas:
            self._schemas[text] = columns, RowSchema(columns)
        return *self._schemas[text], end

    def _read_inline_array(self, text: str, count: int) -> list[Any]:
        if text.strip(" \t") and text[0] != " ":
            raise GcfError("invalid_line", "the values of an array follow after a space")
        tokens = split_cells(text[1:], ",") if text.strip(" \t") else []
        values = list(map(self._tokens.__getitem__, tokens))
        if not _MARKER_TYPES.isdisjoint(map(type, values)):
            values = list(map(parse_scalar, tokens))
        if len(values) != count:
            raise GcfError("count_mismatch", f"{count} values are declared, {len(values)} are present")
        return values

    def _defer_count(self, section: ReadSteps, count: int | None) -> ReadSteps:
        """Returns the section; if its header leaves the count open, count its rows for the trailer (SPEC 8.6)."""
        if count is not None:
            return section
        self._open_counts.append(0)
        return self._record_count(section, len(self._open_counts) - 1)

    def _record_count(self, section: ReadSteps, place: int) -> ReadSteps:
        values = yield section
        self._open_counts[place] = len(values)
        return values

    def _check_trailer(self, line: str) -> None:
        word, *pairs = line[4:].split(" ")
        counts = next((pair[7:].split(",") for pair in pairs if pair.startswith("counts=")), None)
        if word != "summary" or not self._open_counts or counts is None:
            return
        if counts != list(map(str, self._open_counts)):
            raise GcfError("count_mismatch", "the counts of the summary are not those of the rows")

    def _read_items(self, count: int | None, depth: int) -> ReadSteps:
        """Reads an array in the expanded form (SPEC 7.6)."""
        pad = "  " * depth
        items: list[Any] = []
        while len(items) != count and (line := self._lines[self.at]).startswith(pad + "@"):
            found = _ID(line, len(pad))
            if not found or found[1] != str(len(items)):
                raise GcfError("invalid_item_id", f"item {len(items)} has another number")
            self.at += 1
            value = self._read_value(line, found.end(), depth + 1, {}, "")
            if type(value) is GeneratorType:
                value = yield value
            items.append(value)
        if count is not None and len(items) != count:
            raise GcfError("count_mismatch", f"{count} items are declared, {len(items)} are present")
        return items

    def _read_value(self, line: str, start: int, depth: int, shared: dict[str, Any], name: str) -> Any:
        """Reads the value that follows the name of an item or attachment."""
        if line[start : start + 1] == "=":
            return self._read_scalar(line[start + 1 :])
        if line[start:].rstrip(" ") == "{}":
            return self._read_members(depth) if self._lines[self.at].startswith("  " * depth) else {}
        return self._read_array(line, start, depth, shared, name)

    def _read_keyed_table(self, rest: str, count: int | None, depth: int) -> ReadSteps:
        """Reads an object that is written as a table, with its keys in the first column (SPEC 7.2a)."""
        if count == 0:
            raise GcfError("keyed_map", "zero count")
        columns, end = parse_columns(rest, 0) if rest else ([], 0)
        if len(columns) < 2:
            raise GcfError("keyed_map", "a map declares at least two fields")
        if rest[end:] or columns[0].constant is not ABSENT:
            raise GcfError("malformed_header_field", "the key of a map is a column of its own")
        return self._defer_count(self._read_map(RowSchema(columns[1:]), count, depth), count)

    def _read_map(self, schema: RowSchema, count: int | None, depth: int) -> ReadSteps:
        keys: list[Any] = []
        rows = yield self._read_rows(schema, count, depth, keys)
        members = dict(zip(keys, rows, strict=True))
        if len(members) < len(rows):
            raise GcfError("keyed_map", "duplicate member key")
        return members

    def _read_rows(self, schema: RowSchema, count: int | None, depth: int, keys: list[Any] | None = None) -> ReadSteps:
        """Reads the rows of a table; the first cells of a keyed table go to `keys`."""
        pad = "  " * depth
        indent = len(pad)
        lines, tokens, width = self._lines, self._tokens, schema.width + (keys is not None)
        rows: list[dict[str, Any]] = []
        inline: dict[str, list[str]] = {}
        shared: dict[str, Any] = {}
        while len(rows) != count and (line := lines[self.at]):
            if indent:
                if not line.startswith(pad):
                    break
                line = line[indent:]
            first = line[0]
            numbered = False
            if first in "@#. ":
                if first == ".":
                    raise GcfError("orphan_attachment", "an attachment belongs to no row")
                if first != "@":
                    break
                found = _ID(line)
                if not found or found[1] != str(len(rows)):
                    raise GcfError("invalid_item_id", f"row {len(rows)} has another number")
                line = line[found.end() :]
                numbered = True
            cells = split_cells(line, "|") if '"' in line else line.split("|")
            if len(cells) != width:
                raise GcfError("row_width_mismatch", f"{width} cells are declared, {len(cells)} are present")
            values = list(map(tokens.__getitem__, cells))
            self.at += 1
            if keys is not None:
                if type(values[0]) is not str:
                    raise GcfError("keyed_map", "the key of a member is a string")
                keys.append(values.pop(0))
            if nested := numbered or "^" in line:
                marked = {
                    name: mark
                    for name, mark in zip(schema.names, values, strict=True)
                    if type(mark) is AttachmentMarker
                }
            row = schema.build_row(values, sparse="~" in line)
            if nested:
                yield from self._read_attachments(row, marked, depth, inline, shared)
            rows.append(row)
        if count is not None and len(rows) != count:
            raise GcfError("count_mismatch", f"{count} rows are declared, {len(rows)} are present")
        return rows

    def _read_attachments(
        self,
        row: dict[str, Any],
        marked: dict[str, AttachmentMarker],
        depth: int,
        inline: dict[str, list[str]],
        shared: Any,
    ) -> ReadSteps:
        """Reads the attachments under a row, and add them to it (SPEC 7.4.4, 7.4.5.2)."""
        for name, mark in marked.items():
            if name not in row:
                raise GcfError("invalid_attachment_marker", f"{name!a:.80} is a path, which cannot have an attachment")
            if mark.names is not None:
                inline[name] = mark.names
        done: set[str] = set()
        pad = "  " * depth
        while (line := self._lines[self.at]).startswith(pad):
            content = line[len(pad) :].removeprefix("  ")
            if content[:1] == ".":
                self.at += 1
                name, end = parse_key(content, 1)
                if name in done:
                    raise GcfError("duplicate_attachment", f"{name!a:.80} is attached twice")
                if name not in marked and (">" not in name or name in row):
                    raise GcfError("orphan_attachment", f"{name!a:.80} has no cell in its row")
                value = self._read_value(content, end + 1, depth + 2, shared, name)
                if type(value) is GeneratorType:
                    value = yield value
            else:
                eligible = [name for name in marked if name in inline and name not in done]
                if not eligible or not content or content[0] in "@# ":
                    break
                name = eligible[0]
                value = self._read_inline_body(content, inline[name])
                self.at += 1
            row[name] = value
            done.add(name)
        if missing := [name for name in marked if name not in done]:
            raise GcfError("missing_attachment", f"{missing[0]!a:.80} has no value")

    def _read_inline_body(self, content: str, names: list[str]) -> dict[str, Any]:
        cells = split_cells(content, "|")
        if len(cells) != len(names):
            raise GcfError("inline_width_mismatch", f"{len(names)} cells are declared, {len(cells)} are present")
        return dict(zip(names, map(self._read_scalar, cells), strict=True))


def _duplicate_key_error(name: str) -> GcfError:
    return GcfError("duplicate_key", f"{name!a:.80} occurs twice")
