"""The wait before a restart: none after one failure, then growing, spread, and never beyond a minute."""

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.upstreams.client import wait_seconds

CHANCES = st.floats(0, 1)


@given(CHANCES)
def test_after_one_failure_it_is_started_at_once(chance):
    assert wait_seconds(0, chance) == wait_seconds(1, chance) == 0.0


@given(st.integers(2, 10_000), CHANCES)
def test_each_wait_is_at_least_the_one_before(failures, chance):
    assert wait_seconds(failures + 1, chance) >= wait_seconds(failures, chance) > 0


@given(st.integers(0, 10_000), CHANCES)
def test_no_wait_is_longer_than_a_minute(failures, chance):
    assert wait_seconds(failures, chance) <= 60


@given(st.integers(2, 10_000), CHANCES, CHANCES)
def test_chance_spreads_a_wait_over_its_upper_half(failures, one, other):
    assert wait_seconds(failures, one) <= 2 * wait_seconds(failures, other)
