"""Deltas that were once wrong, hostile ones, and those applied to the wrong base."""

import pytest

from deltamcp.deltas.delta import apply_delta, make_delta
from deltamcp.deltas.edits import InvalidDeltaError
from deltamcp.deltas.root import root_of
from deltamcp.work import Work, WorkLimitError
from tests.support.book_server import books
from tests.support.equality import is_same

ROW = {"a": "x" * 30, "b": "y" * 30}
LINES = [f"line {number} of them" for number in range(40)]


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ([0, 1] * 150, [1, 1, 0] * 100),
        (["ok", "failed"] * 150, ["failed", "failed", "ok"] * 100),
        ([{"s": "ok"}, {"s": "failed"}] * 150, [{"s": "failed"}, {"s": "ok"}, {"s": "ok"}] * 100),
        ({"a b": ROW}, {"a b": ROW, "c d": ROW}),
        ("\n".join(LINES), "\n".join([*LINES[1:], "one more"])),
        ([{"at": f"2026-03-01 12:00:{n:02d}", "m": n} for n in range(20)], [{"at": "2026-03-01 12:00:19", "m": 19}]),
    ],
    ids=["two numbers", "two words", "rows without a key", "a copy with a space", "a log that rotates", "rows that go"],
)
def test_what_deltas_once_failed_on(base, new):
    assert is_same(apply_delta(base, make_delta(base, new)), new)


@pytest.mark.parametrize(
    "text",
    [
        "a=[" + '"\\' * 50_000,
        "\n".join(['*"x">"xx"'] * 40),
        '*"x">"' + "x" * 1_000 + '"',
        "*" * 3_000,
        "a" + ".a" * 3_000 + "=1",
        "\n".join(" " * depth + "a" for depth in range(300)),
        "a" + "[] 0" * 2_000,
        "a=" + "9" * 5_000,
        "a=1e999999",
        'a="\ud800"',
        "a~\n " + "9" * 5_000,
        "[base]\n" * 3_000,
    ],
)
def test_hostile_deltas_are_refused(text):
    with pytest.raises(InvalidDeltaError):
        apply_delta({"a": "x" * 100}, text)


@pytest.mark.parametrize("text", ["[]\n" + "+0 1\n" * 3 + "+0 1", "base[0]\n" * 3_000, "[] +" + "9" * 5_000 + " 1"])
def test_hostile_deltas_of_lists_are_refused(text):
    with pytest.raises(InvalidDeltaError):
        apply_delta([1, 2], text)


def test_a_wrong_base_is_refused_by_its_root():
    new = {"a": 2, "z": 0}
    assert apply_delta({"a": 1, "z": 0}, "a=2", root_of(new)) == new
    with pytest.raises(InvalidDeltaError):
        apply_delta({"a": 1, "z": 1}, "a=2", root_of(new))


def test_a_plain_delta_tells_nothing_by_what_was_there():
    base = books(*range(20))
    new = [*base, {**base[15], "id": 99}]
    assert "like" in make_delta(base, new)
    text = make_delta(base, new, self_contained=True)
    assert "like" not in text and "~" not in text
    assert is_same(apply_delta(base, text), new)


def test_a_delta_that_repeats_a_large_part_of_the_base_many_times_is_refused():
    base = {"a": {"t": "x" * 10_000, "u": "y" * 30}}
    text = make_delta(base, {**base, **{f"b{at}": base["a"] for at in range(20)}})
    assert len(text) < 1000, "the delta copies"

    assert len(apply_delta(base, text, work=Work(10_000))) == 21
    with pytest.raises(WorkLimitError):
        apply_delta(base, text, work=Work(8_000))
