"""Deltas and roots of pairs of values, given and drawn."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings

from deltamcp.deltas.delta import apply_delta, make_delta
from deltamcp.deltas.root import root_of
from tests.support.change_reader import ROOT_PATTERN
from tests.support.changing_server import LOG_LINES, STATES, shop_items, timed_items
from tests.support.equality import is_same
from tests.support.properties import examples
from tests.support.strategies import any_json

# The pure functions


PAIRS: dict[str, tuple[Any, Any]] = {
    **{name: (before, after) for name, (before, after, _) in STATES.items()},
    "nothing and something": (None, shop_items(3)),
    "something and nothing": (shop_items(3), None),
    "false and zero": ({"a": False}, {"a": 0}),
    "one kinds": ([1, 1.0, True], [True, 1, 1.0]),
    "signs of zero": ({"a": 0.0}, {"a": -0.0}),
    "empty things": ([[], {}, "", None], [{}, [], None, ""]),
    "a member that is null and one that is not there": ({"a": None, "b": 1}, {"b": 1}),
    "keys that are written like something": (
        {"": 1, " ": 2, "a.b": 3, "a/b": 4, "~": 5},
        {"": 2, " ": 1, "a.b": 4, "a/b": 3, "~": 6},
    ),
    "keys like markers": ({"-": 1, "+": 2, "=": 3, "[id]": 4, "\n": 5}, {"-": 2, "+": 1, "=": 4, "[id]": 3, "\n": 6}),
    "rows twice": ([{"id": 1, "a": 1}] * 3, [{"id": 1, "a": 1}] * 2 + [{"id": 1, "a": 2}]),
    "keys of several kinds": ([{"id": 1}, {"id": "1"}, {"id": 1.0}], [{"id": "1"}, {"id": 1.0}, {"id": True}]),
    "rows that lose their key": ([{"id": n, "a": n} for n in range(9)], [{"a": n} for n in range(9)]),
    "texts of other line ends": ("a\r\nb\nc\r" * 9, "a\nb\r\nc\r" * 9),
    "a text without its last line end": (LOG_LINES, LOG_LINES.rstrip("\n")),
    "texts with odd separators": ("a\u2028b\x85c\x0bd\x1ce\n" * 9, "a\u2028b\x85c\x0bd\x1cf\n" * 9),
    "great numbers": ({"a": 2**53, "b": 10**30, "c": 1e300}, {"a": 2**53 + 1, "b": 10**30 + 1, "c": 1e301}),
    "deep": ([[[[[[1]]]]]], [[[[[[2]]]]]]),
    "text and rows": (LOG_LINES, shop_items(3)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("keys", [(), ("sku",), ("id", "code")])
def test_a_delta_applied_to_its_base_is_the_new_value(name, keys):
    for base, new in (PAIRS[name], PAIRS[name][::-1]):
        kept = copy.deepcopy(base)
        text = make_delta(base, new, keys)
        assert is_same(apply_delta(base, text), new)
        assert is_same(base, kept), "neither changes what it is given"
        assert make_delta(new, copy.deepcopy(new), keys) == ""


@pytest.mark.parametrize("name", PAIRS)
def test_roots_are_of_values_strictly(name):
    base, new = PAIRS[name]
    assert root_of(base) == root_of(copy.deepcopy(base)) != root_of(new)
    assert ROOT_PATTERN.fullmatch(root_of(base))


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(any_json, any_json)
@settings(max_examples=examples(200))
def test_any_values(base, new):
    assert is_same(apply_delta(base, make_delta(base, new)), new)
    assert root_of(base) == root_of(reordered(base)) and make_delta(base, reordered(base)) == ""
    assert (root_of(base) == root_of(new)) == is_same(base, new)
    assert apply_delta(base, "") == base


def test_roots_leave_out_what_is_volatile():
    volatile = ["took_ms", "items.age"]
    assert root_of(timed_items(1, 1), volatile) == root_of(timed_items(2, 30), volatile)
    assert root_of(timed_items(1, 1), volatile) != root_of(timed_items(1, 1, stock=5), volatile)
    assert root_of(timed_items(1, 1), ["took_ms"]) != root_of(timed_items(1, 2), ["took_ms"])
    assert root_of({"a": {"took_ms": 1}}, volatile) != root_of({"a": {"took_ms": 2}}, volatile), "it is a path"
