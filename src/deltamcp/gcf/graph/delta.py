"""Deltas between packs: `diff` makes them, `apply_delta` applies them (SPEC 10.4, 10.5)."""

from collections.abc import Iterable
from dataclasses import replace

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.graph.model import DeltaPayload, Edge, Payload, Symbol, resolve_edges, sort_symbols
from deltamcp.gcf.roots import pack_root, root_matches


def diff(base: Payload, new: Payload) -> DeltaPayload:
    """Return the delta from `base` to `new`, in the order of a full text; a changed symbol is removed and added.

    Scores count as printed. The caller fills in token counts. A delta does not carry the status of an edge, and roots
    do not include it: a tool whose statuses matter must not answer `unchanged` because of its roots alone.

    Raises:
        GcfError: applying a delta would lose the status of an edge of `new`; send `new` in full.
    """
    before, after = _symbols_by_identity(base.symbols), _symbols_by_identity(new.symbols)
    old_edges, new_edges = _edges_by_identity(base), _edges_by_identity(new)
    for identity, edge in new_edges.items():
        former = old_edges.get(identity)
        if edge.printed_status != (former.printed_status if former else ""):
            raise GcfError(
                "delta_invalid", f"a delta cannot carry the status {edge.status} of {edge.source} -> {edge.target}"
            )
    changed = {identity for identity, symbol in after.items() if before.get(identity) != symbol}
    gone = {identity for identity in before if identity not in after or identity in changed}
    return DeltaPayload(
        tool=new.tool,
        base_root=pack_root(base.symbols, base.edges),
        new_root=pack_root(new.symbols, new.edges),
        removed=[Symbol(name, kind) for kind, name in sorted(gone)],
        added=sort_symbols(after[identity] for identity in sorted(changed)),
        removed_edges=[Edge(*identity) for identity in sorted(old_edges.keys() - new_edges.keys())],
        added_edges=[Edge(*identity) for identity in sorted(new_edges.keys() - old_edges.keys())],
    )


def apply_delta(base: Payload, delta: DeltaPayload) -> Payload:
    """Return the pack that `delta` makes of `base`, with its root and with symbols and edges in order.

    Both roots of the delta may be short ones.

    Raises:
        GcfError: `base_mismatch` if the delta builds on another pack, `delta_invalid` if it contradicts this one,
            `root_mismatch` if the new pack has another root than the delta says. The reader then needs the full pack.
    """
    if not root_matches(pack_root(base.symbols, base.edges), delta.base_root):
        raise GcfError("base_mismatch", f"the delta builds on {delta.base_root:.80}")
    symbols, edges = _symbols_by_identity(base.symbols), _edges_by_identity(base)
    for symbol in delta.removed:
        if symbols.pop(symbol.identity, None) is None:
            raise GcfError("delta_invalid", f"the removed {symbol.qualified_name!a:.80} does not exist")
    for edge in delta.removed_edges:
        if edges.pop(edge.identity, None) is None:
            raise GcfError("delta_invalid", f"the removed {edge.source!a:.80} -> {edge.target!a:.80} does not exist")
    for identity, symbol in _symbols_by_identity(delta.added).items():
        if identity in symbols:
            raise GcfError("delta_invalid", f"the added {symbol.qualified_name!a:.80} already exists")
        symbols[identity] = symbol
    for edge in delta.added_edges:
        if edge.identity in edges:
            raise GcfError("delta_invalid", f"the added {edge.source!a:.80} -> {edge.target!a:.80} already exists")
        edges[edge.identity] = edge
    new_symbols = sort_symbols(symbols[identity] for identity in sorted(symbols))
    new_edges = [edges[identity] for identity in sorted(edges)]
    if len(resolve_edges(new_symbols, new_edges)) != len(new_edges):
        raise GcfError("delta_invalid", "an edge is left without one of its ends")
    root = pack_root(new_symbols, new_edges)
    if not root_matches(root, delta.new_root):
        raise GcfError("root_mismatch", f"the new pack does not have the root {delta.new_root:.80}")
    return replace(base, tool=delta.tool, tokens_used=0, pack_root=root, symbols=new_symbols, edges=new_edges)


def _symbols_by_identity(symbols: Iterable[Symbol]) -> dict[tuple[str, str], Symbol]:
    by_identity: dict[tuple[str, str], Symbol] = {}
    for symbol in symbols:
        if symbol.identity in by_identity:
            raise GcfError("delta_invalid", f"{symbol.kind} {symbol.qualified_name!a:.80} occurs twice")
        by_identity[symbol.identity] = replace(symbol, score=float(symbol.printed_score))
    return by_identity


def _edges_by_identity(payload: Payload) -> dict[tuple[str, str, str], Edge]:
    by_identity: dict[tuple[str, str, str], Edge] = {}
    for edge, _, _ in resolve_edges(payload.symbols, payload.edges):
        if edge.identity in by_identity:
            raise GcfError("delta_invalid", f"{edge.source!a:.80} -> {edge.target!a:.80} occurs twice")
        by_identity[edge.identity] = edge
    return by_identity
