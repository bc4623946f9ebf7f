"""Encoder and decoder of deltas between packs (SPEC 10.1, 10.6)."""

from collections.abc import Iterator

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.graph.decoder import parse_declaration, parse_id
from deltamcp.gcf.graph.model import DELTA_SECTIONS, SHORT_KINDS, DeltaPayload, Edge, Symbol, group_name
from deltamcp.gcf.graph.session import REFERENCE, ReaderSession, Session
from deltamcp.gcf.header import (
    Dialect,
    check_count,
    check_token,
    errors_at_line,
    open_text,
    parse_count,
    savings,
    write_header,
)

_FORBIDDEN_FIRST = ("#", "##", "##!")


def encode_delta(
    delta: DeltaPayload, *, dialect: Dialect = "v3", session: Session | None = None, combine: bool = False
) -> str:
    """Encode a delta; its symbols and edges keep their order.

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
    """Decode a delta of either dialect. The text has no `full_tokens`, only a percentage, so they are 0.

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
