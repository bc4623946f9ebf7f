"""Deltas between packs: made, applied, encoded and decoded (SPEC 10)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from deltamcp.gcf.graph_model import (
    DELTA_SECTIONS,
    REFERENCE,
    SHORT_KINDS,
    DeltaPayload,
    Edge,
    Payload,
    ReaderSession,
    Session,
    Symbol,
    group_name,
    pack_root,
    resolve_edges,
    sort_symbols,
)
from deltamcp.gcf.graph_text import parse_declaration, parse_id
from deltamcp.gcf.header import (
    Dialect,
    check_count,
    check_token,
    errors_at_line,
    open_text,
    parse_count,
    root_matches,
    savings,
    write_header,
)
from deltamcp.gcf.scalars import GcfError


def diff(base: Payload, new: Payload) -> DeltaPayload:
    """Returns the delta from `base` to `new`, in the order of a full text; a changed symbol is removed and added.

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
    """Returns the pack that `delta` makes of `base`, with its root and with symbols and edges in order.

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


_FORBIDDEN_FIRST = ("#", "##", "##!")


def encode_delta(
    delta: DeltaPayload, *, dialect: Dialect = "v3", session: Session | None = None, combine: bool = False
) -> str:
    """Encodes a delta; its symbols and edges keep their order.

    Args:
        session: numbers the added symbols, which are declared in full (SPEC 10.6).
        combine: write a reference for an added symbol that the session's reader knows already, as GCF's first guide
            allows.
    """
    if session is not None and dialect == "v1":
        raise GcfError(
            "invalid_symbol_id", "the v1 dialect numbers the symbols of each text anew, so a session cannot share ids"
        )
    lines = [write_header(_header_fields(delta, session is not None, dialect))]
    for symbol in delta.added:
        group_name(symbol.distance)
    sections = {
        "removed": [_removed_line(symbol) for symbol in delta.removed],
        "added": [symbol.declaration for symbol in delta.added],
        "edges_removed": [_edge_line(edge) for edge in delta.removed_edges],
        "edges_added": [_edge_line(edge) for edge in delta.added_edges],
    }
    # All checks come before this line, so that the session records no symbols of a delta that is refused.
    sections["added"] = list(_added_lines(delta, sections["added"], session, combine, dialect))
    for name, section in sections.items():
        if section:
            lines += [f"## {name}", *section]
    return "\n".join([*lines, ""])


def decode_delta(text: str, *, session: ReaderSession | None = None) -> DeltaPayload:
    """Decodes a delta of either dialect. The text has no `full_tokens`, only a percentage, so they are 0.

    For a text that was written with a session, the caller passes the reader's side of the session.
    """
    header, lines = open_text(text, "graph-delta")
    if not header.keys() >= {"base_root", "new_root"}:
        raise GcfError("malformed_delta", "a delta has a base_root and a new_root", line=1)
    session = session if header.get("session") == "true" and "profile" in header else None
    seen: set[str] = set()
    added: dict[int, Symbol] = {}
    removed: list[Symbol] = []
    edges: dict[str, list[Edge]] = {"edges_removed": [], "edges_added": []}
    name = ""
    for number, line in lines:
        with errors_at_line(number):
            if line.startswith("## "):
                name = _parse_section(line[3:], seen)
            elif name == "removed":
                removed.append(_read_removed(line))
            elif name == "added":
                sid, symbol = _read_added(line, session)
                if sid in added:
                    raise GcfError("invalid_symbol_id", f"@{sid} occurs twice")
                added[sid] = symbol
            elif name:
                edges[name].append(_read_edge(line))
            else:
                raise GcfError("malformed_delta", "a line before the first section")
    delta = DeltaPayload(
        tool=header.get("tool", ""),
        base_root=header["base_root"],
        new_root=header["new_root"],
        removed=removed,
        added=tuple(added.values()),
        removed_edges=edges["edges_removed"],
        added_edges=edges["edges_added"],
        delta_tokens=parse_count("tokens", header.get("tokens", "0")),
    )
    if session is not None:
        session.learn(added)
    return delta


def _header_fields(delta: DeltaPayload, with_session: bool, dialect: Dialect) -> Iterator[tuple[str, object]]:
    if dialect == "v3":
        yield "profile", "graph"
    if delta.tool or dialect == "v1":
        yield "tool", delta.tool
    yield "delta", "true"
    yield "base_root", delta.base_root
    yield "new_root", delta.new_root
    yield "tokens", check_count("tokens", delta.delta_tokens)
    yield "savings", savings(delta.delta_tokens, delta.full_tokens)
    if with_session:
        yield "session", "true"


def _added_lines(
    delta: DeltaPayload, declarations: list[str], session: Session | None, combine: bool, dialect: Dialect
) -> Iterator[str]:
    for place, (symbol, declaration) in enumerate(zip(delta.added, declarations, strict=True)):
        sid, known = session.write(symbol, same_distance=True) if session is not None else (place, False)
        if known and combine:
            yield f"@{sid}  {REFERENCE}"
        elif dialect == "v1":
            yield f"@{sid} {declaration}"
        else:
            yield f"@{sid} {declaration} {symbol.distance}"


def _check_first_token(name: str, text: str) -> str:
    if text in _FORBIDDEN_FIRST:
        raise GcfError("invalid_token", f"a reader would take the {name} {text} for a heading or a comment")
    return check_token(name, text)


def _removed_line(symbol: Symbol) -> str:
    kind = _check_first_token("kind", SHORT_KINDS.get(symbol.kind, symbol.kind))
    return f"{kind} {check_token('qualified_name', symbol.qualified_name)}"


def _edge_line(edge: Edge) -> str:
    source, target = _check_first_token("source", edge.source), check_token("target", edge.target)
    return f"{source} -> {target} {check_token('edge_type', edge.edge_type)}"


def _parse_section(name: str, seen: set[str]) -> str:
    if name not in DELTA_SECTIONS or name in seen:
        raise GcfError("malformed_delta", f"an unknown or second section {name!a:.80}")
    seen.add(name)
    return name


def _read_removed(line: str) -> Symbol:
    words = line.split(" ")
    if len(words) != 2 or not all(words):
        raise GcfError("malformed_delta", f"{line!a:.80} is not a kind and a name")
    return Symbol(words[1], words[0])


def _read_added(line: str, session: ReaderSession | None) -> tuple[int, Symbol]:
    first, *fields = line.split(" ")
    sid = parse_id(first)
    if line == f"{first}  {REFERENCE}":
        if session is None:
            raise GcfError("invalid_node_line", f"@{sid} refers to an earlier text, whose session is missing")
        return sid, session.resolve(sid)
    # Texts before SPEC 3.4.1 do not have the distance.
    distance = parse_count("distance", fields.pop()) if len(fields) == 5 else 0
    symbol = parse_declaration(fields, distance)
    if session is not None:
        session.check(sid, symbol)
    return sid, symbol


def _read_edge(line: str) -> Edge:
    words = line.split(" ")
    if len(words) != 4 or words[1] != "->" or not all(words):
        raise GcfError("malformed_delta", f"{line!a:.80} is not source -> target type")
    return Edge(words[0], words[2], words[3])
