"""Encoder of packs, whole or before their number is known (SPEC 5 to 6a, 8, and with a session 9)."""

from collections import Counter
from collections.abc import Callable, Iterator

from deltamcp.gcf.graph.model import REFERENCE, Edge, Payload, Session, Symbol, group_name, resolve_edges, sort_symbols
from deltamcp.gcf.header import Dialect, check_count, check_token, write_header
from deltamcp.gcf.scalars import GcfError


def encode(payload: Payload, *, dialect: Dialect = "v3") -> str:
    """Encodes a pack without references to earlier texts. Edges that end outside of the pack are left out."""
    return _encode(payload, None, dialect)


def encode_with_session(payload: Payload, session: Session, *, dialect: Dialect = "v3") -> str:
    """Encodes a pack for a reader that knows the symbols of `session`, and record the pack's symbols in the session.

    In the v1 dialect ids are indices in one text, so a reference says only that the symbol is not new.
    """
    return _encode(payload, session, dialect)


def edge_line(edge: Edge, source: int, target: int) -> str:
    """Returns the line of an edge. `@1<@0 calls` says that @0 calls @1."""
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


_EDGES_HEADING = "edges [?]"


class StreamEncoder:
    """Writes symbols and edges in the order in which the caller passes them; `close` writes the counts.

    Args:
        write: called with each line, including its line end.
        session: symbols that its reader knows are written as references.
        labelled_counts: name each group in the summary.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        tool: str = "",
        *,
        token_budget: int = 0,
        tokens_used: int = 0,
        pack_root: str = "",
        session: Session | None = None,
        labelled_counts: bool = False,
    ) -> None:
        self._write = write
        self._session = session
        self._labelled = labelled_counts
        self._section = ""
        self._groups: Counter[str] = Counter()
        self._edges = 0
        self._ids: dict[str, int | None] = {}
        self._identities: set[tuple[str, str]] = set()
        self._ends: set[str] = set()
        self._closed = False
        fields = {
            "profile": "graph",
            "tool": tool,
            "budget": check_count("budget", token_budget),
            "tokens": check_count("tokens", tokens_used),
            "pack_root": pack_root,
            "session": "true" if session is not None else "",
        }
        self._write_line(write_header((name, value) for name, value in fields.items() if value))

    def write_symbol(self, symbol: Symbol) -> None:
        """Writes a declaration of a symbol, or a reference if the session's reader knows it."""
        group, declaration = group_name(symbol.distance), symbol.declaration
        self._check_new(symbol.identity)
        sid, known = (len(self._identities), False) if self._session is None else self._session.write(symbol)
        self._write_node(symbol.identity, group, f"@{sid}  {REFERENCE}" if known else f"@{sid} {declaration}", sid)

    def write_bare_ref(self, kind: str, qualified_name: str, distance: int) -> None:
        """Writes a reference to a symbol of the session of which the caller has only kind, name and distance."""
        group, identity = group_name(distance), Symbol(qualified_name, kind).identity
        self._check_new(identity)
        if self._session is None:
            raise GcfError("invalid_symbol_id", "a reference needs a session")
        sid = self._session.refer(kind, qualified_name, distance)
        self._write_node(identity, group, f"@{sid}  {REFERENCE}", sid)

    def write_edge(self, edge: Edge) -> None:
        """Writes an edge between two symbols that were written before."""
        source, target = self._end_id(edge.source), self._end_id(edge.target)
        line = edge_line(edge, source, target)
        self._enter_section(_EDGES_HEADING)
        self._write_line(line)
        self._ends.update((edge.source, edge.target))
        self._edges += 1

    def close(self) -> None:
        """Writes the summary: counts of the groups in the order in which they began, then of the edges, even if 0."""
        counts = [*self._groups.items(), ("edges", self._edges)]
        written = ",".join(f"{name}:{count}" if self._labelled else str(count) for name, count in counts)
        self._write_line(f"##! summary symbols={len(self._identities)} edges={self._edges} counts={written}")
        self._closed = True

    def _check_new(self, identity: tuple[str, str]) -> None:
        if identity in self._identities:
            raise GcfError("duplicate_key", f"{identity[0]} {identity[1]} was written before")
        if identity[1] in self._ends:
            raise GcfError(
                "ambiguous_edge", f"an edge ends at {identity[1]}, so no symbol of another kind can have this name"
            )

    def _write_node(self, identity: tuple[str, str], group: str, line: str, sid: int) -> None:
        self._enter_section(group)
        self._write_line(line)
        self._groups[group] += 1
        self._identities.add(identity)
        name = identity[1]
        self._ids[name] = None if name in self._ids else sid

    def _end_id(self, name: str) -> int:
        if name not in self._ids:
            raise GcfError("unknown_edge_reference", f"{name!a:.80} is not written yet")
        if (sid := self._ids[name]) is None:
            raise GcfError("ambiguous_edge", f"{name!a:.80} names symbols of two kinds")
        return sid

    def _enter_section(self, section: str) -> None:
        if section != self._section:
            self._section = section
            self._write_line(f"## {section}")

    def _write_line(self, line: str) -> None:
        if self._closed:
            raise ValueError("the stream is closed")
        self._write(line + "\n")
