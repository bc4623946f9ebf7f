"""Work: steps are counted exactly, and end a computation in the same place every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.work import CHARS_PER_STEP, Work, WorkLimitError


@given(st.lists(st.integers(0, 50)), st.integers(0, 500))
def test_the_limit_is_met_exactly(spent: list[int], limit: int) -> None:
    work = Work(limit)
    if sum(spent) <= limit:
        for steps in spent:
            work.spend(steps)
    else:
        with pytest.raises(WorkLimitError, match="ask for less"):
            for steps in spent:
                work.spend(steps)


def test_scanning_counts_by_length() -> None:
    work = Work(2)
    work.scan(CHARS_PER_STEP - 1)
    with pytest.raises(WorkLimitError):
        work.scan(CHARS_PER_STEP)


def test_a_stopped_computation_ends_at_its_next_step() -> None:
    work = Work(1_000)
    work.stop()
    with pytest.raises(WorkLimitError):
        work.spend()
