"""The law of quotas: no account holds more than its share, and all together no more than the limit."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.transports.quota import Quota

OWNERS = st.sampled_from(["a", "b", "c"])


@given(st.integers(1, 40), st.sampled_from([0.01, 0.25, 0.5, 1]), st.lists(st.tuples(OWNERS, st.integers(1, 12))))
def test_nobody_holds_more_than_a_share_and_all_no_more_than_the_limit(limit, account_share, amounts):
    quota, held, taken = Quota(limit, account_share), Counter[str](), []
    for account, amount in amounts:
        fits = held[account] + amount <= quota.share and held.total() + amount <= limit
        assert quota.take(account, amount) == fits
        if fits:
            held[account] += amount
            taken.append((account, amount))
        elif taken:
            back = taken.pop(0)
            quota.give_back(*back)
            held[back[0]] -= back[1]
    for back in taken:
        quota.give_back(*back)
    assert quota.take("d", quota.share), "what was given back is free again"


def test_a_share_is_at_least_one():
    assert Quota(3, 1 / 8).take("a")
