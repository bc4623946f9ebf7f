"""Random packs, and what a reader knows of one."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from deltamcp.gcf import Edge, GcfError, Payload, Symbol
from deltamcp.gcf.graph_model import SHORT_KINDS

TOKENS = st.sampled_from(["a.A", "a.B", "b.C", "#", "##", "->", "@0", "-"]) | st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=8
)
NAMES = st.sampled_from([f"pkg.F{number}" for number in range(8)]) | TOKENS
SYMBOLS = st.builds(
    Symbol,
    qualified_name=NAMES,
    kind=st.sampled_from([*SHORT_KINDS, "widget"]),
    score=st.floats(-2, 2) | st.integers(0, 100).map(lambda cents: cents / 100),
    provenance=st.sampled_from(["lsp", "ast", "rwr"]) | TOKENS,
    distance=st.integers(0, 5),
)


@st.composite
def payloads(draw: st.DrawFn, statuses: tuple[str, ...] = ("", "added", "removed")) -> Payload:
    symbols = draw(st.lists(SYMBOLS, max_size=8, unique_by=lambda symbol: symbol.identity))
    counted = Counter(symbol.qualified_name for symbol in symbols)
    ends = st.sampled_from([name for name, count in counted.items() if count == 1] or ["nowhere"])
    links = st.builds(
        Edge, source=ends, target=ends, edge_type=st.sampled_from(["calls", "uses"]), status=st.sampled_from(statuses)
    )
    edges = draw(st.lists(links, max_size=6, unique_by=lambda edge: edge.identity))
    return Payload(
        tool=draw(st.sampled_from(["", "context_for_task"])),
        tokens_used=draw(st.integers(0, 9)),
        token_budget=draw(st.integers(0, 9)),
        pack_root=draw(st.sampled_from(["", "a1b2c3d4"])),
        symbols=symbols,
        edges=[edge for edge in edges if edge.source != "nowhere"],
    )


def quantise(symbol: Symbol) -> Symbol:
    return replace(symbol, score=float(f"{symbol.score:.2f}"))


def contents(payload: Payload) -> tuple[set[Symbol], set[Edge]]:
    """A pack as a reader knows it: scores in two decimals, nothing in order."""
    edges = {replace(edge, status=edge.printed_status) for edge in payload.edges}
    return {quantise(symbol) for symbol in payload.symbols}, edges


def raises_gcf(category: str) -> Any:
    return pytest.raises(GcfError, match=category)


A, B = Symbol("pkg.A", "function", 0.1, "lsp"), Symbol("pkg.B", "function", 0.9, "lsp")


def attempt_outcome(attempt: Callable[..., str], *given: object) -> str:
    """What it returns, or that it refused."""
    try:
        return attempt(*given)
    except ValueError as fault:
        return f"refused: {fault}"


def damage(text: str, chance: random.Random) -> str:
    """The text with a few of its characters lost, doubled or replaced."""
    letters = list(text)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(letters) + 1)
        letters[place : place + chance.randrange(3)] = chance.choice(
            ["", " ", "\n", "@", "#", '"', "|", "9", "~", "^", "\\", "\ud800", "="]
        )
    return "".join(letters)
