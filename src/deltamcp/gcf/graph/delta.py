"""From one pack to the next (SPEC 10.4, 10.5)."""

from collections.abc import Iterable
from dataclasses import replace

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.graph.model import DeltaPayload, Edge, Payload, Symbol, resolve_edges, sort_symbols
from deltamcp.gcf.roots import pack_root, root_matches


def diff(base: Payload, new: Payload) -> DeltaPayload:
    """What turns `base` into `new`, in the order a full text would have; a changed symbol is removed and added.

    Scores count as printed. Token counts are left for who counts them. A delta carries no status of an edge: where
    `new` has one that applying it would not restore, there is no delta and the answer is to be sent in full. Roots do
    not know a status either, so a tool whose statuses matter must not answer `unchanged` by its roots alone.
    """
    before, after = _symbols_by_identity(base.symbols), _symbols_by_identity(new.symbols)
    old_edges, new_edges = _edges_by_identity(base), _edges_by_identity(new)
    for identity, edge in new_edges.items():
        former = old_edges.get(identity)
        if edge.printed_status != (former.printed_status if former else ""):
            raise GcfError("delta_invalid", f"a delta cannot say that {edge.source} -> {edge.target} is {edge.status}")
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
    """The pack that `delta` makes of `base`, its symbols and edges in order, and with its root.

    All or nothing. A GcfError says `base_mismatch` where the delta builds on another pack, `delta_invalid` where it
    contradicts this one, and `root_mismatch` where the result is not what it promises: then ask for the full pack.
    Both roots of the delta may be short ones.
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
    found_symbols = sort_symbols(symbols[identity] for identity in sorted(symbols))
    found_edges = [edges[identity] for identity in sorted(edges)]
    if len(resolve_edges(found_symbols, found_edges)) != len(found_edges):
        raise GcfError("delta_invalid", "an edge is left without one of its ends")
    root = pack_root(found_symbols, found_edges)
    if not root_matches(root, delta.new_root):
        raise GcfError("root_mismatch", f"the result is not {delta.new_root:.80}")
    return replace(base, tool=delta.tool, tokens_used=0, pack_root=root, symbols=found_symbols, edges=found_edges)


def _symbols_by_identity(symbols: Iterable[Symbol]) -> dict[tuple[str, str], Symbol]:
    found: dict[tuple[str, str], Symbol] = {}
    for symbol in symbols:
        if symbol.identity in found:
            raise GcfError("delta_invalid", f"{symbol.kind} {symbol.qualified_name!a:.80} is there twice")
        found[symbol.identity] = replace(symbol, score=float(symbol.printed_score))
    return found


def _edges_by_identity(payload: Payload) -> dict[tuple[str, str, str], Edge]:
    found: dict[tuple[str, str, str], Edge] = {}
    for edge, _, _ in resolve_edges(payload.symbols, payload.edges):
        if edge.identity in found:
            raise GcfError("delta_invalid", f"{edge.source!a:.80} -> {edge.target!a:.80} is there twice")
        found[edge.identity] = edge
    return found
