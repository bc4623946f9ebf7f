"""Counting the fields of a protobuf message on the wire, compared with protobuf itself."""

from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from deltamcp.wire.protobuf import (
    MAX_MESSAGE_DEPTH,
    Shape,
    TooManyFieldsError,
    WireError,
    count_fields,
    tag,
    write_struct,
)

VALUE: Shape = {}
STRUCT: Shape = {tag(1): {tag(2): VALUE}}
VALUE.update({tag(5): STRUCT, tag(6): {tag(1): VALUE}})
MANY = 10**9

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=20), inner, max_size=6),
    max_leaves=30,
)


def write(value: dict[str, Any]) -> bytes:
    struct = struct_pb2.Struct()
    write_struct(value, struct)
    return bytes(struct.SerializeToString())


def count_values(value: Any) -> int:
    """The values and names of fields, without the root."""
    if isinstance(value, dict):
        return sum(2 + count_values(item) for item in value.values())
    return sum(1 + count_values(item) for item in value) if isinstance(value, list) else 0


@given(st.dictionaries(st.text(max_size=20), values, max_size=8))
def test_a_value_has_two_fields_and_so_has_a_name(value):
    assert count_fields(write(value), STRUCT, MANY) == 2 * count_values(value)


@given(st.binary(max_size=60))
@example(b"\x0a\x03\x0a\x01")
@example(b"\x0b\x0c")
@example(b"\xff" * 12)
@example(b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
def test_what_protobuf_reads_is_counted_and_nothing_else_raises(data):
    try:
        count = count_fields(data, STRUCT, MANY)
    except WireError:
        return
    assert count <= len(data)
    try:
        struct = struct_pb2.Struct.FromString(data)
    except DecodeError:
        return  # it checks more: UTF-8, the numbers of fields
    assert len(struct.fields) <= count


@given(st.lists(st.sampled_from([b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x8a\x00\x00", b"\x0a\x81\x00\x08"]), max_size=20))
def test_a_field_counts_as_often_as_it_is_written(parts):
    data = b"".join(parts)
    try:
        struct_pb2.Struct.FromString(data)
    except DecodeError:
        return
    assert count_fields(data, STRUCT, MANY) >= len(parts)


def test_the_count_ends_at_the_limit():
    data = b"\x0a\x00" * 1_000
    assert count_fields(data, STRUCT, 1_000) == 1_000
    with pytest.raises(TooManyFieldsError):
        count_fields(data, STRUCT, 999)


def test_a_long_text_is_one_field():
    assert count_fields(write({"text": "\n" * 100_000}), STRUCT, MANY) == 4


def test_nesting_without_end_is_refused():
    data = b""
    for _ in range(MAX_MESSAGE_DEPTH):
        data = b"\x2a" + length(data)
        data = b"\x0a" + length(b"\x12" + length(data))
    with pytest.raises(WireError, match="deeply"):
        count_fields(data, STRUCT, MANY)
    with pytest.raises(DecodeError):
        struct_pb2.Struct.FromString(data)


def length(data: bytes) -> bytes:
    """Bytes behind their length."""
    size, written = len(data), b""
    while size > 0x7F:
        written += bytes([size & 0x7F | 0x80])
        size >>= 7
    return written + bytes([size]) + data
