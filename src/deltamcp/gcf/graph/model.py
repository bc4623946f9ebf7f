"""Data model of the graph profile: symbols, edges, packs of both, and deltas between packs (SPEC 5 to 6a, 10)."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.header import check_count, check_token

SHORT_KINDS = {
    "function": "fn",
    "type": "type",
    "method": "method",
    "interface": "iface",
    "var": "var",
    "const": "const",
    "resource": "resource",
    "table": "table",
    "class": "class",
    "selector": "selector",
    "field": "field",
    "route_handler": "route",
    "external": "ext",
    "file": "file",
    "package": "pkg",
    "service": "svc",
}
"""Kinds and their short forms on the wire; any other kind is its own short form."""

_LONG_KINDS = {short: kind for kind, short in SHORT_KINDS.items()}

GROUPS = ("targets", "related", "extended")
"""Names of the groups at distance 0, 1 and 2; farther ones are `distance_3`, `distance_4`, …"""

DELTA_SECTIONS = ("removed", "added", "edges_removed", "edges_added")
"""The parts of a delta, in the order they are written (SPEC 10.1, 10.5)."""

_DISTANCE_GROUP = re.compile(r"distance_([0-9]{1,18})").fullmatch


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named symbol of code. The short form of a kind means the kind: `fn` and `function` are the same."""

    qualified_name: str
    kind: str
    score: float = 0.0
    provenance: str = ""
    distance: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _LONG_KINDS.get(self.kind, self.kind))

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.qualified_name

    @property
    def printed_score(self) -> str:
        """The score in two decimals, the exact double rounded half to even (SPEC 5)."""
        if not abs(self.score) <= sys.float_info.max:
            raise GcfError("invalid_score", f"{self.qualified_name!a:.80} has the score {self.score}")
        return f"{float(self.score):.2f}"

    @property
    def declaration(self) -> str:
        """The part of the symbol's line that follows its id."""
        kind = check_token("kind", SHORT_KINDS.get(self.kind, self.kind))
        name = check_token("qualified_name", self.qualified_name)
        return f"{kind} {name} {self.printed_score} {check_token('provenance', self.provenance)}"


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation of type `edge_type`, such as `calls`, from `source` to `target`; both are qualified names."""

    source: str
    target: str
    edge_type: str
    status: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.source, self.target, self.edge_type

    @property
    def printed_status(self) -> str:
        return "" if self.status == "unchanged" else self.status


@dataclass(frozen=True, slots=True)
class Payload:
    """A pack: the full answer of a tool."""

    tool: str = ""
    tokens_used: int = 0
    token_budget: int = 0
    pack_root: str = ""
    symbols: Sequence[Symbol] = ()
    edges: Sequence[Edge] = ()

    def __post_init__(self) -> None:
        for name in ("symbols", "edges"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class DeltaPayload:
    """The changes from the pack with `base_root` to the pack with `new_root`.

    Of removed symbols only kind and name count.
    """

    tool: str
    base_root: str
    new_root: str
    removed: Sequence[Symbol] = ()
    added: Sequence[Symbol] = ()
    removed_edges: Sequence[Edge] = ()
    added_edges: Sequence[Edge] = ()
    delta_tokens: int = 0
    full_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("removed", "added", "removed_edges", "added_edges"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


def group_name(distance: int) -> str:
    """Return the heading of the group of symbols at this distance."""
    check_count("distance", distance)
    return GROUPS[distance] if distance < len(GROUPS) else f"distance_{distance}"


def group_distance(name: str) -> int | None:
    """Return the distance of the group with this heading; None if it is not the heading of a group."""
    if name in GROUPS:
        return GROUPS.index(name)
    return int(far[1]) if (far := _DISTANCE_GROUP(name)) else None


def sort_symbols(symbols: Iterable[Symbol]) -> list[Symbol]:
    """Sort symbols by distance, then by score, the highest first (SPEC 16.1)."""
    return sorted(symbols, key=lambda symbol: (symbol.distance, -symbol.score))


def resolve_edges(symbols: Iterable[Symbol], edges: Iterable[Edge]) -> list[tuple[Edge, Symbol, Symbol]]:
    """Return the edges whose ends are both among the symbols, each with its source and target.

    An edge that ends elsewhere is not part of a pack (SPEC 6): texts, roots and deltas leave it out.

    Raises:
        GcfError: a symbol occurs twice, or an edge names symbols of two kinds: edges have names without kinds.
    """
    by_name: dict[str, Symbol] = {}
    seen: set[tuple[str, str]] = set()
    ambiguous: set[str] = set()
    for symbol in symbols:
        if symbol.identity in seen:
            raise GcfError("duplicate_key", f"{symbol.kind} {symbol.qualified_name} occurs twice")
        seen.add(symbol.identity)
        if by_name.setdefault(symbol.qualified_name, symbol) is not symbol:
            ambiguous.add(symbol.qualified_name)
    resolved = []
    for edge in edges:
        source, target = by_name.get(edge.source), by_name.get(edge.target)
        if source is None or target is None:
            continue
        if edge.source in ambiguous or edge.target in ambiguous:
            raise GcfError("ambiguous_edge", f"{edge.source} -> {edge.target} names symbols of two kinds")
        resolved.append((edge, source, target))
    return resolved
