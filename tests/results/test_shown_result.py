"""Which part of a value a reply shows: the whole where its shortest text fits, else rows, with their number."""

import functools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltamcp import tokens
from deltamcp.results.document import find_rows
from deltamcp.results.encode import decode, encode
from deltamcp.results.policy import CHARS_PER_TOKEN, ResolvedPolicy
from deltamcp.results.shown_result import ShownResult
from deltamcp.results.window import Handle, Window
from deltamcp.values import JSON, ResourceLink
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work
from tests.support.equality import is_same

HANDLE = Handle("R4ph7", "continue", ResourceLink("x://results/R4ph7", "R4ph7"))
BASE = "https://api.example.com/v2/projects/alpha/items"


def compressible_rows(count: int) -> list[JSON]:
    """Rows of 340 bytes whose table takes about two tokens for each."""
    owner = {"login": "octo", "type": "User", "site_admin": False, "url": "https://api.example.com/users/octo"}
    return [
        {
            "id": number,
            "name": f"item-{number}",
            "url": f"{BASE}/{number}",
            "html_url": f"https://www.example.com/projects/alpha/items/{number}/view",
            "state": "open",
            "owner": owner,
            "labels_url": f"{BASE}/{number}/labels",
        }
        for number in range(count)
    ]


def show(value: JSON, policy: ResolvedPolicy) -> Window:
    """The window of the reply to a call that returned a value."""
    data = jsonrpc.encode(value)
    work = unlimited_work()
    shown = ShownResult(data, policy, value, find_rows(data, policy.rows, work, value))
    return shown.whole_window(work) or shown.part_window(HANDLE, work)


def is_whole(window: Window) -> bool:
    return window.unit == "whole" and not window.cuts


def fits(value: JSON, budget: int) -> bool:
    text = encode(value).text
    return tokens.count(text) <= budget and len(text) <= budget * CHARS_PER_TOKEN


# What a table saves is known only when it is written


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"total": len(rows), "items": rows}])
@pytest.mark.parametrize(("count", "budget"), [(34, 500), (40, 500), (150, 500), (180, 500), (2_000, 6_000)])
def test_rows_whose_table_fits_come_whole(count, budget, wrap):
    value = wrap(compressible_rows(count))
    window = show(value, ResolvedPolicy(max_tokens=budget))
    assert is_whole(window) and window.form == "table" and window.note == "[Table: {b}: column b]"
    assert is_same(decode(window.text), value)


def test_other_values_whose_tables_fit_come_whole():
    rows = compressible_rows(60)
    value = {"open": rows, "closed": {str(number): row for number, row in enumerate(rows)}, "kinds": {"a": rows[:2]}}
    window = show(value, ResolvedPolicy(max_tokens=700))
    assert is_whole(window) and is_same(decode(window.text), value)


def test_two_rows_are_tried_where_one_does_not_fit():
    row = compressible_rows(1)[0]
    rows: list[JSON] = [
        {"id": number, "prose": CELLS["prose"](number), **dict.fromkeys("abcdefgh", row)} for number in range(40)
    ]
    assert tokens.count(encode(rows[:1]).text) > 500 > tokens.count(encode(rows[:2]).text)
    window = show(rows, ResolvedPolicy(max_tokens=500))
    assert (window.unit, window.end >= 2, window.form) == ("rows", True, "table")


@pytest.mark.parametrize("budget", [50, 90, 100, 300, 2_000])
@pytest.mark.parametrize(
    "value",
    [
        compressible_rows(4_000),
        {"total": 4_000, "items": compressible_rows(4_000)},
        {"readme": "Some words. " * 4_000, "items": compressible_rows(30)},
        [{"text": "Some words. " * 2_000}] * 3,
        {"Some words. " * 4_000: 1, "items": compressible_rows(30)},
    ],
    ids=["rows", "items", "beside a text", "long rows", "beside a long key"],
)
def test_a_part_states_how_many_rows_there_are(value, budget):
    rows: Any = value["items"] if isinstance(value, dict) else value
    window = show(value, ResolvedPolicy(max_tokens=budget))
    assert not is_whole(window) and f"{len(rows)} rows" in window.note


def test_rows_are_all_shown_where_only_what_is_beside_them_does_not_fit():
    value = {"readme": "Some words. " * 4_000, "items": compressible_rows(100)}
    window = show(value, ResolvedPolicy(max_tokens=500))
    shown: Any = window.value
    assert shown["items"] == value["items"] and window.cuts == ("/readme",)


# Laws

CELLS = {
    "id": lambda number: number,
    "url": lambda number: f"{BASE}/{number}",
    "html": lambda number: f"https://www.example.com/alpha/{number}/view/{number}",
    "state": lambda number: "open",
    "kind": lambda number: ["a longer kind of thing", "another kind of thing"][number % 2],
    "prose": lambda number: f"{number * 7919} words that nobody else has {number * 104729}",
    "when": lambda number: f"2026-01-{number % 28 + 1:02}T10:00:00Z",
    "owner": lambda number: {"login": f"user{number % 5}", "admin": False, "url": f"{BASE}/user{number % 5}"},
    "tags": lambda number: ["x", "y", "z"][: number % 3],
    "score": lambda number: number / 7,
}


@st.composite
def row_values(draw: st.DrawFn) -> JSON:
    names = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=6, unique=True))
    absent = draw(st.sampled_from([*names, None]))
    rows: JSON = [
        {name: CELLS[name](number) for name in names if name != absent or number % 3}
        for number in range(draw(st.integers(1, 150)))
    ]
    return draw(st.sampled_from([rows, {"total": len(rows), "items": rows}, {"data": {"items": rows, "next": None}}]))


def row_count(value: Any) -> int:
    path = find_rows(jsonrpc.encode(value), None, unlimited_work()) or []
    return len(functools.reduce(lambda part, key: part[key], path, value))


@given(row_values(), st.integers(50, 3_000))
@example(compressible_rows(40), 500)
@example(compressible_rows(150), 500)
def test_the_whole_comes_where_it_fits_and_else_the_number_of_rows(value, budget):
    window = show(value, ResolvedPolicy(max_tokens=budget))
    assert is_whole(window) == fits(value, budget)
    if is_whole(window):
        assert window.text == encode(value).text and is_same(decode(window.text), value)
    else:
        assert f"{row_count(value)} rows" in window.note


@given(row_values(), st.integers(200, 3_000), st.integers(0, 1_000))
def test_more_budget_never_shows_fewer_rows(value, budget, more):
    shown = [show(value, ResolvedPolicy(max_tokens=tokens)) for tokens in (budget, budget + more)]
    counts = [row_count(value) if is_whole(window) else window.end if window.unit == "rows" else 0 for window in shown]
    assert counts[0] <= counts[1]
