"""Data model of the graph profile: symbols, edges, packs, their roots and deltas, and sessions (SPEC 3, 9, 10.2)."""

import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deltamcp.gcf.header import check_count, check_token, digest, record
from deltamcp.gcf.scalars import GcfError, format_number

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
    """Returns the heading of the group of symbols at this distance."""
    check_count("distance", distance)
    return GROUPS[distance] if distance < len(GROUPS) else f"distance_{distance}"


def group_distance(name: str) -> int | None:
    """Returns the distance of the group with this heading; None if it is not the heading of a group."""
    if name in GROUPS:
        return GROUPS.index(name)
    return int(far[1]) if (far := _DISTANCE_GROUP(name)) else None


def sort_symbols(symbols: Iterable[Symbol]) -> list[Symbol]:
    """Sorts symbols by distance, then by score, the highest first (SPEC 16.1)."""
    return sorted(symbols, key=lambda symbol: (symbol.distance, -symbol.score))


def resolve_edges(symbols: Iterable[Symbol], edges: Iterable[Edge]) -> list[tuple[Edge, Symbol, Symbol]]:
    """Returns the edges whose ends are both among the symbols, each with its source and target.

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


REFERENCE = "# previously transmitted"

DEFAULT_MAX_SYMBOLS = 10_000

_SYMBOL_BYTES = 500
"""About how many bytes of memory a symbol takes beside the characters of its texts."""


@dataclass(frozen=True, slots=True)
class _SentSymbol:
    sid: int
    declaration: str
    distance: int


class Session:
    """The writer's side of a session, for one reader, one conversation and one dialect.

    Ids count up and are never used twice, even after a reset. Beyond `max_symbols` the session forgets the symbols
    written longest ago; they are declared again under a new id.
    """

    def __init__(self, max_symbols: int = DEFAULT_MAX_SYMBOLS) -> None:
        if max_symbols < 1:
            raise ValueError("a session remembers at least one symbol")
        self._max = max_symbols
        self._sent: OrderedDict[tuple[str, str], _SentSymbol] = OrderedDict()
        self._next = 0
        self._chars = 0

    def copy(self) -> "Session":
        """Returns a session that knows the same symbols, for a text that may not be sent."""
        copied = Session(self._max)
        copied._sent, copied._next, copied._chars = OrderedDict(self._sent), self._next, self._chars
        return copied

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the symbols take."""
        return self._chars + _SYMBOL_BYTES * len(self._sent)

    def __len__(self) -> int:
        """Returns how many symbols a later text can refer to."""
        return len(self._sent)

    def write(self, symbol: Symbol, *, same_distance: bool = False) -> tuple[int, bool]:
        """Records a symbol as written; return its id, and whether the reader knows it, so that a reference is enough.

        With `same_distance` the reader must know the symbol at its distance too, for texts without a group heading.
        """
        declaration = symbol.declaration
        sent = self._pop(symbol.identity)
        known = (
            sent is not None
            and sent.declaration == declaration
            and (sent.distance == symbol.distance or not same_distance)
        )
        if sent is None:
            sid, self._next = self._next, self._next + 1
        else:
            sid = sent.sid
        self._add(symbol.identity, _SentSymbol(sid, declaration, symbol.distance))
        if len(self._sent) > self._max:
            self._pop(next(iter(self._sent)))
        return sid, known

    def _add(self, identity: tuple[str, str], sent: _SentSymbol) -> None:
        self._sent[identity] = sent
        self._chars += len(identity[0]) + len(identity[1]) + len(sent.declaration)

    def _pop(self, identity: tuple[str, str]) -> _SentSymbol | None:
        sent = self._sent.pop(identity, None)
        if sent is not None:
            self._chars -= len(identity[0]) + len(identity[1]) + len(sent.declaration)
        return sent

    def refer(self, kind: str, qualified_name: str, distance: int) -> int:
        """Returns the id of a symbol that the reader knows.

        Raises:
            GcfError: the symbol was never written, or the session has forgotten it.
        """
        identity = Symbol(qualified_name, kind).identity
        sent = self._pop(identity)
        if sent is None:
            raise GcfError("invalid_symbol_id", f"this session knows no {kind} {qualified_name!a:.80}")
        self._add(identity, replace(sent, distance=distance))
        return sent.sid

    def reset(self) -> None:
        """Forgets all symbols, because the reader's context was compacted or a text did not arrive."""
        self._sent.clear()
        self._chars = 0


class ReaderSession:
    """The reader's side of a session: the symbol of each id. It need not know of resets of the `Session`."""

    def __init__(self) -> None:
        self._symbols: dict[int, Symbol] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._symbols)

    def resolve(self, sid: int) -> Symbol:
        """Returns the symbol that was last declared under this id."""
        if sid not in self._symbols:
            raise GcfError("invalid_symbol_id", f"@{sid} has not been declared in this session")
        return self._symbols[sid]

    def check(self, sid: int, symbol: Symbol) -> None:
        """Refuses a declaration under the id of another symbol."""
        known = self._symbols.get(sid, symbol)
        if known.identity != symbol.identity:
            raise GcfError("invalid_symbol_id", f"@{sid} is {known.kind} {known.qualified_name} already")

    def learn(self, symbols: Mapping[int, Symbol]) -> None:
        """Records the symbols of a text that was read to its end."""
        for sid, symbol in symbols.items():
            former = self._ids.get(symbol.identity, sid)
            if former != sid:
                del self._symbols[former]
            self._ids[symbol.identity] = sid
            self._symbols[sid] = symbol


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


def _short_kind(symbol: Symbol) -> str:
    return SHORT_KINDS.get(symbol.kind, symbol.kind)
