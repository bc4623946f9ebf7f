"""The bounds of a message: what exceeds them is refused before it is decoded, by the request's id where it is found."""

import json
import tracemalloc
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import Malformed, Request
from deltamcp.wire import cbor, jsonrpc
from deltamcp.wire.codecs import CBOR_CODEC, CODECS, COMPACT_CODEC, JSON_CODEC, Codec
from deltamcp.wire.frames import LineReader
from deltamcp.wire.message_bounds import MAX_DIGITS, MessageBoundError, check_json, estimate_memory

LIMITS = Limits()
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)

texts = st.text(st.sampled_from('[]{},:"\\ 09aé\n\u2028😀') | st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)
layouts = st.sampled_from(
    [{"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (" , ", "\t:\n")}]
)


def count(value: Any) -> int:
    """The number of values and names in a value; an empty array or object counts twice."""
    if isinstance(value, dict):
        return 1 + (not value) + sum(1 + count(item) for item in value.values())
    return 1 + (not value) + sum(map(count, value)) if isinstance(value, list) else 1


def depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def call(argument: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x", "arguments": {"v": argument}}}


# Counting


@given(values, layouts)
def test_the_values_of_json_are_counted_exactly(value, layout):
    body = json.dumps(value, **layout).encode()
    check_json(body, Limits(values=count(value)))
    if count(value) > 1:
        with pytest.raises(MessageBoundError, match="values"):
            check_json(body, Limits(values=count(value) - 1))


@given(values, layouts)
def test_the_depth_of_json_is_found_exactly(value, layout):
    body = json.dumps([value], **layout).encode()
    check_json(body, Limits(depth=depth(value) + 1))
    if depth(value):
        with pytest.raises(MessageBoundError, match="nested"):
            check_json(body, Limits(depth=depth(value)))


@given(st.binary(max_size=300) | st.text(st.sampled_from('[]{},:"\\'), max_size=300).map(str.encode))
def test_any_bytes_are_counted(body):
    for limits in (LIMITS, Limits(values=3, depth=2)):
        try:
            check_json(body, limits)
        except MessageBoundError as error:
            assert str(error).endswith(".")


@pytest.mark.parametrize(
    "argument",
    ['"' + "," * 200_000 + '"', '"' + '\\",[' * 50_000 + '"', '"' + "9" * 200_000 + '"', '"' + "\\\\" * 100_000 + '"'],
    ids=["commas", "escapes", "digits", "backslashes"],
)
def test_text_is_one_value_whatever_is_in_it(argument):
    body = json.dumps(call("?")).replace('"?"', argument).encode()
    assert isinstance(jsonrpc.read(body, LIMITS), Request)


# Refusal


@pytest.fixture
def undecoded(monkeypatch):
    """Fails the test if a body of JSON is decoded."""

    def refuse(body: bytes) -> None:
        raise AssertionError(f"{len(body)} bytes were decoded")

    monkeypatch.setattr(jsonrpc, "_decode_envelope", refuse)
    decode_any = jsonrpc._decode_any
    monkeypatch.setattr(jsonrpc, "_decode_any", lambda body: decode_any(body) if len(body) < 300 else refuse(body))


LARGE = {
    "nested": b"[" + b",".join([b"[" * 100 + b"]" * 100] * 100) + b"]",
    "objects": b"[" + b",".join([b'{"a":' * 100 + b"1" + b"}" * 100] * 30) + b"]",
    "lists": b"[" + b",".join(b"[%d]" % number for number in range(9_000)) + b"]",
    "empty": b"[" + b", ".join([b"[]"] * 9_000) + b"]",
    "numbers": b"[" + b",".join(b"%d" % number for number in range(9_000)) + b"]",
    "texts": json.dumps([f"€{number}" for number in range(9_000)], ensure_ascii=False).encode(),
    "names": json.dumps({f"k{number}": number for number in range(9_000)}).encode(),
    "wide": '"{}😀"'.format("x" * 100_000).encode(),
    "escaped": b'"%b\\ud83d\\ude00"' % (b"x" * 100_000),
    "half wide": '"{}€"'.format("x" * 100_000).encode(),
}


@pytest.mark.parametrize("argument", LARGE.values(), ids=LARGE)
def test_the_memory_of_decoded_json_is_not_underestimated(argument):
    body = json.dumps(call("?")).encode().replace(b'"?"', argument)
    tracemalloc.start()
    message = jsonrpc.read(body, LIMITS)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(message, Request)
    assert taken < estimate_memory(body) + 4_096 < 4 * taken


TOO_MANY = [b"[]", b"{}", b"1", b'""', b'{"a":1}', b"[[[]]]", b'"\\u0061"', b'{"id":"id"}']


@pytest.mark.parametrize("item", TOO_MANY)
@pytest.mark.parametrize("codec", [JSON_CODEC, COMPACT_CODEC], ids=["json", "compact"])
def test_too_many_values_are_refused_before_json_is_decoded(undecoded, codec, item):
    body = json.dumps(call("?")).encode().replace(b'"?"', b"[" + b",".join([item] * LIMITS.values) + b"]")
    refusal = codec.read_messages(body, LIMITS)
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.TOO_LARGE, 7)
    assert "at most 100000 values" in refusal.reason


@pytest.mark.parametrize("body", [b"[" + b"{}," * LIMITS.values + b"{}]", b"[" * 2_000_000, b"," * 2_000_000])
def test_too_many_messages_or_brackets_are_refused_before_json_is_decoded(undecoded, body):
    refusal = jsonrpc.read(body, LIMITS)
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.TOO_LARGE, None)


def test_a_reply_to_the_client_has_the_same_bounds(undecoded):
    body = b'{"jsonrpc":"2.0","id":7,"result":[' + b"[]," * 300 + b"[]]}"
    refusal = jsonrpc.read_reply(body, Limits(values=300))
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.TOO_LARGE, 7)
    deep = b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 300 + b"]" * 300 + b"}"
    refusal = jsonrpc.read_reply(deep, LIMITS)
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.PARSE, 7)


CBOR_HEAD = bytes.fromhex("a4676a736f6e72706363322e3062696407666d6574686f64616d66706172616d73a16176")
"""`{"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"v":`"""


@pytest.mark.parametrize(
    "item",
    ["80", "a0", "01", "60", "f7", "c101", "c1fb41d0000000000000", "c060", "c240", "a10101", "8181818080", "9fff"],
)
@pytest.mark.parametrize("definite", [True, False])
def test_cbor_is_decoded_up_to_the_limit(monkeypatch, item, definite):
    read_item = cbor._CborReader.read_item
    reads = 0

    def counted(self):
        nonlocal reads
        reads += 1
        return read_item(self)

    monkeypatch.setattr(cbor._CborReader, "read_item", counted)
    head = b"\x9a" + (200_000).to_bytes(4, "big") if definite else b"\x9f"
    body = CBOR_HEAD + head + bytes.fromhex(item) * 200_000 + (b"" if definite else b"\xff")
    refusal = CBOR_CODEC.read_messages(body, Limits(values=1000))
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.TOO_LARGE, 7)
    assert reads < (50 if definite else 1020)


def test_dates_of_cbor_count_for_the_time_they_take():
    assert CBOR_CODEC.decode(b"\x98\xc8" + b"\x01" * 200, Limits(values=300)) == [1] * 200
    with pytest.raises(MessageBoundError):
        CBOR_CODEC.decode(b"\x98\xc8" + b"\xc1\x01" * 200, Limits(values=300))


@given(values)
def test_what_json_accepts_cbor_accepts_within_twice_the_limit(value):
    CBOR_CODEC.decode(cbor2.dumps(value), Limits(values=2 * count(value) + 2 * str(value).count("[")))


@every_codec
def test_an_integer_may_have_so_many_digits(codec: Codec):
    largest = 10 ** (MAX_DIGITS - 1)
    assert codec.decode(codec.encode([largest, -largest])) == [largest, -largest]
    refusal = codec.read_messages(codec.encode(call(10 ** (MAX_DIGITS + 2))), LIMITS)
    assert isinstance(refusal, Malformed) and refusal.id == 7
    assert "more than 1300 digits" in refusal.reason


def test_an_integer_that_is_a_key_in_cbor_is_short():
    assert CBOR_CODEC.decode(cbor2.dumps({2**64 - 1: 1, -(2**64): 1})) == {str(2**64 - 1): 1, str(-(2**64)): 1}
    with pytest.raises(ValueError, match="a key that is not text"):
        CBOR_CODEC.decode(cbor2.dumps({2**64 + 1: 1}))


def test_a_batch_has_a_limit():
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert len(jsonrpc.read(json.dumps([ping] * 100).encode(), LIMITS)) == 100  # type: ignore[arg-type]
    refusal = jsonrpc.read(json.dumps([ping] * 101).encode(), LIMITS)
    assert isinstance(refusal, Malformed) and refusal.fault is Fault.TOO_LARGE and "100 messages" in refusal.reason


# The id of what is refused


@pytest.mark.parametrize(
    ("message", "id_"),
    [
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":?}', 7),
        ('{"jsonrpc":"2.0","id":"a","method":"m","params":?}', "a"),
        ('{"id":-3,"params":?,"method":"m","jsonrpc":"2.0"}', -3),
        ('{"method":"m","params":?,"jsonrpc":"2.0","id":7}', 7),
        (' { "method" : "m" , "params" : ? , "id" : "é" , "jsonrpc" : "2.0" } ', "é"),
        ('{"j":"2.0","i":7,"m":"m","p":?}', 7),
        ('{"m":"m","p":?,"j":"2.0","i":7}', 7),
        ('{"jsonrpc":"2.0","method":"m","params":?}', None),
        ('{"jsonrpc":"2.0","method":"m","params":{"id":3,"v":?}}', None),
        ('{"params":{"v":?,"id":3},"jsonrpc":"2.0","method":"m"}', None),
        ('{"params":{"v":?,"id":3}}', None),
        ('{"params":{"id":4},"x":?,"method":"{\\"id\\":3}"}', None),
        ('{"jsonrpc":"2.0","method":"m","params":?,"x":",\\"id\\":3}"}', None),
        ('[{"jsonrpc":"2.0","id":7,"method":"m","params":?}]', None),
        ('{"jsonrpc":"2.0","id":null,"method":"m","params":?}', None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"m","params":?}', None),
        (f'{{"jsonrpc":"2.0","id":{"9" * 1000},"method":"m","params":?}}', None),
        (f'{{"jsonrpc":"2.0","id":"{"x" * 257}","method":"m","params":?}}', None),
        ('{"jsonrpc":"2.0","id":"a\\nb","method":"m","params":?}', None),
    ],
)
def test_the_id_is_found_where_it_is_before_or_after_the_parameters(message, id_):
    body = message.replace("?", "[" + "0," * 20_000 + "0]").encode()
    refusal = jsonrpc.read(body, Limits(values=20_000))
    assert isinstance(refusal, Malformed) and refusal.fault is Fault.TOO_LARGE
    assert refusal.id == id_
    lines = [*LineReader(Limits(message_bytes=20_000)).feed(body + b"\n")]
    assert [line.id for line in lines if isinstance(line, Malformed)] == [id_]


@every_codec
def test_deep_nesting_is_refused_with_the_id(codec: Codec):
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    refusal = codec.read_messages(codec.encode(call(value)), LIMITS)
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.PARSE, 7)
    assert "nested deeper than 128" in refusal.reason


@pytest.mark.parametrize("body", [b"", b"\xa1", b"\xff", b"\x01", b"\xbf", b"\xa1\x62id", b"\xa2\x01\x80\x62id\x07"])
def test_any_cbor_may_be_searched_for_a_field(body):
    assert cbor.find_field(body, "id") in (None, 7)


# What errors repeat


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"m","' + b"k" * 100_000 + b'":1,"' + b"k" * 100_000 + b'":1}',
        b'{"jsonrpc":"2.0","id":' + b"9" * 1000 + b',"method":"m","params":[]}',
        b'{"jsonrpc":"1.0","id":"' + b"x" * 100_000 + b'","method":"m"}',
        b'{"jsonrpc":"2.0","id":"' + b"x" * 100_000 + b'","method":1}',
    ],
)
def test_a_refusal_does_not_repeat_what_was_sent(body):
    refusal = jsonrpc.read(body, LIMITS)
    assert isinstance(refusal, Malformed)
    assert len(jsonrpc.encode_malformed(refusal)) < 400


def test_a_path_to_a_number_that_json_lacks_is_short():
    value = {"k" * 100_000: [0.5, 10**30, None, float("nan")]}
    with pytest.raises(ValueError, match="not a finite number") as caught:
        jsonrpc.encode_finite(value)
    assert len(str(caught.value)) < 200


def test_a_key_twice_is_found_without_decoding_the_values():
    body = b'{"a":[1,2],"b":{"b":1},"\\u0061":{}}'
    assert jsonrpc.repeated_key(body) == "a"
    assert {type(value) for value in jsonrpc._decode_members(body).values()} == {msgspec.Raw}


# Lines


def fed(reader: LineReader, *pieces: bytes) -> list[bytes | Malformed]:
    return [line for piece in pieces for line in reader.feed(piece)]


def held(reader: LineReader) -> int:
    return sum(map(len, reader._parts)) + len(reader._start or b"")


def test_a_line_that_is_too_long_is_refused_when_its_id_is_known():
    reader = LineReader(Limits(message_bytes=10_000))
    start = b'{"jsonrpc":"2.0","id":7,"method":"m","params":"'
    (refusal,) = fed(reader, start + b"x" * 10_000)
    assert isinstance(refusal, Malformed) and (refusal.fault, refusal.id) == (Fault.TOO_LARGE, 7)
    assert fed(reader, *[b"x" * 1000] * 1000, b'"}\n{}\n') == [b"{}"], "refused once, and the next line is read"


def test_of_a_line_that_is_too_long_only_the_ends_are_held():
    reader = LineReader(Limits(message_bytes=10_000))
    assert fed(reader, b'{"method":"m","params":"', b"x" * 10_000, b"y" * 3000) == []
    assert held(reader) <= 2 * jsonrpc.EDGE_BYTES
    (refusal,) = fed(reader, b'","jsonrpc":"2.0","id":', b'"end"}\n')
    assert isinstance(refusal, Malformed) and refusal.id == "end"
    assert held(reader) == 0


def test_a_line_that_does_not_end_is_refused_without_its_id():
    reader = LineReader(Limits(message_bytes=10_000))
    refusals = fed(reader, *[b"x" * 1000] * 500)
    assert [line.id for line in refusals if isinstance(line, Malformed)] == [None]
    assert held(reader) <= 2 * jsonrpc.EDGE_BYTES


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(1, 40))
def test_lines_are_the_same_however_they_arrive(lines, size):
    data = b"".join(line + b"\n" for line in lines)
    whole = fed(LineReader(Limits(message_bytes=20)), data)
    pieces = fed(LineReader(Limits(message_bytes=20)), *[data[at : at + size] for at in range(0, len(data), size)])
    assert whole == pieces
