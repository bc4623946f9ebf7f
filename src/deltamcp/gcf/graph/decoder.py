"""Decoder of packs: reads texts of both dialects, from encoders, streams and sessions (SPEC 5 to 6a, 8, 9)."""

import re
from collections.abc import Callable
from dataclasses import replace
from math import isfinite

from deltamcp.gcf.graph.model import (
    DELTA_SECTIONS,
    REFERENCE,
    Edge,
    Payload,
    ReaderSession,
    Symbol,
    group_distance,
    resolve_edges,
)
from deltamcp.gcf.header import errors_at_line, open_text, parse_count
from deltamcp.gcf.scalars import GcfError

_ID = re.compile(r"@([0-9]{1,18})").fullmatch
_SCORE = re.compile(r"-?[0-9]+\.[0-9]{2}").fullmatch
_EDGE_ENDS = re.compile(r"@([0-9]{1,18})<@([0-9]{1,18})").fullmatch
_SECTION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?: \[(?:\?|([0-9]+))\])?").fullmatch
_TRAILERS = ("##! summary", "## _summary")


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
