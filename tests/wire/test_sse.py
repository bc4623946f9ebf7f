"""Server-sent events: the reader reads what the encoder writes, however the bytes are split."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.wire import frames
from deltamcp.wire.frames import SseEvent

MOST = 10_000
_DATA = st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"").replace(b"\n", b""))
_IDS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=8)


def read(chunks: list[bytes]) -> list[SseEvent]:
    reader = frames.SseReader(MOST)
    return [event for chunk in chunks for event in reader.feed(chunk)]


@st.composite
def cut(draw, text: bytes) -> list[bytes]:
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@given(st.lists(st.tuples(_DATA, _IDS), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_what_is_written_is_read_again_however_it_is_cut(events, end, data):
    written = b"".join(frames.encode_event(message, id_) for message, id_ in events)
    chunks = data.draw(cut(written.replace(b"\n", end)))

    found = read(chunks)
    assert [(event.data, event.id) for event in found] == [(message, id_) for message, id_ in events]


def test_an_event_that_only_says_when_to_come_back():
    (event,) = read([frames.encode_priming_event("s.0", 250), frames.KEEP_ALIVE])
    assert event == SseEvent(b"", "s.0", 250)


def test_comments_other_fields_and_several_lines():
    text = b": hello\nevent: endpoint\ndata: a\ndata:b\ndata\nretry: soon\nid: x\0y\nnonsense: z\n\n"
    assert read([text]) == [SseEvent(b"a\nb\n", None, None, "endpoint")]


def test_an_event_too_large_is_refused_wherever_it_is_cut():
    reader = frames.SseReader(MOST)
    with pytest.raises(ValueError, match="larger than"):
        for _ in range(MOST):
            list(reader.feed(b"data: xxxx\n"))


def test_an_event_of_a_million_lines_takes_little_more_than_its_bytes():
    reader = frames.SseReader(10_000_000)
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert list(reader.feed(b"data:\n" * 1000)) == []
        for _ in range(10_000):
            assert list(reader.feed(b"x")) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3_000_000

    (event,) = reader.feed(b"\n\n")
    assert event.data == b"\n" * 999_999
