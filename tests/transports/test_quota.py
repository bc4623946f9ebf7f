"""The law of quotas: no account holds more than its share, and all together no more than the limit."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.runtime.quota import Quota

ACCOUNTS = st.sampled_from(["a", "b", "c"])


@given(st.integers(1, 40), st.sampled_from([0.01, 0.25, 0.5, 1]), st.lists(st.tuples(ACCOUNTS, st.integers(1, 12))))
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


@given(st.sampled_from([0.25, 0.5, 1]), st.lists(st.tuples(ACCOUNTS, st.integers(1, 10), st.booleans()), max_size=30))
def test_whoever_waits_gets_its_amount_in_turn_and_all_is_given_back(account_share, amounts):
    quota, turns = Quota(40, account_share), []

    async def hold(place, account, amount):
        assert await quota.take_in_turn(account, amount, 60)
        turns.append((account, place))
        try:
            await asyncio.sleep(0)
        finally:
            quota.give_back(account, amount)

    async def hold_all():
        tasks = [asyncio.create_task(hold(place, *amount[:2])) for place, amount in enumerate(amounts)]
        await asyncio.sleep(0)
        for task, (_, _, is_cancelled) in zip(tasks, amounts, strict=True):
            if is_cancelled:
                task.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        assert quota.take("d", quota.share), "what was given back is free again"

    asyncio.run(hold_all())
    for account in "abc":
        own = [place for one, place in turns if one == account]
        assert own == sorted(own)


async def test_a_wait_that_ends_leaves_nothing_behind():
    quota = Quota(8, 1)
    assert quota.take("a", 8)
    assert not await quota.take_in_turn("a", 1, 0)
    cancelled = asyncio.create_task(quota.take_in_turn("b", 8, 60))
    granted = asyncio.create_task(quota.take_in_turn("c", 8, 60))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    quota.give_back("a", 8)
    granted.cancel()  # at the same time as its turn comes
    await asyncio.gather(cancelled, granted, return_exceptions=True)
    assert quota.take("d", 8), "neither holds anything, nor waits"
