import math

import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.values import Text
from deltamcp.wire.message_bounds import MAX_DIGITS
from deltamcp.wire.protobuf import (
    LARGEST_INTEGER,
    MAX_DEPTH,
    StructError,
    TooDeepError,
    TooManyError,
    read_struct,
    restore_integers,
    restore_pointers,
    write_struct,
)
from tests.support.strategies import any_json

EVERYTHING = 1_000_000


def written(value):
    struct = Struct()
    pointers = write_struct(value, struct)
    return struct, pointers


def nested(levels, make):
    value = make("x")
    for _ in range(levels - 1):
        value = make(value)
    return value


@given(st.dictionaries(st.text(max_size=12), any_json, max_size=5))
def test_what_is_written_reads_the_same_also_after_the_wire(value):
    struct, pointers = written(value)
    sent = Struct.FromString(struct.SerializeToString())
    found = read_struct(sent, EVERYTHING)
    restore_pointers(found, pointers)
    assert found == value


@given(st.dictionaries(st.text(max_size=12), any_json, max_size=5))
def test_small_values_are_written_as_json_format_writes_them(value):
    struct, pointers = written(value)
    if not pointers:
        assert struct == json_format.ParseDict(value, Struct())


@given(st.integers())
def test_integers_are_exact(number):
    struct, pointers = written({"n": number})
    is_large = abs(number) > LARGEST_INTEGER
    assert pointers == (["/n"] if is_large else [])
    found = read_struct(struct, EVERYTHING)["n"]
    assert found == (str(number) if is_large else number)
    assert type(found) is (str if is_large else int)


def test_large_integers_are_pointed_at():
    value = {"a/b": [1, {"~": 2**53}], "c": -(2**53), "d": LARGEST_INTEGER}
    assert written(value)[1] == ["/a~1b/1/~0", "/c"]


@pytest.mark.parametrize("number", [0.5, -0.25, 1e300, 2.0**53, -(2.0**60)])
def test_other_doubles_stay_doubles(number):
    found = read_struct(written({"n": number})[0], EVERYTHING)["n"]
    assert (found, type(found)) == (number, float)


def test_the_zero_below_zero_stays_so_and_the_other_is_an_integer():
    struct, _ = written({"below": -0.0, "list": [-0.0, 0]})
    found = read_struct(struct, EVERYTHING)
    assert repr(found["below"]) == "-0.0" and repr(found["list"]) == "[-0.0, 0]"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_both_ways(number):
    with pytest.raises(StructError, match="infinite"):
        written({"deep": [{"n": number}]})
    struct = Struct()
    struct.fields["n"].number_value = number
    with pytest.raises(StructError, match="infinite"):
        read_struct(struct, EVERYTHING)


@pytest.mark.parametrize("make", [lambda inner: {"a": inner}, lambda inner: [inner]], ids=["objects", "arrays"])
def test_depth_has_a_limit_that_protobuf_can_read(make):
    inner = nested(MAX_DEPTH - 1, make)
    struct, _ = written({"v": inner})
    assert read_struct(Struct.FromString(struct.SerializeToString()), EVERYTHING) == {"v": inner}
    with pytest.raises(TooDeepError):
        written({"v": nested(MAX_DEPTH, make)})


@pytest.mark.parametrize("value", [[1, "a"], "text", None, 5, True])
def test_a_value_that_is_no_object_is_wrapped(value):
    assert read_struct(written(value)[0], EVERYTHING) == {"value": value}


def test_values_of_the_library_are_written_as_their_json():
    found = read_struct(written({"content": [Text("hello")], "pair": (1, 2)})[0], EVERYTHING)
    assert found == {"content": [{"type": "text", "text": "hello"}], "pair": [1, 2]}


@pytest.mark.parametrize("value", [{"a": object()}, {1: "a"}, {"a": "\ud800"}, {"a": 10**5000}])
def test_what_json_does_not_have_is_refused(value):
    with pytest.raises(StructError):
        written(value)


def test_the_number_of_values_has_a_limit():
    struct, _ = written({"a": [1, 2, {"b": []}]})
    assert read_struct(struct, 7) == {"a": [1, 2, {"b": []}]}
    with pytest.raises(TooManyError):
        read_struct(struct, 6)


def test_a_value_of_no_kind_is_null():
    struct = Struct()
    struct.fields["a"].Clear()
    assert read_struct(struct, EVERYTHING) == {"a": None}


# Integers that came as strings

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "s": {"type": "string"},
        "either": {"type": ["integer", "string"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "inner": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}


def test_digits_become_integers_where_the_schema_has_integers_only():
    sent = {"n": str(2**60), "s": "5", "either": "5", "list": ["-7", "x", 3], "inner": {"n": "0"}, "other": "5"}
    assert restore_integers(sent, SCHEMA) == {
        "n": 2**60,
        "s": "5",
        "either": "5",
        "list": [-7, "x", 3],
        "inner": {"n": 0},
        "other": "5",
    }


@pytest.mark.parametrize("text", ["", "-", "+1", "1.0", "1e3", " 1", "1 ", "0x1", "01", "١", "9" * (MAX_DIGITS + 1)])
def test_other_texts_stay_texts(text):
    assert restore_integers({"n": text}, SCHEMA) == {"n": text}


@pytest.mark.parametrize("pointer", ["", "/", "/nowhere", "/list/9", "/list/x", "/s/x", "no pointer"])
def test_pointers_that_lead_nowhere_are_skipped(pointer):
    value = {"list": ["1"], "s": "5"}
    restore_pointers(value, [pointer])
    assert value == {"list": ["1"], "s": "5"}
