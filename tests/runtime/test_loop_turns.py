"""Turns on the event loop: so many begin in an iteration, accounts in turn, and nobody waits without need."""

import asyncio

import pytest

from deltamcp.runtime.quota import LoopShares, LoopTurns
from tests.support.loop_iterations import LoopIterations


async def test_who_comes_alone_does_not_wait():
    turns, iterations = LoopTurns(1), LoopIterations()
    await turns.take("ann")
    assert iterations.count == 0
    for _ in range(3):
        await asyncio.sleep(0)
    before = iterations.count
    await turns.take("ann")
    assert iterations.count == before


@pytest.mark.parametrize("size", [1, 4])
async def test_so_many_begin_in_one_iteration(size):
    turns, iterations = LoopTurns(size), LoopIterations()
    begun: list[int] = []

    async def begin() -> None:
        await turns.take("ann")
        begun.append(iterations.count)

    await asyncio.gather(*(begin() for _ in range(20)))
    assert max(begun.count(iteration) for iteration in begun) <= size
    assert len(set(begun)) <= 20 // size + 2, "no iteration goes by without a turn, but for the first"


async def test_accounts_take_turns_however_many_wait_for_one():
    turns, order = LoopTurns(1), []

    async def begin(account: str) -> None:
        await turns.take(account)
        order.append(account)

    waiting = [asyncio.create_task(begin("mallory")) for _ in range(500)]
    await asyncio.sleep(0)
    waiting += [asyncio.create_task(begin("ann")), asyncio.create_task(begin("ann"))]
    await asyncio.gather(*waiting)
    assert max(place for place, account in enumerate(order) if account == "ann") < 8


async def test_who_leaves_takes_no_turn():
    turns, order = LoopTurns(1), []

    async def begin(name: str) -> None:
        await turns.take("ann")
        order.append(name)

    waiting = {name: asyncio.create_task(begin(name)) for name in ("first", "left", "last")}
    await asyncio.sleep(0)
    waiting["left"].cancel()
    await asyncio.wait(waiting.values())
    assert order == ["first", "last"]


def test_a_loop_that_closed_leaves_no_turn_taken():
    turns = LoopTurns(1)

    async def take_one() -> None:
        await turns.take("ann")

    for _ in range(2):
        loop = asyncio.new_event_loop()
        coroutine = take_one()
        with pytest.raises(StopIteration):
            asyncio._set_running_loop(loop)
            try:
                coroutine.send(None)
            finally:
                asyncio._set_running_loop(None)
        loop.close()


async def test_a_share_is_an_accounts_own_and_whole_again_in_the_next_iteration():
    shares = LoopShares(10)
    shares.take("ann", 4)
    shares.take("ann", 7)
    assert (shares.left("ann"), shares.left("ben")) == (-1, 10)
    await asyncio.sleep(0)
    assert shares.left("ann") == 10
    shares.take("ann", 3)
    assert shares.left("ann") == 7
