"""Roots: digests by `gcf-pack-root-v1` that identify the contents of packs (SPEC 10.2) and of keyed sets (10a.3)."""

import re
from collections.abc import Iterable
from hashlib import sha256

from deltamcp.gcf.graph_model import SHORT_KINDS, Edge, Symbol, resolve_edges
from deltamcp.gcf.scalars import GcfError, format_number

ALGORITHM = "sha256:"
MIN_DIGITS = 8
SHORT_DIGITS = 12

_HEX = re.compile(rf"(?:{ALGORITHM})?([0-9a-f]{{{MIN_DIGITS},64}})").fullmatch


def pack_root(symbols: Iterable[Symbol], edges: Iterable[Edge]) -> str:
    """Returns the root of a pack, whatever the order of its symbols and edges.

    Scores count as printed, in two decimals, so that a reader of the text computes the same root. Edges that end
    outside of the pack do not count, because they are not printed. No root includes the status of an edge (SPEC 10.2).
    """
    return digest(pack_records(symbols, edges))


def pack_records(symbols: Iterable[Symbol], edges: Iterable[Edge]) -> bytes:
    """Returns the bytes whose digest is the pack's root."""
    symbols = tuple(symbols)
    nodes = [
        record(
            "S", _short_kind(s), s.qualified_name, format_number(float(s.printed_score)), s.provenance, str(s.distance)
        )
        for s in symbols
    ]
    links = [
        record(
            "E", _short_kind(source), source.qualified_name, _short_kind(target), target.qualified_name, edge.edge_type
        )
        for edge, source, target in resolve_edges(symbols, edges)
    ]
    return b"".join([*sorted(nodes), *sorted(links)])


def short_root(root: str, digits: int = SHORT_DIGITS) -> str:
    """Returns the first digits of a root: 12 digits cost 7 tokens, the full root 39 (measured, o200k)."""
    if digits < MIN_DIGITS:
        raise ValueError(f"a root has at least {MIN_DIGITS} digits")
    return root.removeprefix(ALGORITHM)[:digits]


def root_matches(root: str, written: str) -> bool:
    """Returns whether `written`, a full root or its first digits (at least 8), is this root."""
    found = _HEX(written)
    return written == root or (found is not None and root.removeprefix(ALGORITHM).startswith(found[1]))


def _short_kind(symbol: Symbol) -> str:
    return SHORT_KINDS.get(symbol.kind, symbol.kind)


def record(*parts: str) -> bytes:
    """Returns the line that stands for a symbol, an edge or a row in a root."""
    line = "\t".join(parts)
    if "\n" in line or line.count("\t") >= len(parts):
        raise GcfError("invalid_token", f"a root cannot include a name with a tab or a line end: {line!a:.80}")
    return utf8(line + "\n")


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise GcfError("invalid_surrogate", "half of a surrogate pair is not Unicode text") from None


def digest(records: bytes) -> str:
    return ALGORITHM + sha256(records).hexdigest()
