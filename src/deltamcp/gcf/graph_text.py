"""Packs as text, whole or before their number is known, in both dialects and with sessions (SPEC 5 to 6a, 8, 9)."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite

from deltamcp.gcf.graph_model import (
    DELTA_SECTIONS,
    REFERENCE,
    Edge,
    Payload,
    ReaderSession,
    Session,
    Symbol,
    group_distance,
    group_name,
    resolve_edges,
    sort_symbols,
)
from deltamcp.gcf.header import Dialect, check_count, check_token, errors_at_line, open_text, parse_count, write_header
from deltamcp.gcf.scalars import GcfError

_ID = re.compile(r"@([0-9]{1,18})").fullmatch
_SCORE = re.compile(r"-?[0-9]+\.[0-9]{2}").fullmatch
_EDGE_ENDS = re.compile(r"@([0-9]{1,18})<@([0-9]{1,18})").fullmatch
_SECTION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?: \[(?:\?|([0-9]+))\])?").fullmatch
_TRAILERS = ("##! summary", "## _summary")
_EDGES_HEADING = "edges [?]"


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


def decode(text: str, *, session: ReaderSession | None = None) -> Payload:
    """Decodes a pack. For a text that was written with a session, the caller passes the reader's side of the session.

    References of the v1 dialect have ids of their own text, so that nothing says which symbol they refer to. With a
    session they are refused; without one they and the edges that end at them are left out, as its published cases ask.

    Raises:
        GcfError: the text is wrong, or has a reference that the session does not resolve.
    """
    header, lines = open_text(text, "graph")
    legacy = "profile" not in header
    skips_references = legacy and session is None
    # The ids of a text without a session are its own: the session must not resolve or learn them.
    session = session if header.get("session") == "true" and not legacy else None
    reader = _PackReader(skips_references, session)
    for number, line in lines:
        with errors_at_line(number):
            reader.read_line(line)
    reader.check_counts(header)
    symbols, edges = tuple(reader.symbols.values()), tuple(reader.edges)
    resolve_edges(symbols, edges)
    payload = Payload(
        tool=header.get("tool", ""),
        tokens_used=parse_count("tokens", header.get("tokens", "0")),
        token_budget=parse_count("budget", header.get("budget", "0")),
        pack_root=header.get("pack_root", ""),
        symbols=symbols,
        edges=edges,
    )
    if session is not None:
        session.learn(reader.symbols)
    return payload


def parse_id(text: str) -> int:
    """Parses an id such as `@7`."""
    if not (found := _ID(text)):
        raise GcfError("invalid_symbol_id", f"{text!a:.80} is not an id")
    return int(found[1])


def parse_declaration(fields: list[str], distance: int) -> Symbol:
    """Parses the fields of a declaration: kind, name, score and provenance."""
    if len(fields) != 4 or not all(fields):
        raise GcfError("invalid_node_line", "a symbol has a kind, a name, a score and a provenance")
    kind, name, score, provenance = fields
    if not _SCORE(score) or not isfinite(float(score)):
        raise GcfError("invalid_score", f"{score!a:.80} is not a score")
    return Symbol(name, kind, float(score), provenance, distance)


class _PackReader:
    """Reads the lines of one text, and collects its symbols and edges."""

    def __init__(self, skips_references: bool, session: ReaderSession | None) -> None:
        self.symbols: dict[int, Symbol] = {}
        self.edges: list[Edge] = []
        self._session = session
        self._skips_references = skips_references
        self._unnamed: set[int] = set()
        self._line_reader: Callable[[str], None] = self._refuse_stray
        self._distance = 0
        self._edges_left: int | None = None
        self._edge_lines = 0
        self._trailer: dict[str, str] | None = None

    def read_line(self, line: str) -> None:
        if self._trailer is not None:
            raise GcfError("trailing_characters", "the text goes on after its summary")
        if line.startswith(_TRAILERS):
            self._trailer = dict(_parse_pair(part) for part in line.split(" ")[2:])
        elif line.startswith("## "):
            self._enter_section(line[3:])
        else:
            self._line_reader(line)

    def check_counts(self, header: dict[str, str]) -> None:
        """Refuses a text whose header or summary counts other symbols or edges than it has (SPEC 13)."""
        self._close_section()
        written = {"symbols": len(self.symbols) + len(self._unnamed), "edges": self._edge_lines}
        for declared in (header, self._trailer or {}):
            for name, count in written.items():
                if name in declared and parse_count(name, declared[name]) != count:
                    raise GcfError("count_mismatch", f"{declared[name]} {name} are declared, {count} are present")

    def _enter_section(self, heading: str) -> None:
        self._close_section()
        found = _SECTION(heading)
        if not found or found[1] in DELTA_SECTIONS:
            raise GcfError("unknown_section", f"{heading!a:.80}")
        name, count = found.groups()
        distance = group_distance(name)
        if name == "edges":
            self._line_reader = self._read_edge
            self._edges_left = parse_count("edges", count) if count else None
        elif distance is None:
            # Readers skip sections that they do not know, such as locations (SPEC 6b).
            self._line_reader = _skip_line
        else:
            self._line_reader, self._distance = self._read_node, distance

    def _close_section(self) -> None:
        if self._edges_left:
            raise GcfError("count_mismatch", f"{self._edges_left} edges are missing")
        self._edges_left = None

    def _refuse_stray(self, line: str) -> None:
        raise GcfError("invalid_node_line", "a line before the first group")

    def _read_node(self, line: str) -> None:
        first, *fields = line.split(" ")
        if first[:1] != "@":
            raise GcfError("invalid_node_line", f"{line!a:.80}")
        sid = parse_id(first)
        if sid in self.symbols or sid in self._unnamed:
            raise GcfError("invalid_symbol_id", f"@{sid} occurs twice")
        if line != f"{first}  {REFERENCE}":
            symbol = parse_declaration(fields, self._distance)
            if self._session is not None:
                self._session.check(sid, symbol)
            self.symbols[sid] = symbol
        elif self._skips_references:
            self._unnamed.add(sid)
        elif self._session is None:
            raise GcfError(
                "invalid_node_line", f"@{sid} refers to an earlier text, and no session says to which symbol"
            )
        else:
            self.symbols[sid] = replace(self._session.resolve(sid), distance=self._distance)

    def _read_edge(self, line: str) -> None:
        self._edge_lines += 1
        if self._edges_left is not None:
            if not self._edges_left:
                raise GcfError("count_mismatch", "there are more edges than declared")
            self._edges_left -= 1
        ends, *words = line.split(" ")
        if not (found := _EDGE_ENDS(ends)) or len(words) not in (1, 2) or not all(words):
            raise GcfError("invalid_edge_syntax", f"{line!a:.80} is not @target<@source type")
        target, source = int(found[1]), int(found[2])
        for sid in (target, source):
            if sid not in self.symbols and sid not in self._unnamed:
                raise GcfError("unknown_edge_reference", f"@{sid} is not in this text")
        if target in self.symbols and source in self.symbols:
            names = self.symbols[source].qualified_name, self.symbols[target].qualified_name
            self.edges.append(Edge(*names, *words))


def _skip_line(line: str) -> None:
    """Skips a line of a section that this reader does not know."""


def _parse_pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name, value
