"""Delta-MCP's result shapes: its numbers, its texts, its mistakes; and the same shapes within a budget."""

import json
import math
import random
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp import tokens
from deltamcp.results.delta_mcp_shapes import (
    ShapedValue,
    _to_number,
    budgeted_shape,
    original_shape,
    own_page_shape,
    stringify,
)
from tests.support.conditions import HANG_SECONDS
from tests.support.properties import examples
from tests.support.sample_values import USERS
from tests.support.strategies import any_json


def within(budget: int, model: str | float = "o200k") -> Callable[[str], bool]:
    return lambda text: tokens.count(text, model) <= budget


def short(value: Any, budget: int = 500, **options: Any) -> Any:
    shape = budgeted_shape(value, within(budget), budget, **options)
    assert tokens.count(stringify(shape.value)) <= budget
    return shape.value


def all_pages(value: Any, budget: int, **options: Any) -> list[Any]:
    """As Delta-MCP's clients do it: the same arguments, the next page, until there is no more."""
    items: list[Any] = []
    for page in range(1, 10 * len(value)):
        shape = short(value, budget, page=page, **options)
        items += shape["items"]
        if not shape["hasMore"]:
            return items
    raise AssertionError("it never ends")


# Delta-MCP's numbers.


@pytest.mark.parametrize("value", [{"a": 1}, "text", [1, 2], 1, 1.5, True, None, "", [], {}, "a" * 2000, [0] * 50])
def test_cs_04_01_what_is_small_is_itself(value):
    assert original_shape(value) is value
    assert budgeted_shape(value, within(500)) == ShapedValue(value, False)


def test_cs_04_02_truncated_text():
    assert list(original_shape("x" * 10_000, 100).items()) == [
        ("truncated", True),
        ("totalChars", 10_000),
        ("estimatedTokens", 2500),
        ("preview", "x" * 400),
        ("note", "String truncated to ~100 tokens (400 chars). Full length: 10000 chars (~2500 tokens)."),
    ]


@pytest.mark.parametrize("limit", [1, 100, 200, 500])
def test_cs_04_03_the_preview_has_four_characters_per_token(limit):
    assert len(original_shape("x" * 10_000, limit)["preview"]) == 4 * limit


def test_truncation_begins_beyond_2000_characters():
    assert original_shape("x" * 2000) == "x" * 2000
    assert original_shape("x" * 2001) == {
        "truncated": True,
        "totalChars": 2001,
        "estimatedTokens": 501,
        "preview": "x" * 2000,
        "note": "String truncated to ~500 tokens (2000 chars). Full length: 2001 chars (~501 tokens).",
    }


def test_cs_04_04_a_page_has_eight_fields():
    items = list(range(51))
    assert list(original_shape(items).items()) == [
        ("paginated", True),
        ("totalItems", 51),
        ("page", 1),
        ("pageSize", 50),
        ("totalPages", 2),
        ("hasMore", True),
        ("items", items[:50]),
        ("note", "Page 1/2. 51 total items. Pass page=2 for next page."),
    ]


def test_cs_04_05_page_3_of_size_10_starts_at_index_20():
    assert original_shape(list(range(100)), page=3, page_size=10)["items"] == list(range(20, 30))


def test_cs_04_06_the_last_page():
    page = original_shape(list(range(95)), page=10, page_size=10)
    assert (page["totalPages"], page["hasMore"], page["items"]) == (10, False, [90, 91, 92, 93, 94])


def test_cs_04_07_page_999_is_the_last():
    assert original_shape(list(range(100)), page=999, page_size=30)["page"] == 4


def test_cs_04_08_a_summarised_object():
    value = {f"key{number}": "v" * 50 for number in range(200)}
    summary = original_shape(value, 100)
    assert list(summary)[:4] == ["_summarized", "_totalKeys", "_estimatedTokens", "_note"]
    assert summary["_summarized"] is True
    assert summary["_totalKeys"] == 200
    assert summary["_estimatedTokens"] == math.ceil(len(stringify(value)) / 4)
    assert summary["_note"] == "Object exceeded ~100 token budget. Showing key structure and value previews."
    # Six of {"key0":"vv…"} at 61 are 366 of 400.
    assert list(summary)[4:] == [f"key{number}" for number in range(6)] + ["_truncatedKeys"]
    assert summary["_truncatedKeys"] == 194


@pytest.mark.parametrize(
    ("options", "page", "size"),
    [
        ({"page": float("nan")}, 1, 50),
        ({"page_size": 0}, 1, 50),
        ({"page_size": -5}, 1, 50),
        ({"page": 2.7}, 2, 50),
        ({"page": 999, "page_size": 30}, 4, 30),
        ({"paginate_after": 20}, 1, 20),
        ({"paginate_after": 20, "page_size": 7}, 1, 7),
        ({"paginate_after": 20, "page_size": 0}, 1, 20),
        ({"paginate_after": "20"}, 1, 50),
        ({"paginate_after": 0}, 1, 50),
        ({"page": "2"}, 2, 50),
        ({"page": " 2 ", "page_size": "1e1"}, 2, 10),
        ({"page": "0x2"}, 2, 50),
        ({"page": "two"}, 1, 50),
        ({"page": ""}, 1, 50),
        ({"page": True, "page_size": True}, 1, 1),
        ({"page": None, "page_size": None}, 1, 50),
        ({"page": math.inf}, 1, 50),
        ({"page": "Infinity"}, 1, 50),
        ({"page": 10**400}, 1, 50),
        ({"page": 1e308}, 2, 50),
        ({"page": {}}, 1, 50),
    ],
)
def test_options_are_made_positive_integers(options, page, size):
    shape = original_shape(list(range(100)), **options)
    assert (shape["page"], shape["pageSize"]) == (page, size)
    shape = budgeted_shape(list(range(100)), within(2000), **options).value
    assert (shape["page"], shape["pageSize"]) == (page, size)


@pytest.mark.parametrize(("limit", "used"), [(0, 500), (-1, 500), (math.nan, 500), ("9", 500), (2.9, 2)])
def test_the_budget_is_made_a_positive_integer(limit, used):
    assert len(original_shape("x" * 5000, limit)["preview"]) == 4 * used


def test_a_list_over_the_budget_is_a_piece_of_pretty_json():
    value = [{"a": "x" * 30, "b": []} for _ in range(10)]
    pretty = json.dumps(value, indent=2)
    assert list(original_shape(value, 20).items()) == [
        ("truncated", True),
        ("totalChars", len(pretty)),
        ("estimatedTokens", math.ceil(len(pretty) / 4)),
        ("preview", pretty[:80]),
        ("note", f"JSON result truncated to ~20 tokens. Total: ~{math.ceil(len(pretty) / 4)} tokens."),
    ]


def test_whether_a_list_is_over_the_budget_its_compact_json_says():
    value = ["x" * 10] * 4
    assert len(stringify(value)) == 53
    assert original_shape(value, 14) is value
    assert original_shape(value, 13)["truncated"] is True


def test_previews_of_values():
    value = {
        "none": None,
        "text": "x" * 100,
        "long": "x" * 101,
        "number": 1.0,
        "yes": True,
        "list": [1, 2, 3],
        "empty": {},
        "five": dict.fromkeys("abcde"),
        "six": dict.fromkeys("abcdef"),
        "rest": "x" * 2000,
    }
    summary = original_shape(value, 400)
    assert {key: summary[key] for key in value} == {
        "none": None,
        "text": "x" * 100,
        "long": "x" * 100 + "…",
        "number": 1.0,
        "yes": True,
        "list": "[Array(3)]",
        "empty": "{Object: }",
        "five": "{Object: a, b, c, d, e}",
        "six": "{Object: a, b, c, d, e, ...}",
        "rest": "x" * 100 + "…",
    }
    assert "_truncatedKeys" not in summary


def test_a_key_may_use_the_budget_to_its_last_character():
    value = {"a": "x" * 92, "b": "y" * 500}
    assert len(stringify({"a": "x" * 92})) == 100
    assert original_shape(value, 25)["a"] == "x" * 92
    assert original_shape(value | {"a": "x" * 93}, 25)["_truncatedKeys"] == 2


def test_lengths_are_utf_16_and_a_cut_may_split_a_character():
    shape = original_shape("😀" * 100, 1)
    assert (shape["totalChars"], shape["estimatedTokens"], shape["preview"]) == (200, 50, "😀😀")
    shape = original_shape("x" + "😀" * 100, 1)
    assert shape["preview"] == "x😀\ud83d"
    assert stringify(shape["preview"]) == '"x😀\\ud83d"'
    summary = original_shape({"a": "x" + "😀" * 100, "b": "y" * 900}, 100)
    assert summary["a"] == "x" + "😀" * 49 + "\ud83d…"


def test_token_estimates_of_the_unit_tests():
    assert [math.ceil(len(stringify(value)) / 4) for value in ("hello world", {"a": 1})] == [4, 2]


# Tools that take pages themselves.

Tool = Callable[[int], list[Any]]


def ignores_pages(rows: list[Any], size: int) -> Tool:
    return lambda page: rows


def takes_pages(rows: list[Any], size: int) -> Tool:
    return lambda page: rows[(page - 1) * size : page * size]


def read_pages(tool: Tool, budget: int, **sizes: Any) -> list[Any]:
    """As a client reads them: by `hasMore` where the reply has it, else while the tool returns other rows."""
    found: list[Any] = []
    for page in range(1, 1000):
        shape = own_page_shape(tool(page), within(budget), budget, page, **sizes).value
        assert tokens.count(stringify(shape)) <= budget
        rows = shape["items"] if isinstance(shape, dict) else shape
        found += rows
        if not (shape["hasMore"] if isinstance(shape, dict) else rows and tool(page + 1) != rows):
            return found
    raise AssertionError("it never ends")


@given(
    kind=st.sampled_from([ignores_pages, takes_pages]),
    count=st.integers(0, 300),
    size=st.integers(1, 100),
    says_size=st.booleans(),
)
@settings(max_examples=examples(100))
def test_all_pages_together_are_the_rows_whether_the_tool_pages_or_not(kind, count, size, says_size):
    rows = list(range(count))
    sizes = {"page_size": size} if says_size else {"default_size": size}
    assert read_pages(kind(rows, size), 500, **sizes) == rows


@given(count=st.integers(1, 300), size=st.integers(1, 60), page=st.integers(1, 400))
def test_any_page_by_itself_is_that_page(count, size, page):
    rows = list(range(count))
    last = -(-count // size)
    start = (min(page, last) - 1) * size
    shape = own_page_shape(rows, within(500), 500, page, size).value
    assert (shape if count <= size else shape["items"]) == rows[start : start + size]
    own = takes_pages(rows, size)(page)
    assert own_page_shape(own, within(500), 500, page, size) == ShapedValue(own, False)


def test_a_page_of_unknown_size_is_the_tools_own():
    """A tool that takes `page` and no `pageSize`: cutting its page 2 again would lose most of it."""
    rows = list(range(100, 200))
    assert own_page_shape(rows, within(500), 500, page=2) == ShapedValue(rows, False)
    assert own_page_shape(rows, within(500), 500, page=2, page_size=10).value["items"] == rows[10:20]


def test_a_page_that_does_not_fit_is_no_page_but_a_preview():
    """Fewer rows with `hasMore` would have the client go on to the tool's next page, past the rows left out."""
    shape = own_page_shape(USERS[20:60], within(500), 500, page=2, page_size=40).value
    assert list(shape) == ["truncated", "totalChars", "estimatedTokens", "preview", "note"]
    assert stringify(USERS[20:60]).startswith(shape["preview"]) and tokens.count(stringify(shape)) <= 500
    assert shape["note"].endswith(" Pass a smaller pageSize.")
    assert read_pages(takes_pages(USERS[:60], 10), 500, page_size=10) == USERS[:60]
    assert "pageSize" not in own_page_shape(USERS[:60], within(500), 500, page=2).value["note"]


@pytest.mark.parametrize("value", [{"items": USERS[:3], "page": 2, "hasMore": True}, "text", 3, None, [], {}])
def test_what_is_no_list_is_shaped_as_ever(value):
    assert own_page_shape(value, within(500), 500, 2, 2) == ShapedValue(value, False)
    large = {"items": USERS, "page": 2}
    assert own_page_shape(large, within(500), 500, 2, 2) == budgeted_shape(large, within(500), 500)


# Its examples.


def test_the_six_steps_of_the_pagination_example():
    def listed(value: list[Any], **options: Any) -> Any:
        return original_shape(value, 2000, 20, **options)

    first = listed(USERS)
    assert (len(first["items"]), first["hasMore"]) == (20, True)
    assert first["note"] == "Page 1/50. 1000 total items. Pass page=2 for next page."
    assert listed(USERS, page=7)["items"][0]["id"] == 121
    assert listed(USERS, page_size=5)["totalPages"] == 200
    active = listed([user for user in USERS if user["active"]])
    assert (active["totalItems"], active["totalPages"]) == (666, 34)
    found, calls = [], 0
    more = True
    while more:
        calls += 1
        shape = listed([user for user in USERS if user["username"].startswith("user_00")], page=calls, page_size=20)
        found += shape["items"]
        more = shape["hasMore"]
    assert (len(found), calls) == (99, 5)
    last = listed(USERS, page=50)
    assert last["hasMore"] is False
    assert last["note"] == "Page 50/50. 1000 total items. Pass page=51 for next page."


def test_the_same_six_steps_mended():
    def listed(value: list[Any], **options: Any) -> Any:
        return short(value, 2000, paginate_after=20, **options)

    first = listed(USERS)
    assert first == original_shape(USERS, 2000, 20)
    assert listed(USERS, page=7)["items"][0]["id"] == 121
    assert listed(USERS, page_size=5)["totalPages"] == 200
    active = listed([user for user in USERS if user["active"]])
    assert (active["totalItems"], active["totalPages"]) == (666, 34)
    few = [user for user in USERS if user["username"].startswith("user_00")]
    assert all_pages(few, 2000, page_size=20) == few
    last = listed(USERS, page=50)
    assert last["hasMore"] is False
    assert last["note"] == "Page 50/50. 1000 total items."


def test_the_result_handler_example():
    text = original_shape("x" * 14_000, 200, 5)
    assert (text["totalChars"], text["estimatedTokens"], len(text["preview"])) == (14_000, 3500, 800)
    records = original_shape(USERS[:50], 200, 5)
    assert (records["totalItems"], records["totalPages"], len(records["items"])) == (50, 10, 5)
    assert original_shape({f"key_{number}": "value " * 5 for number in range(100)}, 200, 5)["_totalKeys"] == 100


def test_the_budget_does_not_hold_in_the_original_and_does_in_the_mended():
    large = ["x" * 100_000] * 100
    assert len(stringify(original_shape(large))) > 5_000_000
    assert short(large)["totalItems"] == 100
    assert len(original_shape(USERS, page_size=999)["items"]) == 999
    assert short(USERS, page_size=999)["totalItems"] == 1000
    pretty = [{"path": f'src/"module"/file_{number}.ts', "lines": [1, 2, 3]} for number in range(50)]
    assert tokens.count(stringify(original_shape(pretty))) > 500
    assert short(pretty)["totalItems"] == 50


# Mended.


def test_a_mended_preview_is_as_long_as_fits_and_the_note_says_so():
    value = "A sentence of some length, with a comma. " * 1000
    shape = short(value, 200)
    assert list(shape) == ["truncated", "totalChars", "estimatedTokens", "preview", "note"]
    assert value.startswith(shape["preview"])
    assert shape["note"] == (
        f"String truncated to ~200 tokens ({len(shape['preview'])} chars). Full length: 41000 chars (~10250 tokens)."
    )
    dense = short("漢字かな交じり文" * 1000, 200)
    longer = dense | {"preview": dense["preview"] + "漢字かな交じり文" * 2}
    assert tokens.count(stringify(longer)) > 200


def test_a_mended_preview_is_at_most_the_originals():
    assert len(short("a" * 100_000, 500)["preview"]) == 2000


def test_text_that_fits_is_whole_however_long():
    text = "=" * 10_000
    assert original_shape(text)["truncated"] is True
    assert budgeted_shape(text, within(500)) == ShapedValue(text, False)


def test_mended_previews_end_between_characters():
    for budget in range(50, 90):
        assert "\\ud" not in stringify(short("x" + "👩‍🚀" * 1000, budget))
        assert "\\ud" not in stringify(short({"a": "x" + "😀" * 1000}, budget))


def test_a_number_too_long_is_truncated_json():
    shape = short(10**3000, 200)
    assert shape["note"] == "JSON result truncated to ~200 tokens. Total: ~751 tokens."
    assert shape["preview"] == "1" + "0" * (len(shape["preview"]) - 1)


def test_a_mended_summary_counts_its_metadata():
    value = {f"field_{number}": f"value {number}" for number in range(2000)}
    shape = short(value, 200)
    assert list(shape)[:4] == ["_summarized", "_totalKeys", "_estimatedTokens", "_note"]
    shown = [key for key in shape if key in value]
    assert shown == list(value)[: len(shown)]
    assert shape["_truncatedKeys"] == 2000 - len(shown)
    following = list(value)[len(shown)]
    assert tokens.count(stringify(shape | {following: value[following]})) > 195


def test_pages_shrink_for_the_whole_list():
    first = short(USERS, 500, page_size=50)
    size = first["pageSize"]
    assert 10 < size < 50
    assert len(first["items"]) == size
    assert first["totalPages"] == math.ceil(1000 / size)
    assert first["note"] == f"Page 1/{first['totalPages']}. 1000 total items. Pass page=2 for next page."
    assert short(USERS, 500, page=2, page_size=50)["items"][0] == USERS[size]
    assert short(USERS, 500, page=2, page_size=size)["items"][0] == USERS[size]
    assert all_pages(USERS, 500) == USERS


def test_one_dense_stretch_decides_about_the_size():
    value = ["plain words of text here"] * 300 + ["漢字かな交じり文"] * 40 + ["plain words of text here"] * 300
    assert all_pages(value, 150) == value


def test_a_short_list_over_the_budget_comes_in_pages_too():
    shape = short(USERS[:40], 500)
    assert shape["paginated"] is True
    assert all_pages(USERS[:40], 500) == USERS[:40]


def test_items_too_large_for_a_page_are_abridged_where_they_stand():
    value: list[Any] = [
        *USERS[:30],
        "word " * 50_000,
        *USERS[30:60],
        {f"k{n}": "v" * 50 for n in range(999)},
        [0] * 9999,
    ]
    items = all_pages(value, 500)
    assert items[:30] == USERS[:30]
    assert items[31:61] == USERS[30:60]
    text, object_, list_ = items[30], items[61], items[62]
    assert list(text) == ["truncated", "totalChars", "estimatedTokens", "preview"]
    assert text["totalChars"] == 250_000
    assert value[30].startswith(text["preview"]) and len(text["preview"]) >= 200
    assert (object_["_summarized"], object_["_totalKeys"]) == (True, 999)
    assert object_["k0"] == "v" * 50
    assert list_["totalChars"] == 19_999 and list_["preview"].startswith("[0,0,0,0")
    assert short(value, 500)["pageSize"] >= 10


def test_a_large_item_has_the_room_that_the_others_leave():
    among = short([*range(20), "word " * 50_000], 500)["items"][-1]
    alone = short(["word " * 50_000], 500)["items"][0]
    assert 200 < len(among["preview"]) < len(alone["preview"])
    assert tokens.count(alone["preview"]) > 350


def test_pages_of_large_items_show_something_of_each():
    shape = short(["word " * 20_000] * 100, 500)
    assert 2 <= len(shape["items"]) <= 10
    assert all(len(item["preview"]) >= 200 for item in shape["items"])


def test_small_budgets_leave_out_notes_then_numbers():
    assert "note" in short(USERS, 200)
    assert list(short(USERS, 199))[-1] == "items"
    assert list(short(USERS, 100)) == ["paginated", "totalItems", "page", "pageSize", "totalPages", "hasMore", "items"]
    assert short(USERS, 50, page=3) == {"paginated": True, "hasMore": True, "items": [USERS[2]]}
    assert list(short("word " * 999, 50)) == ["truncated", "totalChars", "estimatedTokens", "preview"]
    summary = short({f"key {number}": "漢字" * 40 for number in range(9)}, 50)
    assert list(summary) == ["_summarized", "_totalKeys", "_estimatedTokens", "_truncatedKeys"]


def test_the_smallest_budget_holds_by_the_dearest_tokenizer():
    for value in ("word " * 9999, USERS, {"a": USERS}, [USERS], ["漢" * 9999] * 3, 10**5000, [[USERS]]):
        for model in ("claude", 1.6):
            assert tokens.count(stringify(budgeted_shape(value, within(50, model), 50).value), model) <= 50


def test_what_cannot_fit_is_the_smallest_shape():
    assert budgeted_shape("text", lambda text: False).value == {"truncated": True, "preview": ""}
    assert budgeted_shape({"a": 1}, lambda text: False).value == {"_summarized": True, "_truncatedKeys": 1}
    assert budgeted_shape([{"a": 1}, 2], lambda text: False, page=2).value == {
        "paginated": True,
        "hasMore": False,
        "items": [{"truncated": True, "preview": ""}],
    }


def test_little_is_measured_often():
    def measured(value: Any) -> tuple[int, int]:
        lengths: list[int] = []

        def fits(text: str) -> bool:
            lengths.append(len(text))
            return tokens.count(text) <= 500

        budgeted_shape(value, fits, 500)
        return len(lengths), sum(lengths)

    assert measured("word, " * 100_000)[0] <= 12
    assert measured({f"k{number}": "word, " * 9 for number in range(9999)})[0] <= 12
    few, many = measured(USERS[:500])[1], measured(USERS)[1]
    assert many < 2.2 * few
    assert many < 5 * len(stringify(USERS))


# Laws.

budgets = st.integers(50, 400)
pages = st.integers(-1, 30) | st.floats() | st.text(max_size=3) | st.none()
long_json = st.recursive(
    any_json | st.text(max_size=400) | st.text('ab \n"\\漢😀é', max_size=900) | st.integers(0, 10**300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=60), inner, max_size=12),
    max_leaves=30,
)


@given(long_json, st.integers(-1, 60), pages, pages, pages)
def test_the_original_never_raises_and_is_json(value, limit, paginate_after, page, page_size):
    shape = original_shape(value, limit, paginate_after, page, page_size)
    json.loads(stringify(shape))


@settings(max_examples=examples(300))
@given(long_json, budgets, pages, pages)
def test_the_mended_fits_and_is_whole_or_cut(value, budget, page, page_size):
    shape = budgeted_shape(value, within(budget), budget, page, page_size)
    assert tokens.count(stringify(shape.value)) <= budget
    assert shape.cut == (shape.value is not value)


@settings(max_examples=examples(100))
@given(st.lists(long_json, min_size=1, max_size=40), budgets, st.integers(1, 60))
def test_pages_in_a_row_are_the_list(value, budget, page_size):
    shape = budgeted_shape(value, within(budget), budget, 1, page_size)
    if not shape.cut:
        return
    items = all_pages(value, budget, page_size=page_size)
    assert len(items) == len(value)
    for item, whole in zip(items, value, strict=True):
        assert item == whole or {"truncated", "_summarized"} & item.keys()
    last = short(value, budget, page=10**6, page_size=page_size)
    assert last["hasMore"] is False
    assert last["items"][-1] == items[-1]


LETTERS = st.characters(min_codepoint=32, max_codepoint=0x17F)
"""Of which twenty fit into the least budget."""


@given(st.lists(st.integers() | st.text(LETTERS, max_size=20), min_size=1, max_size=200), budgets, st.integers(1, 300))
def test_small_items_come_back_as_they_are(value, budget, page_size):
    if budgeted_shape(value, within(budget), budget, 1, page_size).cut:
        assert all_pages(value, budget, page_size=page_size) == value


# JSON as JavaScript writes it.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (math.nan, "null"),
        (-math.inf, "null"),
        (2**64, "18446744073709551616"),
        (-(10**30), "-1" + "0" * 30),
        (True, "true"),
        (None, "null"),
        ([1.0, math.nan], "[1,null]"),
        ({"1.0": "2.0"}, '{"1.0":"2.0"}'),
        ({"b": 1, "10": 2, "9": 3}, '{"b":1,"10":2,"9":3}'),
        ((1, 2), "[1,2]"),
        ("é😀\u2028\x7f", '"é😀\u2028\x7f"'),
        ('\b\f\n\r\t\v\0\x1f"\\/', r'"\b\f\n\r\t\u000b\u0000\u001f\"\\/"'),
        ("\ud83d", r'"\ud83d"'),
        ("\ude00\ud83d", r'"\ude00\ud83d"'),
        ("\ud83d\ude00", '"😀"'),
        ({"\ud83d": [1.0]}, r'{"\ud83d":[1]}'),
        ([], "[]"),
        ({}, "{}"),
        ({"a": [], "b": {}, "c": 1.0}, '{"a":[],"b":{},"c":1}'),
    ],
)
def test_stringify(value, text):
    assert stringify(value) == text


def test_integers_have_all_their_digits():
    assert stringify([1 - 10**5000, 1.0]) == "[-" + "9" * 5000 + ",1]"


def test_stringify_with_indent():
    value = {"a": [1.0, {"b": []}, {}], "c": "x"}
    assert stringify(value, 2) == ('{\n  "a": [\n    1,\n    {\n      "b": []\n    },\n    {}\n  ],\n  "c": "x"\n}')
    assert stringify([], 2) == "[]"
    assert stringify("x", 2) == '"x"'


def test_depth_is_no_matter_and_a_circle_ends():
    deep: Any = 1.0
    for _ in range(9000):
        deep = [deep]
    assert stringify(deep) == "[" * 9000 + "1" + "]" * 9000
    assert short([deep, deep], 100)["totalItems"] == 2
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="deeper than"):
        stringify(circle)


def test_what_is_not_json_is_refused():
    for value in (object(), [1.0, object()], {"a": b"x", "b": 1.0}):
        with pytest.raises(TypeError):
            stringify(value)


@given(long_json)
def test_stringify_is_the_same_value(value):
    # To JavaScript a number is a double, whether or not it is written with a point.
    same = json.loads(json.dumps(value), parse_int=float)
    assert json.loads(stringify(value), parse_int=float) == same
    assert json.loads(stringify(value, 2), parse_int=float) == same


ORACLE = """
const lines = require("fs").readFileSync(0, "utf8").split("\\n").filter(Boolean).map(line => JSON.parse(line));
for (const [value, text] of lines) {
  console.log(JSON.stringify([
    JSON.stringify(value), JSON.stringify(value, null, 2), text.length, JSON.stringify(text.slice(0, 4)),
    String(Number(text)), String(Number(value)),
  ]));
}
"""


NUMBERS = ["", " ", "12", "1e3", "-5", "+7.", ".5", ".", "0x1F", "0b101", "0o17", "-0x1", "1_0", "Infinity", "٣"]
NUMBERS += ["\ufeff4\u2003", "\x1c4", "\x854", "inf", "nan", "1e400", "0x", "1 2", "5\n", "0x" + "f" * 300, "1" * 5000]


def _some_text(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return chance.choice(NUMBERS)
    kinds = [
        'abc "\\/',
        "\0\x01\b\t\n\v\f\r\x1f\x7f\x80\x9f",
        "é漢\u2028\u2029\ufeff\uffff",
        "😀\U0010ffff",
        "\ud800\udbff\udc00\udfff",
    ]
    return "".join(chance.choice(chance.choice(kinds)) for _ in range(chance.randrange(12)))


def _some_number(chance: random.Random) -> float | int:
    match chance.randrange(4):
        case 0:
            number: float = struct.unpack("<d", chance.randbytes(8))[0]
            return number if math.isfinite(number) else 0.0
        case 1:
            return chance.randrange(-(2**53), 2**53)
        case 2:
            return float(f"{chance.randrange(-999, 999)}e{chance.randrange(-25, 25)}")
        case _:
            return chance.choice([0.0, -0.0, 1.0, -1.5, 1e15, 1e16, 1e20, 1e21, 1e-6, 1e-7, 123456789012345680000.0])


def _some_json(chance: random.Random, depth: int = 4) -> Any:
    kind = chance.randrange(7 if depth else 5)
    if kind < 2:
        return _some_text(chance)
    if kind < 4:
        return _some_number(chance)
    if kind == 4:
        return chance.choice([None, True, False])
    several = range(chance.randrange(5))
    if kind == 5:
        return [_some_json(chance, depth - 1) for _ in several]
    # Letters first: JavaScript puts keys that are array indices before the others.
    return {"k" + _some_text(chance): _some_json(chance, depth - 1) for _ in several}


def test_node_writes_the_same(node: Path):
    if not node.exists():
        pytest.skip(f"there is no Node at {node}")
    chance = random.Random(20260611)
    cases = [(_some_json(chance), _some_text(chance)) for _ in range(600)]
    told = subprocess.run(
        [node, "-e", ORACLE],
        input="\n".join(json.dumps(case) for case in cases),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=HANG_SECONDS,
    )
    answers = [json.loads(line) for line in told.stdout.split("\n") if line]
    assert len(answers) == len(cases)
    for (value, text), (compact, pretty, length, first, of_text, of_value) in zip(cases, answers, strict=True):
        assert stringify(value) == compact
        assert stringify(value, 2) == pretty
        if length > 4:
            shape = original_shape(text, 1)
            assert (shape["totalChars"], stringify(shape["preview"])) == (length, first)
        for argument, number in ((text, of_text), (value, of_value)):
            if isinstance(argument, list):
                continue
            asked = float(number) if re.fullmatch(r"[-0-9.e+]+", number) else math.nan
            expected = math.floor(asked) if 1 <= asked < math.inf else 1
            assert original_shape(list(range(100)), page=argument, page_size=1)["page"] == min(expected, 100)


@pytest.mark.parametrize("page", ["1" * 100_000 + "x", "1" * 100_000, "0x" + "f" * 100_000])
def test_a_page_of_very_many_digits_is_no_number(page: str) -> None:
    assert _to_number(page) != _to_number(page)  # NaN
    assert original_shape(list(range(100)), page=page)["page"] == 1


@pytest.mark.parametrize("number", [1.0, 1e-7, 2e21])
def test_numbers_are_written_as_javascript_does_wherever_they_are(number):
    written = stringify(number)
    for length in range(65_520, 65_545):
        assert stringify(["x" * length, number]) == f'["{"x" * length}",{written}]'
