"""Parts of an encoded document: the same as those of the decoded one, in chunks, within bounds on work and memory."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.results import document
from deltamcp.results.document import PackedItems, Parts, TooManyMembersError, TooManyValuesError
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work
from tests.support.steps import steps_of
from tests.support.strategies import any_json

FORMS: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"indent": 1}]
SEPARATED = st.text('[]{},:"\\ é\n', max_size=8)
"""Texts that look like the structure around them."""


@st.composite
def large(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A list or an object of several chunks, and its JSON."""
    inner = st.recursive(
        SEPARATED | st.none() | st.integers(-9, 9),
        lambda below: st.lists(below, max_size=4) | st.dictionaries(SEPARATED, below, max_size=4),
    )
    some = draw(st.lists(inner, min_size=1, max_size=8))
    filler = [draw(SEPARATED) * draw(st.integers(0, 300)) for _ in range(3)]
    items = [(filler[place % 3], some[place % len(some)], place) for place in range(draw(st.integers(1, 900)))]
    items.insert(draw(st.integers(0, len(items))), ("x" * draw(st.sampled_from([0, 70_000, 300_000])), [], -1))
    value: Any = [list(item) for item in items]
    if draw(st.booleans()):
        value = {f"{place},{{": item for place, item in enumerate(value)}
    return value, json.dumps(value, **draw(st.sampled_from(FORMS))).encode()


@given(large())
def test_parts_are_those_of_the_decoded_document(found: tuple[Any, bytes]) -> None:
    value, data = found
    work = unlimited_work()
    assert document.decode_counted(data, work) == value
    if isinstance(value, list):
        items = PackedItems.split(data, work)
        assert [document.decode(item) for item in items] == value == document.decode(items.json)
        assert items[-1:] == [items[len(value) - 1]]
    else:
        members = document.members(data, work)
        assert {name: document.decode(member) for name, member in members.items()} == value
    parts = Parts(data, work)
    for key in list(value if isinstance(value, dict) else range(len(value)))[:: max(1, len(value) // 7)]:
        assert document.decode(document.at(data, [str(key), "1"], work)) == value[key][1]
        assert document.decode(parts.at([str(key), "1"])) == value[key][1]


@given(any_json)
def test_small_documents_decode_as_they_are(value: Any) -> None:
    assert document.decode_counted(jsonrpc.encode(value), unlimited_work()) == value


def test_commas_in_texts_are_no_values() -> None:
    value = ["a,b,[" * 300_000, 1]
    assert document.decode_counted(jsonrpc.encode(value), unlimited_work()) == value


def test_tiny_items_take_few_bytes_each() -> None:
    data = b"[" + b",".join([b"[]"] * 200_000) + b"]"
    items = PackedItems.split(data, unlimited_work())
    assert len(items) == 200_000 and items.nbytes <= len(data) + 8 * len(items)


def test_a_document_of_very_many_values_is_not_decoded_at_once() -> None:
    data = b"[" + b",".join([b"[]"] * (document.MAX_VALUES // 2 + 1)) + b"]"
    with pytest.raises(TooManyValuesError, match="path of a part"):
        document.decode_counted(data, unlimited_work())


def test_an_object_of_very_many_members_is_read_by_path_only() -> None:
    value: Any = {str(number): [] for number in range(document.MAX_MEMBERS + 1)}
    data = jsonrpc.encode(value)
    with pytest.raises(TooManyMembersError):
        document.members(data, unlimited_work())
    for part in (document.at(data, ["77"], unlimited_work()), Parts(data, unlimited_work()).at(["77"])):
        assert document.decode(part) == []


@pytest.mark.parametrize("large_item", [10, 1_000_000])
def test_a_split_looks_at_each_character_a_bounded_number_of_times(large_item: int) -> None:
    rows = [{"id": number, "inner": [{"a": 1}, {"a": 2}]} for number in range(20_000)]
    data = jsonrpc.encode([rows[0], "x" * large_item, *rows])
    assert steps_of(lambda work: PackedItems.split(data, work)) < len(data) // 8


def test_many_parts_of_a_document_split_it_once() -> None:
    rows = [{"id": number, "name": f"name {number}"} for number in range(20_000)]
    data = jsonrpc.encode({"total": 1, "items": rows})

    def find(count: int) -> int:
        def run(work: Any) -> None:
            parts = Parts(data, work)
            for place in range(count):
                parts.at(["items", str(place * 6), "name"])

        return steps_of(run)

    assert find(3_000) < find(1) + 3_000 * 20


@pytest.mark.parametrize("end", ["", ",", "}", "]]", "1]", "] x"])
def test_malformed_json_of_several_chunks_is_refused(end: str) -> None:
    data = ("[" + ",".join(["[1,2]"] * 60_000) + end).encode()
    with pytest.raises(msgspec.DecodeError):
        document.decode_counted(data, unlimited_work())


def test_an_empty_list_may_be_long() -> None:
    data = b"[" + b" " * 200_000 + b"]"
    found = document.items(data, unlimited_work())
    assert list(found) == []
    assert document.decode_counted(data, unlimited_work()) == []
