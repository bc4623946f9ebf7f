"""Sums of the ledger: they add up whatever they are summed by, and say when the gateway cost more than it saved."""

import datetime
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.gateway import ledger_figures
from deltamcp.gateway.ledger_figures import GATEWAY, LISTED, OTHERS, LedgerKey, Usage

keys = st.builds(
    LedgerKey,
    st.sampled_from(["2026-11-15", "2026-11-16"]),
    st.sampled_from([GATEWAY, "git", "time"]),
    st.sampled_from([LISTED, "discover", "log"]),
)
numbers = st.integers(0, 10**6)
usages = st.builds(Usage, numbers, numbers, numbers, numbers, numbers)


@given(st.dictionaries(keys, usages), st.sampled_from(sorted(ledger_figures.GROUPS)))
def test_groups_and_parts_add_up_to_the_whole(rows, by):
    totals = ledger_figures.total(rows)
    before, after = (sum(getattr(usage, name) for usage in rows.values()) for name in ("before", "after"))
    assert (totals.total.before, totals.total.after) == (before, after)
    assert totals.total.saved == before - after
    grouped = ledger_figures.group(rows, by)
    assert sum(usage.saved for usage in grouped.values()) == before - after
    assert totals.losing_days == sorted(
        day for (day,), usage in ledger_figures.group(rows, "day").items() if usage.before < usage.after
    )


@given(st.lists(st.tuples(keys, usages)), st.integers(1, 4))
def test_sums_are_bounded_and_lose_nothing(more, limit):
    rows: dict[LedgerKey, Usage] = {}
    ledger_figures.add_rows(rows, more, limit)
    assert sum(usage.before for usage in rows.values()) == sum(usage.before for _, usage in more)
    assert len([key for key in rows if key.tool != OTHERS]) <= limit


def rows(*figures: tuple[str, str, str, int, int]) -> dict[LedgerKey, Usage]:
    return {LedgerKey(*key): Usage(1, 0, 0, before, after) for *key, before, after in figures}


def test_a_day_that_cost_more_than_it_saved_is_told():
    said = ledger_figures.sentences(
        ledger_figures.total(
            rows(
                ("2026-11-15", "git", "log", 100, 120),
                ("2026-11-16", "git", LISTED, 1000, 0),
                ("2026-11-16", GATEWAY, LISTED, 0, 324),
            )
        )
    )
    assert said[0].startswith("1 call and 1 list on 2 days. Definitions cost 324 tokens instead of 1,000, results 120 ")
    assert said[1] == "Together 656 tokens were saved, 60% of 1,100."
    assert said[2] == "On 1 day it cost more than it saved: 2026-11-15."


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (10, 13, "Together the gateway cost 3 tokens more than it saved."),
        (10, 10, "Together 0 tokens were saved, 0% of 10."),
        (0, 0, "Together 0 tokens were saved."),
    ],
)
def test_the_whole_is_told_as_it_is(before, after, said):
    assert ledger_figures.sentences(ledger_figures.total(rows(("2026-11-16", "git", "log", before, after))))[1] == said


def test_calls_whose_tokens_are_not_counted_are_told():
    totals = ledger_figures.total({LedgerKey("2026-11-16", "git", "log"): Usage(3, 0, 2, 0, 0)})
    assert "2 calls were not counted" in ledger_figures.sentences(totals)[-1]


def test_a_list_counts_once_however_many_upstreams_it_has():
    figures = [("2026-11-16", upstream, LISTED, 50, 0) for upstream in (GATEWAY, "git", "time")]
    assert ledger_figures.total(rows(*figures)).definitions.calls == 1


@given(st.dictionaries(keys, usages), st.dates(datetime.date(2026, 10, 1), datetime.date(2026, 12, 31)))
def test_every_day_until_the_last_has_its_figures_once(rows, last):
    days = ledger_figures.days_until(rows, last, 14)
    dates = [datetime.date.fromisoformat(day) for day, _ in days]
    assert all((later - sooner).days == 1 for sooner, later in itertools.pairwise(dates))
    assert len(days) >= 14 and last <= dates[-1]
    assert sum(usage.saved for _, usage in days) == ledger_figures.total(rows).total.saved
