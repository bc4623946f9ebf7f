"""Packs beside the reference, gcf-python 2.8.0: every difference is one of a named class, where it is wrong."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import gcf

from deltamcp.gcf import (
    DeltaPayload,
    Edge,
    Payload,
    Session,
    Symbol,
    decode,
    encode,
    encode_delta,
    encode_with_session,
    pack_root,
)
from deltamcp.gcf.graph_model import sort_symbols
from tests.support.gcf_packs import attempt_outcome, quantise


def theirs(payload: Payload) -> gcf.Payload:
    return gcf.Payload(
        tool=payload.tool,
        tokens_used=payload.tokens_used,
        token_budget=payload.token_budget,
        pack_root=payload.pack_root,
        symbols=[gcf.Symbol(s.qualified_name, s.kind, s.score, s.provenance, s.distance) for s in payload.symbols],
        edges=[gcf.Edge(e.source, e.target, e.edge_type, e.status) for e in payload.edges],
    )


def random_payload(chance: random.Random) -> Payload:
    pool = [f"pkg.{letter}" for letter in "ABCDEFGH"]
    twist = chance.choice(["", "", "", "", "", "", "injection", "no provenance", "no tool", "nan", "behind", "digits"])
    symbols = [
        Symbol(
            chance.choice(pool),
            chance.choice(["function", "fn", "type", "widget"]),
            chance.uniform(-1, 1) if twist == "digits" else chance.randrange(101) / 100,
            chance.choice(["lsp", "ast"]),
            chance.randrange(5),
        )
        for _ in range(chance.randrange(1, 6))
    ]
    change = {
        "injection": {"qualified_name": "pkg.A 0.9 x\n@9 fn evil"},
        "no provenance": {"provenance": ""},
        "nan": {"score": math.nan},
        "behind": {"distance": -1},
    }.get(twist, {})
    symbols[0] = replace(symbols[0], **change)  # type: ignore[arg-type]
    edges = [
        Edge(chance.choice(pool), chance.choice(pool), chance.choice(["calls", "uses"]), chance.choice(["", "added"]))
        for _ in range(chance.randrange(5))
    ]
    return Payload("" if twist == "no tool" else "t", chance.randrange(3), chance.randrange(3), "", symbols, edges)


def shared_names(payload: Payload) -> set[str]:
    counted = Counter(symbol.qualified_name for symbol in payload.symbols)
    return {name for name, count in counted.items() if count > 1}


def dangles(payload: Payload) -> bool:
    names = {symbol.qualified_name for symbol in payload.symbols}
    return any(edge.source not in names or edge.target not in names for edge in payload.edges)


TEXT_DIFFERENCES: dict[str, Callable[[Payload], bool]] = {
    "a name that is no token injects lines": lambda p: any("\n" in s.qualified_name for s in p.symbols),
    "an empty provenance is a line nobody can read": lambda p: any(not s.provenance for s in p.symbols),
    "an empty tool is a field nobody can read": lambda p: not p.tool,
    "a score that is no number is printed": lambda p: any(math.isnan(s.score) for s in p.symbols),
    "a distance below 0 is printed as extended": lambda p: any(s.distance < 0 for s in p.symbols),
    "one symbol twice has two ids": lambda p: len({s.identity for s in p.symbols}) < len(p.symbols),
    "two kinds of one name share one id": lambda p: bool(shared_names(p)),
}
ROOT_DIFFERENCES: dict[str, Callable[[Payload], bool]] = {
    **{
        name: TEXT_DIFFERENCES[name]
        for name in TEXT_DIFFERENCES
        if "tool" not in name and "empty" not in name and "below" not in name
    },
    "more digits than are printed": lambda p: any(s != quantise(s) for s in p.symbols),
    "edges that are not printed": dangles,
}


def compare(
    differences: dict[str, Callable[[Payload], bool]],
    ours: Callable[[Payload], str],
    reference: Callable[[Payload], str],
) -> Counter[str]:
    chance, seen = random.Random(20260907), Counter[str]()
    for _ in range(4_000):
        payload = random_payload(chance)
        mine, other = attempt_outcome(ours, payload), attempt_outcome(reference, payload)
        classes = [name for name, holds in differences.items() if holds(payload)]
        if mine != other:
            assert classes, (payload, mine, other)
            seen.update(classes[:1])
        else:
            seen["equal"] += 1
    return seen


def test_texts_differ_from_the_reference_only_where_it_is_wrong():
    seen = compare(TEXT_DIFFERENCES, encode, lambda payload: gcf.encode(theirs(payload)))
    assert seen.keys() == {*TEXT_DIFFERENCES, "equal"}
    assert seen["equal"] > 1_000


def test_roots_differ_from_the_reference_only_where_it_is_wrong():
    seen = compare(
        ROOT_DIFFERENCES,
        lambda p: pack_root(p.symbols, p.edges),
        lambda p: gcf.pack_root(theirs(p).symbols, theirs(p).edges),
    )
    assert seen.keys() == {*ROOT_DIFFERENCES, "equal"}
    assert seen["equal"] > 500


def test_the_reference_reads_what_is_written():
    chance = random.Random(20260907)
    for _ in range(2_000):
        payload = random_payload(chance)
        text = attempt_outcome(encode, payload)
        if not text.startswith("refused"):
            read = gcf.decode(text)
            symbols = [Symbol(s.qualified_name, s.kind, s.score, s.provenance, s.distance) for s in read.symbols]
            edges = [Edge(e.source, e.target, e.edge_type, e.status) for e in read.edges]
            assert decode(text) == Payload(
                read.tool, read.tokens_used, read.token_budget, read.pack_root, symbols, edges
            )


def test_deltas_differ_from_the_reference_only_in_how_it_rounds_savings():
    chance, seen = random.Random(20260907), Counter[str]()
    for _ in range(4_000):
        tokens, full = chance.randrange(400), chance.randrange(1, 400)
        names = [f"pkg.{chance.choice('ABCDEFGH')}" for _ in range(8)]
        symbols = [Symbol(name, "fn", chance.uniform(0, 1), "lsp", chance.randrange(4)) for name in names]
        edges = [Edge(chance.choice(names), chance.choice(names), "calls") for _ in range(4)]
        cut = chance.randrange(4)
        delta = DeltaPayload("t", "a", "b", symbols[:cut], symbols[4 : 4 + cut], edges[:cut], edges[cut:], tokens, full)
        twin = theirs(Payload(symbols=symbols, edges=edges))
        other = gcf.encode_delta(
            gcf.DeltaPayload(
                tool="t",
                base_root="a",
                new_root="b",
                removed=twin.symbols[:cut],
                added=twin.symbols[4 : 4 + cut],
                removed_edges=twin.edges[:cut],
                added_edges=twin.edges[cut:],
                delta_tokens=tokens,
                full_tokens=full,
            )
        )
        mine = encode_delta(delta)
        if mine != other:
            assert mine.partition(" savings=")[0] == other.partition(" savings=")[0]
            assert mine.partition("\n")[2] == other.partition("\n")[2]
            midpoint = 200 * (full - tokens) % (2 * full) == full
            assert midpoint or (" savings=0%\n" in mine and " savings=-0%\n" in other), (tokens, full)
            seen["midpoint" if midpoint else "minus nought"] += 1
        else:
            seen["equal"] += 1
    assert seen.keys() == {"midpoint", "minus nought", "equal"}
    assert seen["equal"] > 3_800


def sessions_differ(first: Payload, second: Payload) -> str:
    """Why the second text of a session differs from the reference's; empty if nothing says it should."""
    before = {symbol.qualified_name: symbol for symbol in first.symbols}
    common = [(before[s.qualified_name], s) for s in second.symbols if s.qualified_name in before]
    if any(old.kind != new.kind for old, new in common):
        return "kinds are not told apart"
    if any(old.declaration != new.declaration for old, new in common):
        return "a change is not told"
    if [*sort_symbols(first.symbols)] != [*first.symbols] or [*sort_symbols(second.symbols)] != [*second.symbols]:
        return "ids are not those written"
    if dangles(second) or dangles(first):
        return "edges are counted that are not printed"
    return "edges are not sorted" if len(second.edges) > 1 or len(first.edges) > 1 else ""


def test_sessions_differ_from_the_reference_only_where_it_is_wrong():
    chance, seen = random.Random(20260907), Counter[str]()
    while sum(seen.values()) < 3_000:
        pair = [random_payload(chance), random_payload(chance)]
        if chance.random() < 0.5:
            pair = [
                replace(payload, edges=[e for e in payload.edges if not dangles(replace(payload, edges=[e]))])
                for payload in pair
            ]
        if any(shared_names(payload) or attempt_outcome(encode, payload).startswith("refused") for payload in pair):
            continue
        if not all(payload.tool for payload in pair):
            continue
        ours, reference = Session(), gcf.Session()
        mine = [encode_with_session(payload, ours) for payload in pair]
        other = [gcf.encode_with_session(theirs(payload), reference) for payload in pair]
        if mine == other:
            seen["equal"] += 1
        else:
            reason = sessions_differ(*pair)
            assert reason, (pair, mine, other)
            seen[reason] += 1
    assert seen.keys() == {
        "equal",
        "kinds are not told apart",
        "a change is not told",
        "ids are not those written",
        "edges are counted that are not printed",
        "edges are not sorted",
    }
