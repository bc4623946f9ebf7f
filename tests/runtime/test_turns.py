"""Turns: who leaves while it waits takes none, whenever it leaves."""

import asyncio

import pytest

from deltamcp.runtime.quota import Turns


@pytest.mark.parametrize("others", [(), ("ann",), ("mallory",)])
async def test_who_is_cancelled_just_before_its_turn_is_only_cancelled(others):
    turns = Turns(1)
    await turns.take("bob")
    leaving, *waiting = [asyncio.create_task(turns.take(caller)) for caller in ("mallory", *others)]
    await asyncio.sleep(0)
    leaving.cancel()
    turns.release()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await asyncio.gather(*waiting)
    assert turns.waiting_count == 0
    turns.release()
    await turns.take("bob")
