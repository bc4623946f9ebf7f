"""Frames of HTTP/2: whole, in any pieces, and not more than a server takes."""

import itertools

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.wire.http2_frames import (
    MAX_FRAME_BYTES,
    PREFACE,
    ClientFrames,
    ErrorCode,
    Flag,
    FrameType,
    Http2Error,
    Http2Frame,
    ServerFrames,
    count_fields,
    write_frame,
    write_headers,
)

HEADER_BYTES = 32 * 1024

payloads = st.binary(max_size=300)
streams = st.integers(1, 2**31 - 1)
plain_kinds = st.sampled_from(
    [kind for kind in FrameType if kind.name not in ("HEADERS", "CONTINUATION", "PUSH_PROMISE")]
)
plain_frames = st.builds(Http2Frame, plain_kinds | st.integers(10, 255), st.integers(0, 255), streams, payloads)
sections = st.builds(
    lambda stream, ends, block: Http2Frame(FrameType.HEADERS, int(ends), stream, block),
    streams,
    st.booleans(),
    payloads,
)


def write(frame: Http2Frame, at: int = 300) -> bytes:
    """A frame; of a header section, two if it can be cut there."""
    if frame.kind != FrameType.HEADERS:
        return write_frame(*frame)
    first, rest = frame.payload[:at], frame.payload[at:]
    if not rest:
        return write_frame(FrameType.HEADERS, frame.flags | Flag.END_HEADERS, frame.stream, first)
    continued = write_frame(FrameType.CONTINUATION, Flag.END_HEADERS, frame.stream, rest)
    return write_frame(FrameType.HEADERS, frame.flags, frame.stream, first) + continued


def read_all(frames: ClientFrames) -> list[Http2Frame]:
    return list(iter(frames.read, None))


def feed(*pieces: bytes) -> list[Http2Frame]:
    frames = ClientFrames(HEADER_BYTES)
    frames.feed(PREFACE)
    found = []
    for piece in pieces:
        frames.feed(piece)
        found += read_all(frames)
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]


@given(st.lists(plain_frames | sections, max_size=8), st.lists(st.integers(0, 5000), max_size=8), st.integers(0, 300))
def test_frames_come_whole_in_whatever_pieces_they_are_sent(sent, places, at):
    data = PREFACE + b"".join(write(frame, at) for frame in sent)
    frames = ClientFrames(HEADER_BYTES)
    found = []
    for piece in cut(data, places):
        frames.feed(piece)
        found += read_all(frames)
    assert found == sent
    assert not frames.is_in_headers


@given(st.lists(plain_frames | sections, max_size=8), st.lists(st.integers(0, 5000), max_size=8))
def test_the_streams_that_a_server_ends_are_told_in_whatever_pieces_it_sends(sent, places):
    server = ServerFrames()
    found = [stream for piece in cut(b"".join(map(write, sent)), places) for stream in server.feed(piece)[0]]
    assert found == [
        frame.stream
        for frame in sent
        if frame.kind == FrameType.RST_STREAM
        or (frame.kind in (FrameType.DATA, FrameType.HEADERS) and frame.flags & Flag.END_STREAM)
    ]


@given(st.lists(plain_frames | sections, max_size=8), st.lists(st.integers(0, 5000), max_size=8))
def test_a_frame_of_ones_own_fits_in_wherever_a_server_ends_one(sent, places):
    own = write_frame(FrameType.PING, 0, 0, b"between.")
    server, passed = ServerFrames(), b""
    for piece in cut(b"".join(map(write, sent)), places):
        _, place = server.feed(piece)
        passed += piece if place is None else piece[:place] + own + piece[place:]
        assert server.is_between == (place == len(piece))
    found = feed(passed)
    assert [frame for frame in found if frame.payload != b"between."] == sent


names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=40)
fields = st.lists(
    st.tuples(names, st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)), max_size=20
)


@given(st.lists(fields, max_size=5), st.booleans())
def test_fields_are_counted_as_hpack_encodes_them(lists, huffman):
    encoder = hpack.Encoder()
    for number, one in enumerate(lists):
        if number == 1:
            encoder.header_table_size = 100
        block = encoder.encode(one, huffman=huffman)
        assert count_fields(block) - len(one) in ((0,) if number != 1 else (0, 1))  # the size of the table


@given(st.binary(max_size=2000))
def test_whatever_is_sent_as_fields_can_be_counted(block):
    assert count_fields(block) <= len(block)


@given(fields, st.sampled_from([0, 20_000]))
def test_a_field_can_be_added_to_a_header_section(sent, more):
    encoder, decoder = hpack.Encoder(), hpack.Decoder()
    for _ in range(2):  # the tables of both sides stay the same
        wanted = [*sent, ("x-more", "y" * more)]
        frame = Http2Frame(FrameType.HEADERS, Flag.END_STREAM, 1, encoder.encode(wanted))
        [read] = feed(write_headers(frame, b"x-own", b"17"))
        assert (read.flags, read.stream) == (frame.flags, frame.stream)
        assert decoder.decode(read.payload) == [*wanted, ("x-own", "17")]


def test_padding_and_priority_are_left_out():
    payload = b"\x03" + bytes(5) + b"block" + bytes(3)
    flags = Flag.PADDED | Flag.PRIORITY | Flag.END_HEADERS | Flag.END_STREAM
    assert feed(write_frame(FrameType.HEADERS, flags, 1, payload)) == [
        Http2Frame(FrameType.HEADERS, Flag.END_STREAM, 1, b"block")
    ]


@pytest.mark.parametrize(
    ("frame", "is_significant"),
    [
        (Http2Frame(FrameType.DATA, 0, 1, b""), False),
        (Http2Frame(FrameType.DATA, Flag.END_STREAM, 1, b""), True),
        (Http2Frame(FrameType.DATA, 0, 1, b"x"), True),
        (Http2Frame(FrameType.PRIORITY, 0, 1, bytes(5)), False),
        (Http2Frame(77, 0, 1, b"x"), False),
        (Http2Frame(FrameType.PING, 0, 0, bytes(8)), True),
        (Http2Frame(FrameType.HEADERS, 0, 1, b""), True),
    ],
)
def test_some_frames_mean_nothing_to_a_server(frame, is_significant):
    assert frame.is_significant == is_significant


BEGUN = write_frame(FrameType.HEADERS, 0, 1, b"x")
MORE = write_frame(FrameType.CONTINUATION, 0, 1, b"x")


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (write_frame(FrameType.DATA, 0, 1, bytes(MAX_FRAME_BYTES + 1))[:9], ErrorCode.FRAME_SIZE_ERROR, "16384 bytes"),
        (BEGUN + write_frame(FrameType.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR, "its own frames only"),
        (BEGUN + write_frame(FrameType.CONTINUATION, 0, 3), ErrorCode.PROTOCOL_ERROR, "its own frames only"),
        (MORE, ErrorCode.PROTOCOL_ERROR, "its own frames only"),
        (write_frame(FrameType.PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR, "push nothing"),
        (write_frame(FrameType.HEADERS, Flag.PADDED, 1, b"\x09x"), ErrorCode.PROTOCOL_ERROR, "more padding"),
        (BEGUN + 9 * MORE, ErrorCode.ENHANCE_YOUR_CALM, "in 9 frames"),
        (
            write_frame(FrameType.HEADERS, 0, 1, bytes(16_000))
            + write_frame(FrameType.CONTINUATION, 0, 1, bytes(16_000)) * 2,
            ErrorCode.ENHANCE_YOUR_CALM,
            "32768 bytes",
        ),
        (write_frame(FrameType.HEADERS, Flag.END_HEADERS, 1, b"\x82" * 513), ErrorCode.ENHANCE_YOUR_CALM, "512 fields"),
    ],
    ids=["size", "other frame", "other stream", "nothing begun", "push", "padding", "frames", "bytes", "fields"],
)
def test_what_a_server_does_not_take(data, code, text):
    with pytest.raises(Http2Error, match=text) as caught:
        feed(data)
    assert caught.value.code == code


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", PREFACE[:-1] + b"x"])
def test_what_is_no_http_2_is_refused_at_once(data):
    with pytest.raises(Http2Error, match="no HTTP/2"):
        ClientFrames(HEADER_BYTES).feed(data)


def test_a_header_section_that_has_begun_is_told():
    frames = ClientFrames(HEADER_BYTES)
    frames.feed(PREFACE + BEGUN[:4])
    assert frames.is_in_headers and frames.read() is None
    frames.feed(BEGUN[4:])
    assert frames.read() is None and frames.is_in_headers
    frames.feed(write_frame(FrameType.CONTINUATION, Flag.END_HEADERS, 1, b"y"))
    assert frames.read() == Http2Frame(FrameType.HEADERS, 0, 1, b"xy")
    assert not frames.is_in_headers
