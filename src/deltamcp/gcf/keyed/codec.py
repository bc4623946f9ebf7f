"""Encoder and decoder of keyed sets and of deltas between them (SPEC 10a.1, 10a.2)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.cell_tokens import split_cells
from deltamcp.gcf.generic.cells import ABSENT as NO_CONSTANT
from deltamcp.gcf.generic.schema import parse_columns
from deltamcp.gcf.header import errors_at_line, open_text, parse_count, savings, write_header
from deltamcp.gcf.keyed.model import ABSENT_MARK, GenericDelta, GenericSet, KeyedRow
from deltamcp.gcf.roots import generic_pack_root, short_root
from deltamcp.gcf.scalars import format_key, format_scalar, parse_key, parse_scalar

_PLAIN_KEY = re.compile(r"[\x21\x23-\x7e][\x21-\x7e]*").fullmatch
_COUNT = re.compile(r" \[([0-9]+)\](?=\{)")
_SECTIONS = ("added", "changed", "removed")


def encode_generic_full(rows: GenericSet, tool: str = "", *, root_digits: int | None = None) -> str:
    """Encode a whole set, the base of later deltas, with its root or the first `root_digits` of it."""
    root = generic_pack_root(rows)
    pairs = [("profile", "generic"), ("tool", tool)]
    pairs.append(("pack_root", root if root_digits is None else short_root(root, root_digits)))
    header = write_header([*((name, value) for name, value in pairs if value), ("key", _header_key(rows.key))])
    return "\n".join([header, *_section_lines(rows.name, rows.key, rows.fields, rows.rows), ""])


def encode_generic_delta(delta: GenericDelta) -> str:
    """Encode a delta; its rows keep their order. The header has savings if `full_tokens` is known."""
    pairs = [("profile", "generic"), ("tool", delta.tool)] if delta.tool else [("profile", "generic")]
    pairs += [("delta", "true"), ("base_root", delta.base_root), ("new_root", delta.new_root)]
    pairs.append(("key", _header_key(delta.key)))
    if delta.full_tokens > 0:
        pairs.append(("savings", savings(delta.delta_tokens, delta.full_tokens)))
    lines = [write_header(pairs)]
    removed = [{delta.key: identity} for identity in delta.removed]
    for name, fields, rows in (
        ("added", delta.fields, delta.added),
        ("changed", delta.fields, delta.changed),
        ("removed", (delta.key,), removed),
    ):
        if rows:
            lines.extend(_section_lines(name, delta.key, fields, rows))
    return "\n".join([*lines, ""])


def decode_generic_full(text: str) -> tuple[GenericSet, str]:
    """Decode a set; return it and the root that the text states.

    The caller compares that root with `generic_pack_root` before it applies deltas to the set.
    """
    header, lines = open_text(text, "generic-full")
    sections = list(_read_sections(lines))
    if len(sections) != 1 or "pack_root" not in header:
        raise GcfError("malformed_full", "a full payload has a root and one section")
    name, key, fields, rows = sections[0]
    if key != _read_key(header["key"]):
        raise GcfError("missing_key", f"the header has another key than the columns: {key!a:.80}")
    decoded = GenericSet(key, fields, rows, name)
    decoded.by_identity()
    return decoded, header["pack_root"]


def decode_generic_delta(text: str) -> GenericDelta:
    """Decode a delta. The text has a percentage but no token counts, so both counts are 0."""
    header, lines = open_text(text, "generic-delta")
    if not header.keys() >= {"base_root", "new_root", "key"}:
        raise GcfError("malformed_delta", "a delta has a base_root, a new_root and a key", line=1)
    key = _read_key(header["key"])
    fields: Sequence[str] = ()
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, marked_key, columns, rows in _read_sections(lines):
        if name not in _SECTIONS or name in parts or marked_key != key:
            raise GcfError("malformed_delta", f"unexpected section {name!a:.80} with the key {marked_key!a:.80}")
        if name != "removed":
            if fields and fields != columns:
                raise GcfError("malformed_delta", "added and changed rows have different fields")
            fields = columns
        elif columns != (key,):
            raise GcfError("malformed_delta", "removed rows are named by their key alone")
        parts[name] = rows
    return GenericDelta(
        key=key,
        fields=fields,
        base_root=header["base_root"],
        new_root=header["new_root"],
        added=parts.get("added", ()),
        changed=parts.get("changed", ()),
        removed=[row.get(key) for row in parts.get("removed", ())],
        tool=header.get("tool", ""),
    )


def _header_key(name: str) -> str:
    # A header value is printable ASCII without spaces; a JSON string with escapes can carry any name.
    return name if _PLAIN_KEY(name) else json.dumps(name).replace(" ", r"\u0020")


def _read_key(value: str) -> str:
    return str(parse_scalar(value)) if value.startswith('"') else value


def _section_lines(name: str, key: str, fields: Sequence[str], rows: Sequence[KeyedRow]) -> Iterator[str]:
    columns = ",".join(f"{'@' if field == key else ''}{format_key(field)}" for field in fields)
    yield f"## {format_key(name)} [{len(rows)}]{{{columns}}}"
    for row in rows:
        yield "|".join([format_scalar(row[field]) if field in row else ABSENT_MARK for field in fields])


def _read_sections(
    lines: Iterator[tuple[int, str]],
) -> Iterator[tuple[str, str, tuple[str, ...], list[dict[str, Any]]]]:
    """Yield the name, key, fields and rows of each section."""
    head = next(lines, None)
    while head is not None:
        with errors_at_line(head[0]):
            name, count, key, fields = _read_section_line(head[1])
        rows: list[dict[str, Any]] = []
        for number, line in lines:
            # An unquoted cell never begins with # (SPEC 2.4), so this is not a row.
            if line.startswith("## "):
                head = number, line
                break
            with errors_at_line(number):
                rows.append(_read_row(line, fields))
        else:
            head = None
        if len(rows) != count:
            raise GcfError("count_mismatch", f"{count} rows are declared in {name!a:.80}, {len(rows)} are present")
        yield name, key, fields, rows


def _read_section_line(line: str) -> tuple[str, int, str, tuple[str, ...]]:
    if not line.startswith("## "):
        raise GcfError("malformed_section", "rows before the first section")
    name, place = parse_key(line, 3)
    if not (count := _COUNT.match(line, place)):
        raise GcfError("malformed_section", f"{line!a:.80}")
    columns, end = parse_columns(line, count.end())
    keys = [column.name for column in columns if column.identity]
    if end != len(line) or len(keys) != 1 or any(column.constant is not NO_CONSTANT for column in columns):
        raise GcfError("malformed_section", f"{line!a:.80}")
    return name, parse_count("rows", count[1]), keys[0], tuple(column.name for column in columns)


def _read_row(line: str, fields: tuple[str, ...]) -> dict[str, Any]:
    cells = split_cells(line, "|")
    if len(cells) != len(fields):
        raise GcfError("row_width_mismatch", f"{len(cells)} cells for {len(fields)} fields")
    pairs = zip(fields, cells, strict=True)
    return {field: parse_scalar(cell) for field, cell in pairs if cell.strip(" \t") != ABSENT_MARK}
