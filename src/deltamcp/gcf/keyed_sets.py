"""Keyed sets, which are flat rows that one field identifies, and deltas between them (SPEC 10a).

Deltas are made, applied, written and read, and sent to one reader in a session.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from deltamcp.gcf.generic_cells import ABSENT as NO_CONSTANT
from deltamcp.gcf.generic_cells import parse_columns, split_cells
from deltamcp.gcf.header import (
    digest,
    errors_at_line,
    open_text,
    parse_count,
    record,
    root_matches,
    savings,
    short_root,
    utf8,
    write_header,
)
from deltamcp.gcf.scalars import GcfError, canonical_cell, format_key, format_scalar, parse_key, parse_scalar

KeyedRow: TypeAlias = Mapping[str, Any]
"""Cells by field. A missing field is absent, which is not the same as null."""
ABSENT_MARK = "~"
_PLAIN_KEY = re.compile(r"[\x21\x23-\x7e][\x21-\x7e]*").fullmatch
_COUNT = re.compile(r" \[([0-9]+)\](?=\{)")
_SECTIONS = ("added", "changed", "removed")
DEFAULT_REANCHOR_N = 15


@dataclass(frozen=True, slots=True)
class GenericSet:
    """A set of rows, in the order in which they are sent. Sets that differ only in that order have the same root.

    A row has scalars only, and no fields other than `fields`; its `key` is neither absent nor null. The set copies the
    rows that the caller passes.
    """

    key: str
    fields: Sequence[str]
    rows: Sequence[KeyedRow]
    name: str = "rows"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "rows", tuple(map(dict, self.rows)))
        check_fields(self.key, self.fields)
        known = set(self.fields)
        for row in self.rows:
            check_row(row, self.key, known)

    def by_identity(self) -> dict[str, KeyedRow]:
        """Returns the rows by the canonical form of their key.

        Raises:
            GcfError: two rows have the same key.
        """
        rows: dict[str, KeyedRow] = {}
        for row in self.rows:
            if (identity := canonical_cell(row[self.key])) in rows:
                raise GcfError("duplicate_key", f"two rows have the {self.key!a:.80} {identity!a:.80}")
            rows[identity] = row
        return rows

    def canonical_cells(self) -> dict[str, dict[str, str]]:
        """Returns each row's cells in the form that roots and comparisons use, by the canonical form of its key."""
        return {
            identity: {field: canonical_cell(row[field]) if field in row else ABSENT_MARK for field in self.fields}
            for identity, row in self.by_identity().items()
        }


@dataclass(frozen=True, slots=True)
class GenericDelta:
    """The changes from the set with `base_root` to the set with `new_root`: whole rows, and the keys of removed ones.

    `fields` is empty in a delta decoded from a text without added or changed rows, because such a text has no fields.
    """

    key: str
    fields: Sequence[str]
    base_root: str
    new_root: str
    added: Sequence[KeyedRow] = ()
    changed: Sequence[KeyedRow] = ()
    removed: Sequence[Any] = ()
    tool: str = ""
    delta_tokens: int = 0
    full_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("fields", "added", "changed", "removed"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.fields:
            check_fields(self.key, self.fields)
        known = set(self.fields)
        for row in (*self.added, *self.changed):
            check_row(row, self.key, known)
        self.identities()

    def identities(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Returns the canonical identities of the added, the changed and the removed rows.

        Raises:
            GcfError: an identity occurs twice.
        """
        added = tuple(canonical_cell(row[self.key]) for row in self.added)
        changed = tuple(canonical_cell(row[self.key]) for row in self.changed)
        removed = tuple(canonical_cell(identity) for identity in self.removed)
        identities = (*added, *changed, *removed)
        if len(set(identities)) != len(identities):
            raise GcfError("duplicate_key", f"a delta names one {self.key!a:.80} twice")
        return added, changed, removed


def check_fields(key: str, fields: Sequence[str]) -> None:
    """Refuses fields that occur twice, or a key that is not one of them."""
    if not all(isinstance(field, str) for field in fields):
        raise GcfError("unsupported_value", "the name of a field is not a string")
    if len(set(fields)) != len(fields):
        raise GcfError("duplicate_field_name", f"{fields!a:.80}")
    if key not in fields:
        raise GcfError("missing_key", f"the key {key!a:.80} is not one of the fields")


def check_row(row: KeyedRow, key: str, fields: set[str]) -> None:
    """Refuses a row without a key, or with cells that are not in the fields."""
    if row.get(key) is None:
        raise GcfError("missing_key", f"a row has no {key!a:.80}")
    if not row.keys() <= fields:
        raise GcfError("row_width_mismatch", f"a row has cells that are not in the fields: {list(row)!a:.80}")


def generic_pack_root(rows: GenericSet) -> str:
    """Returns the root of a keyed set, whatever the order of its rows and fields.

    Integers count to their last digit. An absent cell counts as `~` and a null as `-`, so that they differ. The
    reference implementation takes both for `-`: its roots are the same wherever every row has every field.
    """
    order = sorted(rows.fields, key=lambda field: utf8(field))
    records = [
        record("R", *(part for field in order for part in (field, cells[field])))
        for cells in rows.canonical_cells().values()
    ]
    return digest(b"".join(sorted(records)))


def encode_generic_full(rows: GenericSet, tool: str = "", *, root_digits: int | None = None) -> str:
    """Encodes a whole set, the base of later deltas, with its root or the first `root_digits` of it."""
    root = generic_pack_root(rows)
    pairs = [("profile", "generic"), ("tool", tool)]
    pairs.append(("pack_root", root if root_digits is None else short_root(root, root_digits)))
    header = write_header([*((name, value) for name, value in pairs if value), ("key", _header_key(rows.key))])
    return "\n".join([header, *_section_lines(rows.name, rows.key, rows.fields, rows.rows), ""])


def encode_generic_delta(delta: GenericDelta) -> str:
    """Encodes a delta; its rows keep their order. The header has savings if `full_tokens` is known."""
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
    """Decodes a set; return it and the root that the text states.

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
    """Decodes a delta. The text has a percentage but no token counts, so both counts are 0."""
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
    """Yields the name, key, fields and rows of each section."""
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


def diff_generic_sets(base: GenericSet, new: GenericSet) -> GenericDelta:
    """Returns the delta from `base` to `new`, each part ordered by identity.

    Raises:
        GcfError: the sets have different keys, fields or names.
    """
    if (base.key, base.fields, base.name) != (new.key, new.fields, new.name):
        raise GcfError("delta_invalid", "the sets have different keys, fields or names: send the new one in full")
    before, after = base.canonical_cells(), new.canonical_cells()
    rows = dict(sorted(new.by_identity().items()))
    removed_keys = sorted(
        (identity, row[base.key]) for identity, row in base.by_identity().items() if identity not in after
    )
    return GenericDelta(
        key=new.key,
        fields=new.fields,
        base_root=generic_pack_root(base),
        new_root=generic_pack_root(new),
        added=[row for identity, row in rows.items() if identity not in before],
        changed=[row for identity, row in rows.items() if before.get(identity, after[identity]) != after[identity]],
        removed=[value for _, value in removed_keys],
    )


def verify_generic_delta(base: GenericSet, delta: GenericDelta) -> GenericSet:
    """Applies a delta and return the new set: changed rows keep their places, added ones are at the end.

    Both roots of the delta may be short ones.

    Raises:
        GcfError: `base_mismatch` if the delta builds on another set, `delta_invalid` if it contradicts this one,
            `root_mismatch` if the new set has another root than the delta says. The reader then needs the full set.
    """
    if not root_matches(generic_pack_root(base), delta.base_root):
        raise GcfError("base_mismatch", f"the delta builds on {delta.base_root:.80}")
    if delta.key != base.key or (delta.fields and delta.fields != base.fields):
        raise GcfError("delta_invalid", "the delta has another key or other fields than its base")
    rows = base.by_identity()
    added, changed, removed = delta.identities()
    for identity in added:
        if identity in rows:
            raise GcfError("delta_invalid", f"the added {identity!a:.80} already exists")
    for identity in (*changed, *removed):
        if identity not in rows:
            raise GcfError("delta_invalid", f"the changed or removed {identity!a:.80} does not exist")
    rows.update(zip(changed, delta.changed, strict=True))
    for identity in removed:
        del rows[identity]
    rows.update(zip(added, delta.added, strict=True))
    new_set = replace(base, rows=tuple(rows.values()))
    if not root_matches(generic_pack_root(new_set), delta.new_root):
        raise GcfError("root_mismatch", f"the new set does not have the root {delta.new_root:.80}")
    return new_set


@dataclass(frozen=True, slots=True)
class Reanchor:
    """When to send the full set again: on every n-th turn or, with 0, once the deltas have as many bytes."""

    every: int


def fixed_n(n: int = DEFAULT_REANCHOR_N) -> Reanchor:
    """Sends the full set on every n-th turn."""
    if n < 1:
        raise ValueError("n is at least 1")
    return Reanchor(n)


def size_guard() -> Reanchor:
    """Sends the full set once the deltas since the last full set, the next one included, have as many bytes."""
    return Reanchor(0)


class GenericDeltaSession:
    """Encodes the states of a keyed set for one reader. Only full sets name the tool; deltas do not repeat it."""

    def __init__(self, base: GenericSet, tool: str = "", policy: Reanchor | None = None) -> None:
        self._current = base
        self._tool = tool
        self._policy = policy or fixed_n()
        self._delta_bytes = 0
        self.turn: int = 0

    def current_full(self) -> str:
        """Returns the full text of the current set: the first text to send, and the one to send if a text was lost."""
        return encode_generic_full(self._current, self._tool)

    def next(self, new: GenericSet) -> tuple[str, bool]:
        """Returns the text that brings the reader to `new`, and whether it is a full set."""
        delta = self._encode_delta(new)
        full = not delta or self._is_full_due(new, delta)
        text = encode_generic_full(new, self._tool) if full else delta
        self._current, self.turn = new, self.turn + 1
        self._delta_bytes = 0 if full else self._delta_bytes + len(delta.encode())
        return text, full

    def _is_full_due(self, new: GenericSet, delta: str) -> bool:
        if self._policy.every:
            return (self.turn + 1) % self._policy.every == 0
        return self._delta_bytes + len(delta.encode()) >= len(encode_generic_full(new, self._tool).encode())

    def _encode_delta(self, new: GenericSet) -> str:
        """Returns the delta to `new`; "" if there is none, because the set has another key, name or fields now."""
        old = self._current
        if (old.key, old.fields, old.name) != (new.key, new.fields, new.name):
            return ""
        return encode_generic_delta(diff_generic_sets(old, new))
