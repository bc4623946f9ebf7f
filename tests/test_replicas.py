"""A replica's signs of life."""

import asyncio

from deltamcp.replicas import Replica
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.stores.store import MemoryStore
from tests.support.store_medium import until


async def test_a_replica_that_closes_counts_as_alive_until_it_has_ended_its_work():
    store = MemoryStore()
    closing, other = (Replica(store, "server", ChangeHub()) for _ in range(2))
    is_busy = True
    closing.add_busy_check(lambda: is_busy)
    running = asyncio.create_task(closing.run())
    await until(lambda: other.is_alive(closing.id))
    running.cancel()
    await asyncio.sleep(0.05)
    assert await other.is_alive(closing.id) and not running.done()
    is_busy = False
    await asyncio.wait([running])
    assert not await other.is_alive(closing.id)
