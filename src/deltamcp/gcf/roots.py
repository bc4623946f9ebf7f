"""The names of contents: `gcf-pack-root-v1` of packs and of keyed sets (SPEC 10.2, 10a.3)."""

import re
from collections.abc import Iterable
from hashlib import sha256

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.graph.model import SHORT_KINDS, Edge, Symbol, resolve_edges
from deltamcp.gcf.keyed.model import GenericSet
from deltamcp.gcf.scalars import format_number

ALGORITHM = "sha256:"
MIN_DIGITS = 8
SHORT_DIGITS = 12

_HEX = re.compile(rf"(?:{ALGORITHM})?([0-9a-f]{{{MIN_DIGITS},64}})").fullmatch


def pack_root(symbols: Iterable[Symbol], edges: Iterable[Edge]) -> str:
    """The root of a pack, in whatever order its parts come.

    Scores count as printed, in two decimals, so that a reader of the text finds the same root; edges that end outside
    of the pack do not count, for they are not printed. An edge's status is in no root (SPEC 10.2).
    """
    return _digest(pack_records(symbols, edges))


def pack_records(symbols: Iterable[Symbol], edges: Iterable[Edge]) -> bytes:
    """The bytes whose digest is the pack's root."""
    symbols = tuple(symbols)
    nodes = [
        _record(
            "S", _short_kind(s), s.qualified_name, format_number(float(s.printed_score)), s.provenance, str(s.distance)
        )
        for s in symbols
    ]
    links = [
        _record(
            "E", _short_kind(source), source.qualified_name, _short_kind(target), target.qualified_name, edge.edge_type
        )
        for edge, source, target in resolve_edges(symbols, edges)
    ]
    return b"".join([*sorted(nodes), *sorted(links)])


def generic_pack_root(rows: GenericSet) -> str:
    """The root of a keyed set, in whatever order its rows and fields come.

    Integers count to their last digit. An absent cell is `~` and a null `-`, so that they differ; the reference takes
    both for `-`, and agrees with this wherever every row has every field.
    """
    order = sorted(rows.fields, key=lambda field: _utf8(field))
    records = [
        _record("R", *(part for field in order for part in (field, cells[field])))
        for cells in rows.canonical_cells().values()
    ]
    return _digest(b"".join(sorted(records)))


def short_root(root: str, digits: int = SHORT_DIGITS) -> str:
    """The first digits of a root: 12 cost 7 tokens where the whole costs 39 (measured, o200k)."""
    if digits < MIN_DIGITS:
        raise ValueError(f"a root has at least {MIN_DIGITS} digits")
    return root.removeprefix(ALGORITHM)[:digits]


def root_matches(root: str, written: str) -> bool:
    """Whether `written`, a root in full or its first digits (8 at least), is this root."""
    found = _HEX(written)
    return written == root or (found is not None and root.removeprefix(ALGORITHM).startswith(found[1]))


def _short_kind(symbol: Symbol) -> str:
    return SHORT_KINDS.get(symbol.kind, symbol.kind)


def _record(*parts: str) -> bytes:
    record = "\t".join(parts)
    if "\n" in record or record.count("\t") >= len(parts):
        raise GcfError("invalid_token", f"a name with a tab or a line end has no root: {record!a:.80}")
    return _utf8(record + "\n")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise GcfError("invalid_surrogate", "half of a surrogate pair is no Unicode text") from None


def _digest(records: bytes) -> str:
    return ALGORITHM + sha256(records).hexdigest()
