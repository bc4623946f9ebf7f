"""The sizes of values that nobody has written yet."""

from typing import Any

from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.values import Text
from deltamcp.wire import jsonrpc
from deltamcp.wire.message_bounds import estimate_bytes, least_bytes
from deltamcp.wire.protobuf import write_struct
from tests.support.strategies import any_json

ENDLESS = 10**9


@given(st.dictionaries(st.text(max_size=9), any_json))
def test_a_value_needs_at_least_so_many_bytes_in_json_and_in_a_struct(value):
    struct = struct_pb2.Struct()
    write_struct(value, struct)
    assert least_bytes(value, 1, ENDLESS) <= len(jsonrpc.encode(value))
    assert least_bytes(value, 2, ENDLESS) <= len(struct.SerializeToString())


@given(any_json, st.integers(1, 200))
def test_the_count_ends_at_enough(value, enough):
    assert least_bytes(value, 4, enough) == min(enough, least_bytes(value, 4, ENDLESS))


class CountedList(list[int]):
    """A list that says how many of its items were asked for."""

    asked = 0

    def __iter__(self):
        for item in super().__iter__():
            self.asked += 1
            yield item


def test_a_list_with_enough_items_is_not_looked_into():
    items = CountedList([0] * 1_000)
    assert least_bytes({"items": items}, 64, 1_000 * 64) == 64_000
    assert items.asked == 0


def test_an_estimate_is_about_right_for_rows_and_looks_at_some_of_them():
    rows = [{"id": number, "name": "n" * 40, "tags": ["a", "b"]} for number in range(10_000)]
    size = len(jsonrpc.encode(rows))
    assert size / 2 < estimate_bytes({"content": [Text("x")], "rows": rows}, 8) < size * 2
    assert estimate_bytes([Text("x" * 1_000_000)], 8) == 1_000_000 + 2 * 8


def test_an_estimate_of_anything_ends():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value, value]
    assert estimate_bytes(value, 8) > 0
