"""Packs as text and as streams, their deltas and their roots."""

import math
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.gcf import (
    DeltaPayload,
    Edge,
    GcfError,
    Payload,
    ReaderSession,
    Session,
    StreamEncoder,
    Symbol,
    Unchanged,
    apply_delta,
    decode,
    decode_delta,
    decode_unchanged,
    diff,
    encode,
    encode_delta,
    encode_unchanged,
    encode_with_session,
    kind_of,
    pack_root,
    short_root,
)
from deltamcp.gcf.graph_model import sort_symbols
from tests.support.call_count import count_calls
from tests.support.gcf_packs import A, B, attempt_outcome, contents, damage, payloads, quantise, raises_gcf

# Texts


@given(payloads())
def test_a_text_is_read_as_it_was_written(payload: Payload):
    text = encode(payload)
    found = decode(text)
    assert found.symbols == tuple(quantise(symbol) for symbol in sort_symbols(payload.symbols))
    assert contents(found) == contents(payload)
    assert replace(found, symbols=(), edges=()) == replace(payload, symbols=(), edges=())
    assert encode(found) == text


@given(payloads())
def test_a_v1_text_is_read_as_it_was_written(payload: Payload):
    payload = replace(payload, tool="test")
    found = decode(encode(payload, dialect="v1"))
    assert found == replace(payload, symbols=[quantise(symbol) for symbol in payload.symbols])


@given(payloads())
def test_a_stream_says_the_same_as_a_text(payload: Payload):
    lines: list[str] = []
    stream = StreamEncoder(lines.append, payload.tool, pack_root=payload.pack_root)
    for symbol in sort_symbols(payload.symbols):
        stream.write_symbol(symbol)
    for edge in payload.edges:
        stream.write_edge(edge)
    stream.close()
    assert contents(decode("".join(lines))) == contents(payload)


def test_a_stream_takes_symbols_and_edges_as_they_come():
    lines: list[str] = []
    stream = StreamEncoder(lines.append, labelled_counts=True)
    stream.write_symbol(Symbol("a", "fn", 1, "p"))
    stream.write_edge(Edge("a", "a", "calls"))
    stream.write_symbol(Symbol("b", "fn", 1, "p"))
    stream.write_edge(Edge("b", "a", "calls"))
    with raises_gcf("unknown_edge_reference"):
        stream.write_edge(Edge("b", "c", "calls"))
    with raises_gcf("duplicate_key"):
        stream.write_symbol(Symbol("b", "function", 1, "p"))
    with raises_gcf("ambiguous_edge"):
        stream.write_symbol(Symbol("b", "type", 1, "p"))
    for kind in ("fn", "type"):
        stream.write_symbol(Symbol("c", kind, 1, "p"))
    with raises_gcf("ambiguous_edge"):
        stream.write_edge(Edge("c", "a", "calls"))
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.close()
    assert lines[-1] == "##! summary symbols=4 edges=2 counts=targets:4,edges:2\n"
    assert decode("".join(lines)).edges == (Edge("a", "a", "calls"), Edge("b", "a", "calls"))


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("", "missing_header"),
        ("GCF", "missing_profile"),
        ("GCF tool=a profile=graph", "missing_profile"),
        ("GCF profile=table", "unknown_profile"),
        ("GCF profile=graph tool=", "malformed_header_field"),
        ("GCF profile=graph 1=2", "malformed_header_field"),
        ("GCF profile=generic", "unknown_profile"),
        ("GCF profile=graph delta=true base_root=a new_root=b", "unknown_profile"),
        ("GCF profile=graph symbols=1", "count_mismatch"),
        ("GCF profile=graph symbols=01", "invalid_count"),
        ("GCF profile=graph\n@0 fn a 0.50 p", "invalid_node_line"),
        ("GCF profile=graph\n## targets\nfn a 0.5 p", "invalid_node_line"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.50 p q", "invalid_node_line"),
        ("GCF profile=graph\n## targets\n@0 fn  0.50 p", "invalid_node_line"),
        ("GCF profile=graph\n## targets\n@0  # previously transmitted", "invalid_node_line"),
        ("GCF profile=graph\n## targets\n@0x fn a 0.50 p", "invalid_symbol_id"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.50 p\n@0 fn b 0.50 p", "invalid_symbol_id"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.50 p\n@1 fn a 0.60 p", "duplicate_key"),
        ("GCF profile=graph\n## targets\n@0 fn a nan p", "invalid_score"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.5 p", "invalid_score"),
        ("GCF profile=graph\n## else where", "unknown_section"),
        ("GCF profile=graph\n## added", "unknown_section"),
        ("GCF profile=graph symbols=1\n## elsewhere\n@0 fn a 0.50 p", "count_mismatch"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.50 p\n##! summary symbols=2", "count_mismatch"),
        ("GCF profile=graph\n##! summary symbols=0\n## targets", "trailing_characters"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.50 p\n## edges\n@0<@0 calls x y", "invalid_edge_syntax"),
        ("GCF profile=graph\n## targets\n@0 fn a 0.50 p\n@1 var a 0.50 p\n## edges\n@0<@1 x", "ambiguous_edge"),
    ],
)
def test_a_text_that_is_wrong_is_refused(text: str, category: str):
    with raises_gcf(category):
        decode(text)


@given(payloads(), st.randoms(use_true_random=False))
def test_a_damaged_text_is_read_or_refused(payload: Payload, chance: random.Random):
    delta = DeltaPayload("t", "a", "b", payload.symbols, payload.symbols, payload.edges, payload.edges)
    session = Session()
    for text, read in (
        (encode(payload), decode),
        (encode(replace(payload, tool="t"), dialect="v1"), decode),
        (attempt_outcome(encode_delta, delta), decode_delta),
        (encode_with_session(payload, session) + encode_with_session(payload, session), decode),
        (encode_unchanged(Unchanged("a", 1)), decode_unchanged),
        (encode_unchanged(Unchanged("a", 1), dialect="v1"), decode_unchanged),
    ):
        with suppress(GcfError):
            read(damage(text, chance))


def test_sections_of_later_versions_are_passed_over():
    text = "GCF profile=graph symbols=1\n## targets\n@0 fn a 0.50 p\n## loc [1]\n@0 a.py 1 1\n"
    assert decode(text) == Payload(symbols=[Symbol("a", "fn", 0.5, "p")])


def test_a_fault_names_its_line():
    with pytest.raises(GcfError) as caught:
        decode("GCF profile=graph\n\n## targets\n@0 fn a nan p\n")
    assert caught.value.line == 4
    assert str(caught.value) == "line 4: invalid_score: 'nan' is not a score"


def test_what_a_text_is_stands_in_its_header():
    kinds = {
        "GCF profile=graph tool=t symbols=0\n": "graph",
        "GCF tool=t budget=0": "graph",
        "GCF tool=t delta=true base_root=a new_root=b": "graph-delta",
        "GCF profile=graph unchanged=true pack_root=a symbols=3": "graph-unchanged",
        "GCF profile=generic\r\na=1": "generic",
        "GCF profile=generic pack_root=a key=id\n": "generic-full",
        "GCF profile=generic delta=true base_root=a new_root=b key=id": "generic-delta",
        "GCF profile=generic unchanged=true pack_root=a count=3": "generic-unchanged",
    }
    assert {text: kind_of(text) for text in kinds} == kinds


def test_unchanged_is_said_and_read():
    graph = Unchanged("sha256:ab", 3, "t")
    assert encode_unchanged(graph) == "GCF profile=graph tool=t unchanged=true pack_root=sha256:ab symbols=3\n"
    generic = Unchanged("sha256:ab", 3, profile="generic")
    assert encode_unchanged(generic) == "GCF profile=generic unchanged=true pack_root=sha256:ab count=3\n"
    for answer in (graph, generic):
        assert decode_unchanged(encode_unchanged(answer)) == answer
    with raises_gcf("unknown_profile"):
        encode_unchanged(generic, dialect="v1")
    for text in ("GCF profile=graph unchanged=true symbols=3", "unchanged pack_root=a", "unchanged pack_root=a b=3"):
        with raises_gcf("malformed_header_field"):
            decode_unchanged(text)
    with raises_gcf("trailing_characters"):
        decode_unchanged(encode_unchanged(graph) + "## targets\n")


# Deltas and roots


@given(payloads(("",)), payloads(("",)))
def test_a_delta_applied_gives_the_new_pack(base: Payload, new: Payload):
    delta = diff(base, new)
    found = apply_delta(base, delta)
    assert contents(found) == contents(new)
    assert found.pack_root == pack_root(new.symbols, new.edges) == delta.new_root
    assert found.tool == new.tool
    read = decode_delta(encode_delta(delta)) if not _begins_a_line(delta) else delta
    assert read == delta
    short = replace(read, base_root=short_root(read.base_root), new_root=short_root(read.new_root))
    assert apply_delta(decode(encode(base)), short) == replace(found, token_budget=base.token_budget)


def _begins_a_line(delta: DeltaPayload) -> bool:
    return any(edge.source in ("#", "##") for edge in (*delta.removed_edges, *delta.added_edges))


@given(payloads(), st.randoms())
def test_a_root_knows_no_order_and_no_status(payload: Payload, chance: random.Random):
    symbols, edges = list(payload.symbols), [replace(edge, status="") for edge in payload.edges]
    chance.shuffle(symbols)
    chance.shuffle(edges)
    root = pack_root(payload.symbols, payload.edges)
    assert pack_root(symbols, edges) == root
    assert pack_root(*(lambda found: (found.symbols, found.edges))(decode(encode(payload)))) == root


def test_a_root_is_of_what_is_printed():
    root = pack_root([A, B], [])
    assert pack_root([replace(A, score=0.1004), B], [Edge("pkg.A", "elsewhere", "calls")]) == root
    assert pack_root([A], []) != root
    for change in ({"score": 0.2}, {"provenance": "x"}, {"distance": 1}, {"kind": "type"}):
        assert pack_root([replace(A, **change), B], []) != root


@pytest.mark.parametrize(
    ("change", "category"),
    [
        ({"base_root": 64 * "0"}, "base_mismatch"),
        ({"base_root": "a1b2c3"}, "base_mismatch"),
        ({"new_root": 64 * "0"}, "root_mismatch"),
        ({"added": [B]}, "delta_invalid"),
        ({"added": [Symbol("x", "fn", 1, "p"), Symbol("x", "fn", 1, "p")]}, "delta_invalid"),
        ({"removed": [Symbol("x", "fn")]}, "delta_invalid"),
        ({"removed": [A]}, "delta_invalid"),
        ({"removed_edges": [Edge("pkg.A", "pkg.A", "calls")]}, "delta_invalid"),
        ({"added_edges": [Edge("pkg.A", "pkg.B", "calls")]}, "delta_invalid"),
        ({"added_edges": [Edge("pkg.A", "elsewhere", "calls")]}, "delta_invalid"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(change: dict[str, Any], category: str):
    base = Payload("t", symbols=[A, B], edges=[Edge("pkg.A", "pkg.B", "calls")])
    nothing = diff(base, base)
    assert apply_delta(base, nothing).symbols == (B, A)
    with raises_gcf(category):
        apply_delta(base, replace(nothing, **change))


def test_a_changed_symbol_is_removed_and_added():
    delta = diff(Payload("t", symbols=[A, B]), Payload("t", symbols=[replace(A, score=0.5), B]))
    assert delta.removed == (Symbol("pkg.A", "function"),)
    assert delta.added == (replace(A, score=0.5),)


def test_a_status_that_a_delta_cannot_carry_is_refused():
    base = Payload("t", symbols=[A], edges=[Edge("pkg.A", "pkg.A", "calls", "added")])
    plain = replace(base, edges=[Edge("pkg.A", "pkg.A", "calls", "unchanged")])
    assert apply_delta(base, diff(base, base)).edges == base.edges
    for before, after in ((base, plain), (plain, base), (replace(base, edges=()), base)):
        with raises_gcf("delta_invalid"):
            diff(before, after)
    twice = replace(plain, edges=[*plain.edges, *plain.edges])
    with raises_gcf("delta_invalid"):
        diff(twice, plain)


@pytest.mark.parametrize(
    "body",
    ["## other\nfn a", "fn a", "## removed\nfn", "## removed\nfn a\n## removed\nfn b", "## edges_added\na > b c"],
)
def test_a_delta_text_that_is_wrong_is_refused(body: str):
    with raises_gcf("malformed_delta"):
        decode_delta(f"GCF profile=graph delta=true base_root=a new_root=b\n{body}\n")


def test_a_delta_text_needs_its_roots_and_its_session():
    with raises_gcf("malformed_delta"):
        decode_delta("GCF profile=graph delta=true base_root=a\n")
    with raises_gcf("invalid_node_line"):
        decode_delta("GCF profile=graph delta=true base_root=a new_root=b\n## added\n@0  # previously transmitted\n")
    with raises_gcf("invalid_symbol_id"):
        decode_delta("GCF profile=graph delta=true base_root=a new_root=b\n## added\n@0 fn a 1.00 p\n@0 fn b 1.00 p\n")


# What cannot be written


@pytest.mark.parametrize("bad", ["", " ", "a b", "a\nb", "a\tb", "ä", "\x7f", "pkg.A 0.9 x\n@9 fn evil"])
def test_defects_10_and_11_nothing_but_tokens_is_written(bad: str):
    edge = Edge("pkg.A", "pkg.A", "calls")
    for payload in (
        Payload("t", symbols=[replace(A, qualified_name=bad)]),
        Payload("t", symbols=[replace(A, provenance=bad)]),
        Payload("t", symbols=[replace(A, kind=bad)]),
        Payload("t", symbols=[A], edges=[replace(edge, edge_type=bad)]),
        *([Payload(bad), Payload("t", pack_root=bad)] if bad else []),
        *([Payload("t", symbols=[A], edges=[replace(edge, status=bad)])] if bad else []),
    ):
        with raises_gcf("invalid_token"):
            encode(payload)
    nothing = DeltaPayload("t", "a", "b")
    changes: list[dict[str, Any]] = [
        {"base_root": bad},
        {"new_root": bad},
        {"removed": [replace(A, qualified_name=bad)]},
        {"removed": [replace(A, kind=bad)]},
        {"added": [replace(A, provenance=bad)]},
        *({name: [Edge(*ends)]} for name in ("added_edges", "removed_edges") for ends in _with(bad)),
    ]
    for change in changes:
        with raises_gcf("invalid_token"):
            encode_delta(replace(nothing, **change))
    with raises_gcf("invalid_token"):
        encode_unchanged(Unchanged(bad, 0), dialect="v1")


def _with(bad: str) -> list[tuple[str, str, str]]:
    return [(bad, "b", "c"), ("a", bad, "c"), ("a", "b", bad)]


@pytest.mark.parametrize("word", ["#", "##", "##!"])
def test_no_delta_line_reads_as_a_comment_or_a_heading(word: str):
    for change in ({"removed": [Symbol("a", word)]}, {"added_edges": [Edge(word, "a", "b")]}):
        with raises_gcf("invalid_token"):
            encode_delta(replace(DeltaPayload("t", "a", "b"), **change))
    payload = Payload("t", symbols=[Symbol("#a", word, 0.5, word)])
    assert decode(encode(payload)) == payload


def test_defect_10_a_tool_without_a_name_is_left_out():
    assert encode(Payload()) == "GCF profile=graph symbols=0\n"
    assert decode(encode(Payload())) == Payload()
    assert encode_delta(DeltaPayload("", "a", "b")).startswith("GCF profile=graph delta=true base_root=a ")
    for attempt in (
        lambda: encode(Payload(), dialect="v1"),
        lambda: encode_delta(DeltaPayload("", "a", "b"), dialect="v1"),
    ):
        with raises_gcf("invalid_token"):
            attempt()


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 10**400])
def test_a_score_is_a_number(score: float):
    for attempt in (
        lambda: encode(Payload("t", symbols=[Symbol("a", "fn", score, "p")])),
        lambda: pack_root([Symbol("a", "fn", score, "p")], []),
    ):
        with raises_gcf("invalid_score"):
            attempt()


def test_counts_and_distances_are_whole_numbers():
    for payload in (
        Payload("t", tokens_used=-1),
        Payload("t", token_budget=True),
        Payload("t", symbols=[replace(A, distance=-1)]),
    ):
        with raises_gcf("invalid_count"):
            encode(payload)


def test_names_without_a_meaning_are_refused():
    with raises_gcf("duplicate_key"):
        encode(Payload("t", symbols=[A, A]))
    kinds = Payload("t", symbols=[A, replace(A, kind="type")])
    assert contents(decode(encode(kinds))) == contents(kinds)
    with raises_gcf("ambiguous_edge"):
        encode(replace(kinds, edges=[Edge("pkg.A", "pkg.A", "calls")]))
    with raises_gcf("invalid_token"):
        pack_root([replace(A, qualified_name="a\tb")], [])
    with raises_gcf("invalid_surrogate"):
        pack_root([replace(A, qualified_name="\ud800")], [])


def test_savings_and_scores_are_rounded_half_to_even():
    for tokens, full, printed in ((75, 200, 62), (77, 200, 62), (85, 200, 58), (3, 2, -50), (1, 0, 0), (0, 9, 100)):
        delta = DeltaPayload("t", "a", "b", delta_tokens=tokens, full_tokens=full)
        assert f" tokens={tokens} savings={printed}%\n" in encode_delta(delta)
    scores = {0.125: "0.12", 0.375: "0.38", 0.625: "0.62", 0.005: "0.01", 1: "1.00"}
    assert {score: Symbol("a", "fn", score).printed_score for score in scores} == scores


def send_large_packs(count: int) -> None:
    symbols = [Symbol(f"pkg.F{number}", "fn", number % 100 / 100, "lsp", number % 4) for number in range(count)]
    edges = [Edge(f"pkg.F{number}", f"pkg.F{number * 7 % count}", "calls") for number in range(count)]
    base = Payload("t", symbols=symbols, edges=edges)
    new = replace(base, symbols=symbols[: -count // 60], edges=edges[: count // 2])
    writer, reader = Session(max_symbols=count // 2), ReaderSession()
    for payload in (base, new):
        assert len(decode(encode_with_session(payload, writer), session=reader).symbols) == len(payload.symbols)
    assert len(apply_delta(base, diff(base, new)).symbols) == len(new.symbols)


def test_work_grows_with_the_symbols():
    assert count_calls(lambda: send_large_packs(12_000)) < 10.5 * count_calls(lambda: send_large_packs(1_200))
