"""Budgets: what they admit is what its count says, which small texts can do without."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.results.window import Budget
from deltamcp.work import Work
from tests.support.conditions import HANG_SECONDS

LOADED = """
import sys
from deltamcp.results.window import Budget
from deltamcp.work import Work
assert Budget(500, "o200k", 4000).admits(["x" * 500], Work(1000))
assert "splintr" not in sys.modules
assert not Budget(50, "o200k", 400).admits(["many words " * 30], Work(1000))
assert "splintr" in sys.modules
"""


@given(st.text(max_size=80), st.integers(1, 60), st.sampled_from(["o200k", 0.5, 1.7]), st.integers(1, 100))
def test_a_budget_admits_what_costs_at_most_that(text, size, model, max_chars):
    budget = Budget(size, model, max_chars)
    assert budget.admits([text], Work(1000)) == (budget.cost(text) <= size)


def test_a_small_text_is_admitted_without_the_vocabulary():
    subprocess.run([sys.executable, "-c", LOADED], check=True, timeout=HANG_SECONDS)
