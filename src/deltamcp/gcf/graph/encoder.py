"""Encoder of packs (SPEC 5 to 6a, and with a session SPEC 9)."""

from collections.abc import Iterator

from deltamcp.gcf.graph.model import Edge, Payload, Symbol, group_name, resolve_edges, sort_symbols
from deltamcp.gcf.graph.session import REFERENCE, Session
from deltamcp.gcf.header import Dialect, check_count, check_token, write_header


def encode(payload: Payload, *, dialect: Dialect = "v3") -> str:
    """Encode a pack without references to earlier texts. Edges that end outside of the pack are left out."""
    return _encode(payload, None, dialect)


def encode_with_session(payload: Payload, session: Session, *, dialect: Dialect = "v3") -> str:
    """Encode a pack for a reader that knows the symbols of `session`, and record the pack's symbols in the session.

    In the v1 dialect ids are indices in one text, so a reference says only that the symbol is not new.
    """
    return _encode(payload, session, dialect)


def edge_line(edge: Edge, source: int, target: int) -> str:
    """Return the line of an edge. `@1<@0 calls` says that @0 calls @1."""
    status = edge.printed_status
    tail = f" {check_token('status', status)}" if status else ""
    return f"@{target}<@{source} {check_token('edge_type', edge.edge_type)}{tail}"


def _encode(payload: Payload, session: Session | None, dialect: Dialect) -> str:
    ordered = sort_symbols(payload.symbols) if dialect == "v3" else list(payload.symbols)
    edges = resolve_edges(ordered, payload.edges)
    # These checks come first, so that the session records no symbols of a pack that is refused.
    declarations = [(group_name(symbol.distance), symbol.declaration) for symbol in ordered]
    for edge, _, _ in edges:
        edge_line(edge, 0, 0)
    lines = [write_header(_header_fields(payload, len(edges), session is not None, dialect))]

    ids: dict[tuple[str, str], int] = {}
    group = ""
    for place, (symbol, (name, declaration)) in enumerate(zip(ordered, declarations, strict=True)):
        sid, known = session.write(symbol) if session is not None else (place, False)
        ids[symbol.identity] = sid = place if dialect == "v1" else sid
        if name != group:
            group = name
            lines.append(f"## {group}")
        lines.append(f"@{sid}  {REFERENCE}" if known else f"@{sid} {declaration}")
    if payload.edges:
        lines.append(f"## edges [{len(edges)}]")
        lines.extend(_edge_lines(edges, ids, dialect))
    return "\n".join([*lines, ""])


def _edge_lines(
    edges: list[tuple[Edge, Symbol, Symbol]], ids: dict[tuple[str, str], int], dialect: Dialect
) -> Iterator[str]:
    numbered = [(ids[source.identity], ids[target.identity], edge) for edge, source, target in edges]
    if dialect == "v3":
        numbered.sort(key=lambda item: (item[0], item[1], item[2].edge_type))
    for source_id, target_id, edge in numbered:
        yield edge_line(edge, source_id, target_id)


def _header_fields(payload: Payload, edges: int, with_session: bool, dialect: Dialect) -> Iterator[tuple[str, object]]:
    legacy = dialect == "v1"
    if not legacy:
        yield "profile", "graph"
    if payload.tool or legacy:
        yield "tool", payload.tool
    for name, number in (("budget", payload.token_budget), ("tokens", payload.tokens_used)):
        if check_count(name, number) or legacy:
            yield name, number
    yield "symbols", len(payload.symbols)
    if edges or (legacy and payload.edges):
        yield "edges", edges
    if with_session:
        yield "session", "true"
    if payload.pack_root:
        yield "pack_root", payload.pack_root
