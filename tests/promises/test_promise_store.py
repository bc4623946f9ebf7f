"""Promises in the store: created once, changed by compare-and-set, watched without polling."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from deltamcp.limits import Limits
from deltamcp.promises import record
from deltamcp.promises.record import PromiseRecord, key_of, make_token
from deltamcp.promises.store import PromiseStore
from deltamcp.replicas import Replica
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.stores.sqlite import SqliteStore
from deltamcp.stores.store import ENTRY_BYTES, MemoryStore, Quotas, StoreFullError, StoreUnreachableError
from deltamcp.values import PromiseStatus

S = PromiseStatus
NO_CALL: Any = None


def new_key() -> str:
    key = key_of(make_token())
    assert key is not None
    return key


def new_record(promises: PromiseStore, account: str = "ann") -> PromiseRecord:
    now = promises.clock()
    return PromiseRecord("owner", account, "tool", (), "digest", "", now, now, now + 1000, now + 5000)


class CountingStore(MemoryStore):
    """Counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get(self, owner: str, name: str) -> bytes | None:
        self.reads += 1
        return await super().get(owner, name)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def promises(store) -> PromiseStore:
    return PromiseStore(store, "server", Limits(promises_per_account=5), None)


def start(found: PromiseRecord) -> PromiseRecord | None:
    return record.start(found, 1, "worker", found.created_at, 10.0)


def report(progress: float) -> Any:
    return lambda found: record.report(found, 1, progress, None, None)


async def test_ml_31_a_promise_is_stored_where_there_was_none(promises, store):
    key = new_key()
    made = await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    assert made is not None and await promises.read(key) == made
    with pytest.raises(AssertionError):
        await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)


async def test_an_account_has_as_many_places_as_it_may_have_promises(promises):
    made = [await promises.create(new_key(), new_record(promises), NO_CALL, b"{}", 60.0) for _ in range(6)]
    assert [one is not None for one in made] == [True] * 5 + [False]
    assert len({one.place for one in made if one is not None}) == 5
    assert await promises.create(new_key(), new_record(promises, "bob"), NO_CALL, b"{}", 60.0) is not None
    await promises.delete_call("", made[2])
    assert await promises.create(new_key(), new_record(promises), NO_CALL, b"{}", 60.0) is not None


async def test_a_promise_for_which_there_is_no_room_takes_no_place():
    store = MemoryStore(Quotas(ENTRY_BYTES + 2000, ENTRY_BYTES + 2000))
    promises = PromiseStore(store, "server", Limits(), None)
    with pytest.raises(StoreFullError):
        await promises.create(new_key(), new_record(promises), NO_CALL, bytes(1900), 60.0)
    assert not store._entries


async def test_of_many_changes_at_once_none_is_lost(promises):
    key = new_key()
    await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    await promises.update(key, start)

    def count(found: PromiseRecord) -> PromiseRecord:
        return replace(found, progress=(found.progress or 0) + 1)

    await asyncio.gather(*(promises.update(key, count) for _ in range(50)))
    found = await promises.read(key)
    assert found is not None and (found.progress, found.revision) == (50, 51)


async def test_what_a_watch_knows_of_a_record_that_has_changed_does_no_harm(promises):
    key = new_key()
    await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    other = PromiseStore(promises._store, "server", Limits(), None)
    with promises.watching(key) as watch:
        await watch.read()
        await other.update(key, start)
        refused = await promises.update(key, start)
        assert refused is not None and not refused.is_changed and refused.record.status is S.WORKING
        reported = await promises.update(key, report(0.5))
        assert reported is not None and reported.is_changed and reported.record.revision == 2


async def test_a_change_that_leads_nowhere_changes_nothing(promises):
    key = new_key()
    made = await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    update = await promises.update(key, report(0.5))
    assert update is not None and not update.is_changed and update.record == made
    assert await promises.update(new_key(), start) is None
    with pytest.raises(AssertionError, match="queued does not become completed"):
        await promises.update(key, lambda found: replace(found, status=S.COMPLETED))


async def test_a_call_that_took_the_place_of_another_is_not_taken_for_it(promises):
    key = new_key()
    made = await promises.create(key, new_record(promises), NO_CALL, b'{"key": "another"}', 60.0)
    assert made is not None and await promises.read_call(key, made) is None


async def test_whoever_watches_is_woken_by_a_change_and_reads_nothing_meanwhile(promises, store):
    key = new_key()
    made = await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    assert made is not None
    with promises.watching(key) as watch:
        assert await watch.read() == made
        reads = store.reads
        waiting = asyncio.create_task(watch.next(0, 60))
        await asyncio.sleep(0.05)
        assert store.reads == reads and not waiting.done()
        update = await promises.update(key, start)
        assert update is not None and await waiting == update.record
        assert store.reads == reads, "also for the change"
        assert await watch.next(1, 0.01) == update.record, "as it is, after that time"
    assert not promises._watches


async def test_many_watches_wake_together(promises):
    key = new_key()
    await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)

    async def wait() -> int:
        with promises.watching(key) as watch:
            found = await watch.next(0, 60)
            assert isinstance(found, PromiseRecord)
            return found.revision

    waiting = [asyncio.create_task(wait()) for _ in range(100)]
    await asyncio.sleep(0)
    await promises.update(key, start)
    assert await asyncio.gather(*waiting) == [1] * 100 and not promises._watches


async def test_a_change_during_a_read_is_not_missed(promises, store, monkeypatch):
    key = new_key()
    await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    read = MemoryStore.get
    is_slow = True

    async def slow_read(self: Any, owner: str, name: str) -> bytes | None:
        nonlocal is_slow
        data = await read(self, owner, name)
        if is_slow:
            is_slow = False
            await promises.update(key, start)
        return data

    monkeypatch.setattr(CountingStore, "get", slow_read)
    with promises.watching(key) as watch:
        found = await watch.next(0, 60)
    assert found is not None and found.revision == 1


async def test_a_lost_message_is_made_up_for_by_a_look(promises, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.store._BACKSTOP_SECONDS", 0.02)
    key = new_key()
    await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    other = PromiseStore(promises._store, "server", Limits(), None)
    with promises.watching(key) as watch:
        waiting = asyncio.create_task(watch.next(0, 60))
        await asyncio.sleep(0)
        await other.update(key, start)
        found = await waiting
    assert found is not None and found.status is S.WORKING


async def test_a_watch_passes_on_that_the_store_fails(promises, store, monkeypatch):
    async def fail(owner: str, name: str) -> bytes | None:
        raise StoreUnreachableError("away")

    key = new_key()
    await promises.create(key, new_record(promises), NO_CALL, b"{}", 60.0)
    with promises.watching(key) as watch:
        with monkeypatch.context() as patched:
            patched.setattr(store, "get", fail)
            with pytest.raises(StoreUnreachableError):
                await watch.next(0, 60)
        assert await watch.read() is not None, "it does not take the failure for a record that is gone"


async def test_ml_43_a_change_by_another_replica_wakes_a_watch(tmp_path, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.store._BACKSTOP_SECONDS", 1e6)
    stores = [SqliteStore(tmp_path / "store.db") for _ in range(2)]
    replicas = [Replica(store, "server", ChangeHub()) for store in stores]
    one, other = (PromiseStore(replica.store, "server", Limits(), replica) for replica in replicas)
    key = new_key()
    await one.create(key, new_record(one), NO_CALL, b"{}", 60.0)
    running = [asyncio.create_task(replica.run()) for replica in replicas]
    try:
        with other.watching(key) as watch:
            assert (await watch.read()) is not None
            waiting = asyncio.create_task(watch.next(0, 1e6))
            await one.update(key, start)
            async with asyncio.timeout(60):
                found = await waiting
            assert found is not None and found.status is S.WORKING
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for store in stores:
            await store.close()


async def test_a_name_is_found_by_those_who_know_it_and_taken_once(promises, store):
    token = make_token()
    made = await promises.create(new_key(), new_record(promises), NO_CALL, b"{}", 60.0)
    assert made is not None
    assert await promises.add_name("ann", "mine", token, "digest", made)
    assert not await promises.add_name("ann", "mine", make_token(), "digest", made)
    assert await promises.find_name("ann", "mine") == (token, "digest")
    assert await promises.find_name("bob", "mine") is None and await promises.find_name("ann", "other") is None
    assert all(token[5:].encode() not in entry.data for entry in store._entries.values())
