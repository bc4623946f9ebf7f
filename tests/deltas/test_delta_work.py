"""Deltas between values that are made to take long: counted, and given up at a limit."""

from typing import Any

import pytest

from deltamcp.deltas.delta import apply_delta, make_delta
from deltamcp.work import Work, WorkLimitError
from tests.support.steps import steps_of

PAIRS: dict[str, tuple[Any, Any]] = {
    "reversed rows": (
        [{"id": n, "v": n % 7} for n in range(5_000)],
        [{"id": n, "v": n % 7} for n in range(5_000)][::-1],
    ),
    "renamed members": (
        {f"k{n}": {"a": n, "b": 2} for n in range(3_000)},
        {f"q{n}": {"a": n, "b": 2} for n in range(3_000)},
    ),
    "numbers": ([n % 5 for n in range(20_000)], [n * 7 % 5 for n in range(20_000)]),
    "lines": (
        "\n".join(f"line {n % 50}" for n in range(20_000)),
        "\n".join(f"line {n * 7 % 50}" for n in range(20_000)),
    ),
    "one word of a long line": ("a b c d " * 20_000 + "Z" + "a b" * 9, "a b c d " * 20_000 + "Y" + "a b" * 9),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_work_of_a_delta_is_counted(pair: tuple[Any, Any]) -> None:
    base, new = pair
    steps = steps_of(lambda work: make_delta(base, new, work=work))
    assert steps > (len(base) if isinstance(base, list | dict) else len(base) // 256)
    with pytest.raises(WorkLimitError):
        make_delta(base, new, work=Work(steps // 2))
    assert apply_delta(base, make_delta(base, new, work=Work(steps))) == new


def test_texts_of_very_many_lines_are_replaced() -> None:
    assert make_delta("a\n" * 150_000, "a\n" * 149_999 + "b\n").startswith("=")


def test_rows_are_placed_in_one_pass() -> None:
    base = [{"id": number} for number in range(40_000)]
    moved = [base[place] for place in range(1, len(base), 2)] + [base[place] for place in range(0, len(base), 2)]
    assert apply_delta(base, make_delta(base, moved)) == moved
