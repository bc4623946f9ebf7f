"""Computations: short ones run at once, long ones in a thread, and one that nobody waits for ends."""

import asyncio
import threading
import time

import pytest

from deltamcp.runtime.threads import Computations
from deltamcp.work import Work, WorkLimitError


async def test_a_short_computation_runs_at_once() -> None:
    assert await Computations(1_000).run("ann", lambda work: threading.get_ident()) == threading.get_ident()


async def test_a_long_computation_runs_in_a_thread() -> None:
    def compute(work: Work) -> int:
        work.spend(500_000)
        return threading.get_ident()

    assert await Computations(1_000_000).run("ann", compute) != threading.get_ident()


@pytest.mark.parametrize("limit", [10, 100_000])
async def test_the_limit_ends_a_computation(limit: int) -> None:
    counted = []

    def compute(work: Work) -> None:
        for step in range(limit + 1):
            work.spend()
            counted.append(step)

    with pytest.raises(WorkLimitError):
        await Computations(limit).run("ann", compute)
    assert max(counted) == limit - 1


async def test_a_computation_ends_when_its_caller_leaves() -> None:
    running, ended = threading.Event(), threading.Event()

    def compute(work: Work) -> None:
        work.spend(50_000)
        running.set()
        try:
            while True:
                work.spend(0)
                time.sleep(0.001)
        finally:
            ended.set()

    call = asyncio.ensure_future(Computations(100_000).run("ann", compute))
    assert await asyncio.to_thread(running.wait, 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(ended.wait, 60)


async def test_a_thread_stays_for_others_whatever_one_caller_asks_for() -> None:
    computations, may_end = Computations(100_000), threading.Event()

    def wait(work: Work) -> None:
        work.spend(50_000)
        assert may_end.wait(60)

    waiting = [asyncio.ensure_future(computations.run("ann", wait)) for _ in range(4)]
    await asyncio.sleep(0)
    await computations.run("bob", lambda work: work.spend(50_000))
    may_end.set()
    await asyncio.gather(*waiting)
