"""Sessions: the reader knows what the writer believes it knows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.gcf import (
    DeltaPayload,
    Edge,
    Payload,
    ReaderSession,
    Session,
    StreamEncoder,
    decode,
    decode_delta,
    encode,
    encode_delta,
    encode_with_session,
)
from tests.support.gcf_packs import A, B, contents, payloads, quantise, raises_gcf

Steps = st.lists(st.tuples(st.sampled_from(["text", "stream", "delta", "reset"]), payloads()), max_size=8)


@given(Steps, st.integers(1, 12), st.booleans())
def test_a_reader_follows_a_session(steps: list[tuple[str, Payload]], max_symbols: int, combine: bool):
    writer, reader = Session(max_symbols), ReaderSession()
    for how, payload in steps:
        if how == "reset":
            writer.reset()
        if how == "delta":
            delta = DeltaPayload("t", "a", "b", added=[quantise(symbol) for symbol in payload.symbols])
            assert decode_delta(encode_delta(delta, session=writer, combine=combine), session=reader) == delta
        elif how == "stream":
            lines: list[str] = []
            stream = StreamEncoder(lines.append, session=writer)
            for symbol in payload.symbols:
                stream.write_symbol(symbol)
            for edge in payload.edges:
                stream.write_edge(edge)
            stream.close()
            assert contents(decode("".join(lines), session=reader)) == contents(payload)
        else:
            found = decode(encode_with_session(payload, writer), session=reader)
            assert contents(found) == contents(payload)
            assert found.symbols == decode(encode(payload)).symbols
        assert len(writer) <= max_symbols


def test_defect_1_a_session_records_the_ids_it_wrote():
    session, unsorted = Session(), Payload("t", symbols=[A, B])
    assert "@0 fn pkg.B 0.90 lsp\n@1 fn pkg.A 0.10 lsp\n" in encode_with_session(unsorted, session)
    again = encode_with_session(replace(unsorted, edges=[Edge("pkg.A", "pkg.B", "calls")]), session)
    assert again.endswith("@0  # previously transmitted\n@1  # previously transmitted\n## edges [1]\n@0<@1 calls\n")


def test_defect_7_a_session_text_is_read_with_its_session():
    writer, reader = Session(), ReaderSession()
    texts = [encode_with_session(Payload("t", symbols=[A, B]), writer) for _ in range(2)]
    assert decode(texts[0], session=reader) == decode(texts[1], session=reader) == decode(texts[0])
    with raises_gcf("invalid_node_line"):
        decode(texts[1])
    with raises_gcf("invalid_symbol_id"):
        decode(texts[1], session=ReaderSession())


def test_defect_8_a_session_text_counts_the_edges_it_has_and_sorts_them():
    edges = [Edge("pkg.B", "pkg.A", "uses"), Edge("pkg.A", "elsewhere", "calls"), Edge("pkg.B", "pkg.A", "calls")]
    text = encode_with_session(Payload("t", symbols=[A, B], edges=edges), Session())
    assert "symbols=2 edges=2 session=true\n" in text
    assert text.endswith("## edges [2]\n@1<@0 calls\n@1<@0 uses\n")
    assert len(decode(text, session=ReaderSession()).edges) == 2


def test_defect_15_a_streams_reference_has_the_sessions_id():
    writer, reader, lines = Session(), ReaderSession(), list[str]()
    decode(encode_with_session(Payload("t", symbols=[A, B]), writer), session=reader)
    stream = StreamEncoder(lines.append, session=writer)
    stream.write_bare_ref("fn", "pkg.A", 3)
    with raises_gcf("invalid_symbol_id"):
        stream.write_bare_ref("type", "pkg.A", 3)
    stream.close()
    assert lines[2] == "@1  # previously transmitted\n"
    assert decode("".join(lines), session=reader).symbols == (replace(A, distance=3),)
    with raises_gcf("invalid_symbol_id"):
        StreamEncoder(lines.append).write_bare_ref("fn", "pkg.A", 0)


def test_defect_17_a_session_tells_kinds_apart():
    session = Session()
    encode_with_session(Payload("t", symbols=[A]), session)
    assert "@1 type pkg.A 0.10 lsp\n" in encode_with_session(Payload("t", symbols=[replace(A, kind="type")]), session)


@pytest.mark.parametrize("change", [{"score": 0.11}, {"provenance": "ast"}])
def test_a_changed_symbol_is_declared_again_under_its_id(change: dict[str, Any]):
    writer, reader, changed = Session(), ReaderSession(), replace(A, **change)
    decode(encode_with_session(Payload("t", symbols=[B, A]), writer), session=reader)
    text = encode_with_session(Payload("t", symbols=[changed]), writer)
    assert f"@1 {changed.declaration}\n" in text
    assert decode(text, session=reader).symbols == (changed,)


def test_a_change_that_is_not_printed_is_none():
    session = Session()
    encode_with_session(Payload("t", symbols=[A]), session)
    assert "@0  # prev" in encode_with_session(Payload("t", symbols=[replace(A, score=0.1000001)]), session)


def test_the_heading_says_the_distance_of_a_reference_and_a_delta_has_no_heading():
    writer, reader, far = Session(), ReaderSession(), replace(A, distance=4)
    decode(encode_with_session(Payload("t", symbols=[A]), writer), session=reader)
    text = encode_with_session(Payload("t", symbols=[far]), writer)
    assert text.endswith("## distance_4\n@0  # previously transmitted\n")
    assert decode(text, session=reader).symbols == (far,)
    nearer = DeltaPayload("t", "a", "b", added=[A])
    assert "@0 fn pkg.A 0.10 lsp 0\n" in encode_delta(nearer, session=writer, combine=True)
    assert "@0  # previously transmitted\n" in encode_delta(nearer, session=writer, combine=True)
    assert "@0 fn pkg.A 0.10 lsp 0\n" in encode_delta(nearer, session=writer)


def test_references_of_a_v1_session_are_refused_rather_than_lost():
    writer, reader = Session(), ReaderSession()
    first = encode_with_session(Payload("t", symbols=[A, B]), writer, dialect="v1")
    assert decode(first, session=reader).symbols == decode(first).symbols
    second = encode_with_session(Payload("t", symbols=[B], edges=[]), writer, dialect="v1")
    assert "@0  # previously transmitted" in second, "the id is that of A in the first text"
    with raises_gcf("invalid_node_line"):
        decode(second, session=reader)


def test_a_session_shares_no_ids_with_v1_deltas():
    with raises_gcf("invalid_symbol_id"):
        encode_delta(DeltaPayload("t", "a", "b", added=[A]), dialect="v1", session=Session(), combine=True)


def test_what_is_refused_leaves_no_trace_in_a_session():
    session, bad = Session(), replace(B, provenance="")
    for attempt in (
        lambda: encode_with_session(Payload("t", symbols=[A, bad]), session),
        lambda: encode_with_session(Payload("a b", symbols=[A]), session),
        lambda: encode_with_session(Payload("t", symbols=[A], edges=[Edge("pkg.A", "pkg.A", "")]), session),
        lambda: encode_delta(DeltaPayload("t", "a", "b", added=[A, bad]), session=session),
        lambda: encode_delta(DeltaPayload("t", "a", "b", added=[A], added_edges=[Edge("", "", "")]), session=session),
        lambda: encode_delta(DeltaPayload("t", "a", "b", added=[replace(A, distance=-1)]), session=session),
    ):
        with raises_gcf("invalid"):
            attempt()
    assert len(session) == 0


def test_what_cannot_be_read_leaves_no_trace_in_a_reader():
    reader, text = ReaderSession(), encode_with_session(Payload("t", symbols=[A, B]), Session())
    with raises_gcf("invalid_score"):
        decode(text.replace("0.10", "none"), session=reader)
    with raises_gcf("invalid_count"):
        decode(text.replace(" symbols=2", " tokens=many"), session=reader)
    delta = encode_delta(DeltaPayload("t", "a", "b", added=[A]), session=Session())
    with raises_gcf("invalid_count"):
        decode_delta(delta.replace("tokens=0", "tokens=many"), session=reader)
    assert len(reader) == 0
    decode(encode(Payload("t", symbols=[A, B])), session=reader)
    assert len(reader) == 0
    decode(text, session=reader)
    with raises_gcf("invalid_symbol_id"):
        decode(text.replace("pkg.A", "pkg.Z"), session=reader)


def test_a_forgotten_symbol_is_declared_under_a_fresh_id():
    session = Session(max_symbols=1)
    for expected in ("@0 fn pkg.A", "@1 fn pkg.B", "@2 fn pkg.A", "@2  # previously"):
        symbol = A if "A" in expected or "prev" in expected else B
        assert expected in encode_with_session(Payload("t", symbols=[symbol]), session)
    session.reset()
    assert "@3 fn pkg.A" in encode_with_session(Payload("t", symbols=[A]), session)
    with pytest.raises(ValueError, match="at least one"):
        Session(0)


def test_a_session_knows_how_much_memory_it_takes():
    session = Session(max_symbols=100)
    sizes = []
    for number in range(300):
        session.write(replace(A, qualified_name=f"pkg.{'x' * 1000}{number % 150}"))
        sizes.append(session.nbytes)
    assert sizes[0] > 2000 and sizes[99] > 100 * 2000
    assert max(sizes) < 1.1 * sizes[99]
    session.refer("function", f"pkg.{'x' * 1000}149", 1)
    assert session.nbytes == sizes[-1]
    copied = session.copy()
    session.reset()
    assert session.nbytes == 0 and copied.nbytes == sizes[-1] and len(copied) == 100


def test_a_copy_and_its_original_do_not_share_what_they_learn():
    session = Session()
    session.write(A)
    copied = session.copy()
    assert copied.write(A) == (0, True) and copied.write(B) == (1, False)
    assert session.write(B) == (1, False) and len(session) == len(copied) == 2
