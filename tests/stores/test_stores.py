"""Stores: memory, SQLite and Redis fulfil one contract."""

import asyncio
import contextlib
import functools
import os
import sqlite3
import stat
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.stores.circuit_breaker import CircuitBreaker
from deltamcp.stores.redis import RedisStore
from deltamcp.stores.sqlite import SqliteStore
from deltamcp.stores.store import (
    ENTRY_BYTES,
    MemoryStore,
    Quotas,
    SharedStore,
    Store,
    StoreError,
    StoreFullError,
    hash_key,
    open_store,
)
from tests.support.conditions import wait_until
from tests.support.processes import free_port
from tests.support.properties import examples
from tests.support.redis_server import redis_server
from tests.support.store_medium import Clock, until

LARGE = os.urandom(5_000_000)
A, B = "alice@example.org", "bob@example.org"
ACCOUNT = "an account"


@pytest.fixture
def store(medium) -> Store:
    opened: Store = medium.open()
    return opened


@pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)), LARGE], ids=["empty", "nul", "all", "5 MB"])
async def test_what_was_put_is_found_by_every_replica(medium, data):
    one, other = medium.open(), medium.open()
    await one.put(A, "n", data, 60, 600, ACCOUNT)
    assert await other.get(A, "n") == data
    assert await one.get(A, "n") == data


async def test_nothing_is_found_where_nothing_was_put(store):
    assert await store.get(A, "n") is None


async def test_each_owner_has_names_of_its_own(store):
    await store.put(A, "n", b"a", 60, 600, ACCOUNT)
    assert await store.get(B, "n") is None
    await store.put(B, "n", b"b", 60, 600, ACCOUNT)
    assert await store.get(A, "n") == b"a"


async def test_owners_and_names_may_be_any_text(store):
    places = [
        ("a", "bc"),
        ("ab", "c"),
        ("abc", ""),
        ("", "abc"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a\0", "b"),
        ("a", "\0b"),
    ]
    places += [("\ud800", "é"), ("é", "\ud800"), ("e\u0301", "é"), ("o" * 100_000, "n" * 100_000), ("../x", "*?[a]")]
    for place, (owner, name) in enumerate(places):
        assert await store.add(owner, name, b"%d" % place, 60, 600, ACCOUNT)
    for place, (owner, name) in enumerate(places):
        assert await store.get(owner, name) == b"%d" % place


async def test_the_last_put_counts(store):
    for data in (b"first", b"", LARGE, b"last"):
        await store.put(A, "n", data, 60, 600, ACCOUNT)
        assert await store.get(A, "n") == data


async def test_one_of_fifty_that_add_at_once_succeeds(medium):
    replicas = [medium.open(), medium.open()]
    added = await asyncio.gather(*(replicas[i % 2].add(A, "n", b"%d" % i, 60, 600, ACCOUNT) for i in range(50)))
    assert added.count(True) == 1
    assert await replicas[0].get(A, "n") == b"%d" % added.index(True)


async def test_add_leaves_alone_what_was_put(store):
    await store.put(A, "n", b"put", 60, 600, ACCOUNT)
    assert not await store.add(A, "n", b"added", 60, 600, ACCOUNT)
    assert await store.get(A, "n") == b"put"


async def test_hundreds_of_tasks_do_not_get_in_each_others_way(medium):
    replicas = [medium.open(), medium.open()]

    async def one(i: int) -> bool:
        data = b"%d" % i * 1000
        await replicas[i % 2].put(A, str(i), data, 60, 600, ACCOUNT)
        return bool(await replicas[(i + 1) % 2].get(A, str(i)) == data)

    assert all(await asyncio.gather(*map(one, range(300))))


async def test_a_cancelled_call_leaves_all_or_nothing_and_a_store_that_works(store):
    for turns in range(12):
        task = asyncio.ensure_future(store.put(A, str(turns), LARGE, 60, 600, ACCOUNT))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    for turns in range(12):
        assert await store.get(A, str(turns)) in (None, LARGE)
    await store.put(A, "n", b"x", 60, 600, ACCOUNT)
    assert await store.get(A, "n") == b"x"


async def test_after_close_a_store_can_be_used_again(store):
    await store.put(A, "n", b"x", 60, 600, ACCOUNT)
    await store.close()
    await store.put(A, "n", b"y", 60, 600, ACCOUNT)
    assert await store.get(A, "n") == b"y"


# Lives. In Redis they pass by Redis' clock, so there tests wait for what must come, and look at the time it has left.


async def test_what_nobody_reads_is_forgotten(medium):
    store = medium.open()
    await store.put(A, "n", b"x", 0.2, 600, ACCOUNT)
    medium.clock.now += 0.2
    # Attempts to add do not prolong its life, so one succeeds.
    await until(lambda: store.add(A, "n", b"y", 60, 600, ACCOUNT))
    assert await store.get(A, "n") == b"y"


async def test_what_is_read_all_the_time_ends_too(medium):
    store = medium.open()
    await store.put(A, "n", b"x", 600, 0.3, ACCOUNT)

    async def gone() -> bool:
        medium.clock.now += 0.05
        return await store.get(A, "n") is None

    await until(gone)


@pytest.mark.parametrize("medium", ["memory", "sqlite"], indirect=True)
async def test_each_reading_gives_it_its_seconds_again_up_to_its_end(medium):
    store = medium.open()
    await store.put(A, "n", b"x", 10, 35, ACCOUNT)
    for _ in range(3):
        medium.clock.now += 9
        assert await store.get(A, "n") == b"x"
    medium.clock.now += 7.9  # 34.9 s after it was put
    assert await store.get(A, "n") == b"x"
    medium.clock.now += 0.1
    assert await store.get(A, "n") is None


@pytest.mark.parametrize("medium", ["memory", "sqlite"], indirect=True)
async def test_a_look_by_add_or_by_another_owner_prolongs_nothing(medium):
    store = medium.open()
    await store.put(A, "n", b"x", 10, 35, ACCOUNT)
    medium.clock.now += 9
    assert not await store.add(A, "n", b"y", 10, 35, ACCOUNT)
    assert await store.get(B, "n") is None
    medium.clock.now += 1
    assert await store.get(A, "n") is None


@pytest.mark.parametrize("medium", ["redis"], indirect=True)
async def test_in_redis_reading_prolongs_a_life_but_not_beyond_its_end(medium, redis_url):
    from redis.asyncio import Redis

    store = medium.open()
    await store.put(A, "sliding", b"x", 1000, 5000, ACCOUNT)
    await store.put(A, "ending", b"x", 5000, 1000, ACCOUNT)
    async with Redis.from_url(redis_url) as raw:
        keys = {await raw.pttl(key): key async for key in raw.scan_iter(match="*:" + hash_key(A, "sliding"))}
        ((left, sliding),) = keys.items()
        assert 0 < left <= 1_000_000
        await raw.pexpire(sliding, 500_000)
        assert not await store.add(A, "sliding", b"y", 1000, 5000, ACCOUNT)
        assert await raw.pttl(sliding) <= 500_000
        assert await store.get(A, "sliding") == b"x"
        assert 500_000 < await raw.pttl(sliding) <= 1_000_000

        ending = sliding.replace(hash_key(A, "sliding").encode(), hash_key(A, "ending").encode())
        assert await store.get(A, "ending") == b"x"
        assert 0 < await raw.pttl(ending) <= 1_000_000


# Bounds

ENTRY = 1000 + ENTRY_BYTES
QUOTAS = Quotas(5 * ENTRY, 3 * ENTRY)


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def bounded(request, tmp_path) -> AsyncIterator[Store]:
    """A store with room for five entries of 1,000 bytes, three of them of one account."""
    store: Store
    match request.param:
        case "memory":
            store = MemoryStore(QUOTAS)
        case "sqlite":
            store = SqliteStore(tmp_path / "store.db", QUOTAS)
        case _:
            store = RedisStore(request.getfixturevalue("redis_url"), QUOTAS, prefix=f"{tmp_path}:")
    yield store
    await store.close()


async def found(store: Store, *names: str) -> str:
    return "".join([name for name in names if await store.get(A, name) is not None])


async def test_where_an_account_is_full_its_own_entry_that_was_unread_the_longest_goes_first(bounded):
    await bounded.put(A, "other", bytes(1000), 60, 600, "another account")
    for name in "abc":
        await bounded.put(A, name, bytes(1000), 60, 600, ACCOUNT)
    await bounded.get(A, "a")
    await bounded.put(A, "d", bytes(1000), 60, 600, ACCOUNT)
    assert await found(bounded, *"abcd") == "acd"
    assert await bounded.add(A, "e", bytes(2000), 60, 600, ACCOUNT)
    assert await found(bounded, *"acde") == "de"
    assert await bounded.get(A, "other") == bytes(1000)


async def test_where_the_store_is_full_nothing_is_stored_and_nothing_is_lost(bounded):
    for name, account in zip("abcde", ["one", "one", "two", "two", "two"], strict=True):
        await bounded.put(A, name, bytes(1000), 60, 600, account)
    for account in ("one", "three"):
        with pytest.raises(StoreFullError, match=r"^The store keeps 25,480 bytes in all, and is full\.$"):
            await bounded.put(A, "f", bytes(1000), 60, 600, account)
        with pytest.raises(StoreFullError):
            await bounded.add(A, "f", bytes(1000), 60, 600, account)
        with pytest.raises(StoreFullError):
            await bounded.put(A, "a", bytes(1001), 60, 600, account)
    assert await found(bounded, *"abcdef") == "abcde"
    assert await bounded.get(A, "a") == bytes(1000)
    await bounded.put(A, "f", bytes(1000), 60, 600, "two")
    assert await found(bounded, *"abcdef") == "abdef", "an account that is full gives up its own oldest"
    await bounded.put(A, "g", bytes(1001), 60, 600, "two")
    assert await found(bounded, *"abdefg") == "abfg"
    with pytest.raises(StoreFullError):
        await bounded.add(A, "h", bytes(1000), 60, 600, "three")
    assert await bounded.add(A, "h", bytes(999), 60, 600, "three"), "another account has the room that became free"


async def test_what_was_read_counts_as_one_entry_and_what_was_replaced_as_none(bounded):
    for size in (1000, 2000, 5, 1000, 900):
        for _ in range(3):
            await bounded.put(A, "a", bytes(size), 60, 600, ACCOUNT)
            await bounded.get(A, "a")
    for name in "bc":
        await bounded.put(A, name, bytes(1000), 60, 600, ACCOUNT)
    assert await found(bounded, *"abc") == "abc"
    await bounded.put(A, "c", bytes(1000), 60, 600, "another account")  # which it counts for from now on
    await bounded.put(A, "d", bytes(1000), 60, 600, ACCOUNT)
    assert await found(bounded, *"abcd") == "abcd"


async def test_what_could_never_fit_is_refused_and_costs_nothing_else(bounded):
    await bounded.put(A, "n", bytes(1000), 60, 600, ACCOUNT)
    large = bytes(3 * ENTRY - ENTRY_BYTES + 1)
    with pytest.raises(
        StoreFullError, match=r"keeps 15,288 bytes for one account, too few for one result of 11,193\.$"
    ):
        await bounded.put(A, "n", large, 60, 600, ACCOUNT)
    with pytest.raises(StoreFullError):
        await bounded.add(A, "m", large, 60, 600, ACCOUNT)
    assert await bounded.get(A, "n") == bytes(1000)
    await bounded.put(A, "n", large[1:], 60, 600, ACCOUNT)
    assert await bounded.get(A, "n") == large[1:]


async def test_what_has_expired_counts_no_more(medium):
    store = medium.open(QUOTAS)
    for name, account in zip("abc", ["one", "two", "three"], strict=True):
        await store.put(A, name, bytes(1000), 0.2, 600, account)
    for name, account in zip("de", ["one", "two"], strict=True):
        await store.put(A, name, bytes(1000), 60, 600, account)
    medium.clock.now += 0.2

    async def has_room(name: str, account: str) -> bool:
        with contextlib.suppress(StoreFullError):
            return bool(await store.add(A, name, bytes(1000), 60, 600, account))
        return False

    for name, account in zip("fgh", ["four", "five", "five"], strict=True):  # as the first three expire one by one
        await until(functools.partial(has_room, name, account))
    with contextlib.suppress(StoreFullError):
        await store.put(A, "i", bytes(1000), 60, 600, "five")
    assert await found(store, *"abcdefghi") == "defgh"


@pytest.mark.parametrize("medium", ["redis"], indirect=True)
async def test_in_redis_nothing_is_left_of_what_has_ended(medium, redis_url):
    from redis.asyncio import Redis

    store = medium.open()
    for name in "abc":
        await store.put(A, name, bytes(1000), 0.1, 0.2, name)
    async with Redis.from_url(redis_url) as raw:

        async def is_empty() -> bool:
            return not [key async for key in raw.scan_iter(match=f"{medium.prefix}*")]

        await until(is_empty)


@pytest.mark.parametrize("medium", ["redis"], indirect=True)
async def test_in_redis_what_an_older_version_stored_can_be_read_and_replaced(medium, redis_url):
    from redis.asyncio import Redis

    store = medium.open(QUOTAS)
    async with Redis.from_url(redis_url) as raw:
        await raw.set(medium.prefix + hash_key(A, "a"), b"%016d%016d" % (10**15, 60_000) + b"old", px=60_000)
    assert await store.get(A, "a") == b"old"
    assert not await store.add(A, "a", b"new", 60, 600, ACCOUNT)
    await store.put(A, "a", b"new", 60, 600, ACCOUNT)
    assert await store.get(A, "a") == b"new"


@pytest.mark.parametrize("medium", ["redis"], indirect=True)
async def test_in_redis_replicas_share_one_account(medium):
    replicas = [medium.open(QUOTAS), medium.open(QUOTAS)]
    await asyncio.gather(*(replicas[i % 2].put(A, str(i), bytes(1000), 60, 600, ACCOUNT) for i in range(40)))
    left = [i for i in range(40) if await replicas[0].get(A, str(i)) is not None]
    assert len(left) == 3


async def test_memory_keeps_the_very_object():
    store = MemoryStore()
    await store.put(A, "n", LARGE, 60, 600, ACCOUNT)
    assert await store.get(A, "n") is LARGE


async def test_memory_holds_nothing_of_what_it_has_forgotten():
    clock = Clock()
    store = MemoryStore(Quotas(10_000 + ENTRY_BYTES, 10_000 + ENTRY_BYTES), clock)
    for turn in range(1000):
        await store.put(A, "same", bytes(10), 60, 600, ACCOUNT)
        await store.put(A, str(turn), bytes(10), 60, 600, ACCOUNT)
        await store.put(A, "full", bytes(10_000), 60, 600, ACCOUNT)
    assert len(store._entries) == 1
    assert len(store._expiry_queue) < 100
    clock.now += 60
    assert await store.get(A, "anything") is None
    assert not store._entries and not store._accounts and not store._expiry_queue and store._total_bytes == 0


async def test_memory_deletes_what_has_expired_little_by_little():
    clock = Clock()
    store = MemoryStore(clock=clock)
    for turn in range(1000):
        await store.put(A, str(turn), b"", 60, 600, ACCOUNT)
    clock.now += 60
    assert await store.get(A, "999") is None
    assert len(store._entries) > 800
    assert await store.add(A, "999", b"", 60, 600, ACCOUNT)
    for _ in range(10):
        await store.get(A, "anything")
    assert len(store._entries) == 1


# Against a model

NAMES = st.sampled_from("pqrst")
OWNERS = st.sampled_from([A, B])
ACCOUNTS = st.sampled_from(["one", "two", "three"])
SIZES = st.sampled_from([0, 1, 300, 900, 1500, 4000, 9000, 12_000])
LIVES = st.integers(1, 60)


class KeptInModel(NamedTuple):
    data: bytes
    account: str
    seconds: float
    ends: float
    expires: float

    @property
    def size(self) -> int:
        return len(self.data) + ENTRY_BYTES


class Against(RuleBasedStateMachine):
    """Compares memory and SQLite with a dict in the order of reads, which serves as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.model: dict[tuple[str, str], KeptInModel] = {}
        self.directory = TemporaryDirectory()
        self.loop = asyncio.Runner()
        file = Path(self.directory.name) / "store.db"
        self.stores: list[SharedStore] = [MemoryStore(QUOTAS, self.clock), SqliteStore(file, QUOTAS, clock=self.clock)]
        self.count = 0

    def both(self, ask: Callable[[SharedStore], Awaitable[object]]) -> object:
        async def answer(store: SharedStore) -> object:
            try:
                return await ask(store)
            except StoreFullError as error:
                return str(error)

        one, other = (self.loop.run(answer(store)) for store in self.stores)
        assert one == other
        return one

    def expire(self) -> None:
        self.model = {key: kept for key, kept in self.model.items() if kept.expires > self.clock.now}

    def keep(self, key: tuple[str, str], data: bytes, seconds: float, longest: float, account: str) -> bool:
        now = self.clock.now
        new = KeptInModel(data, account, seconds, now + longest, now + min(seconds, longest))
        kept = {other: entry for other, entry in self.model.items() if other != key}
        own = [other for other, entry in kept.items() if entry.account == account]
        while own and sum(kept[other].size for other in own) + new.size > QUOTAS.per_account:
            del kept[own.pop(0)]
        fits = new.size <= QUOTAS.per_account and sum(entry.size for entry in kept.values()) + new.size <= QUOTAS.total
        if fits:
            self.model = {**kept, key: new}
        return fits

    def data(self, size: int) -> bytes:
        self.count += 1
        return (b"%d " % self.count * size)[:size]

    @rule(owner=OWNERS, name=NAMES, size=SIZES, seconds=LIVES, longest=LIVES, account=ACCOUNTS)
    def put(self, owner, name, size, seconds, longest, account):
        data = self.data(size)
        said = self.both(lambda store: store.put(owner, name, data, seconds, longest, account))
        self.expire()
        assert (said is None) is self.keep((owner, name), data, seconds, longest, account)

    @rule(owner=OWNERS, name=NAMES, size=SIZES, seconds=LIVES, longest=LIVES, account=ACCOUNTS)
    def add(self, owner, name, size, seconds, longest, account):
        data = self.data(size)
        self.expire()
        said = self.both(lambda store: store.add(owner, name, data, seconds, longest, account))
        if size + ENTRY_BYTES > QUOTAS.per_account:
            assert isinstance(said, str)
        elif (owner, name) in self.model:
            assert said is False
        else:
            assert (said is True) is self.keep((owner, name), data, seconds, longest, account)

    @rule(owner=OWNERS, name=NAMES, size=SIZES, seconds=LIVES, longest=LIVES, account=ACCOUNTS, knows=st.booleans())
    def replace(self, owner, name, size, seconds, longest, account, knows):
        data = self.data(size)
        self.expire()
        kept = self.model.get((owner, name))
        expected = kept.data if kept is not None and knows else b"other"
        said = self.both(lambda store: store.replace(owner, name, expected, data, seconds, longest, account))
        if size + ENTRY_BYTES > QUOTAS.per_account:
            assert isinstance(said, str)
        elif kept is None or not knows:
            assert said is False
        else:
            assert (said is True) is self.keep((owner, name), data, seconds, longest, account)

    @rule(owner=OWNERS, name=NAMES)
    def get(self, owner, name):
        self.expire()
        found = self.both(lambda store: store.get(owner, name))
        kept = self.model.pop((owner, name), None)
        if kept is None:
            assert found is None
        else:
            assert found == kept.data
            expires = min(kept.ends, self.clock.now + kept.seconds)
            self.model[owner, name] = kept._replace(expires=expires)

    @rule(seconds=st.integers(1, 40) | st.just(0.5))
    def wait(self, seconds):
        self.clock.now += seconds

    @rule()
    def restart(self):
        self.loop.run(self.stores[1].close())

    def teardown(self):
        for owner in (A, B):
            for name in "pqrst":
                self.get(owner, name)
        for store in self.stores:
            self.loop.run(store.close())
        self.loop.close()
        self.directory.cleanup()


TestAgainstAModel = Against.TestCase
TestAgainstAModel.settings = settings(max_examples=examples(60), stateful_step_count=40)

CALLS = st.lists(
    st.tuples(st.sampled_from(["put", "add", "replace", "get"]), OWNERS, NAMES, SIZES, ACCOUNTS), max_size=40
)


@settings(max_examples=examples(60), deadline=None)
@given(calls=CALLS)
def test_redis_does_what_memory_does(redis_url, calls):
    async def answer(store: SharedStore, call: tuple[str, str, str, int, str]) -> object:
        do, owner, name, size, account = call
        place = (owner, name, bytes(size), 60, 600, account)
        try:
            match do:
                case "put":
                    await store.put(*place)
                case "add":
                    return await store.add(*place)
                case "replace":
                    return await store.replace(owner, name, bytes(300), *place[2:])
                case _:
                    return await store.get(owner, name)
        except StoreFullError as error:
            return str(error)
        return None

    async def main() -> None:
        memory, redis = MemoryStore(QUOTAS), RedisStore(redis_url, QUOTAS, prefix=f"{uuid.uuid4()}:")
        everything = [("get", owner, name, 0, "") for owner in (A, B) for name in "pqrst"]
        for call in [*calls, *everything]:
            assert await answer(memory, call) == await answer(redis, call), call
        await redis.close()

    asyncio.run(main())


# Files

OTHER_PROCESS = """
import asyncio, sys
from deltamcp.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    assert await store.get("alice@example.org", "n") == b"put before"
    sys.stdin.readline()
    added = [await store.add("alice@example.org", str(i), b"child", 60, 600, "an account") for i in range(200)]
    await store.close()
    print(sum(added))

asyncio.run(main())
"""


async def test_processes_share_a_file(tmp_path):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.put(A, "n", b"put before", 60, 600, ACCOUNT)
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OTHER_PROCESS, str(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = [asyncio.ensure_future(child.communicate(b"go\n")) for child in children]
    added = [await store.add(A, str(i), b"parent", 60, 600, ACCOUNT) for i in range(200)]
    theirs = sum([int((await output)[0]) for output in outputs])
    assert sum(added) + theirs == 200
    for i in range(200):
        assert await store.get(A, str(i)) == (b"parent" if added[i] else b"child")
    await store.close()


async def test_a_file_outlives_its_store(tmp_path):
    for expected in (None, b"x"):
        store = SqliteStore(tmp_path / "store.db")
        assert await store.get(A, "n") == expected
        await store.put(A, "n", b"x", 60, 600, ACCOUNT)
        await store.close()


async def test_a_file_is_its_owners_alone_and_names_nobody(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    await store.put(A, "a-name-of-a-result", b"x", 60, 600, ACCOUNT)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert A.encode() not in file.read_bytes()
        assert b"a-name-of-a-result" not in file.read_bytes()
    await store.close()


async def test_a_file_that_others_could_read_is_made_its_owners_alone(tmp_path):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.put(A, "n", b"x", 60, 600, ACCOUNT)
    other = SqliteStore(path)
    files = [path, tmp_path / "store.db-wal", tmp_path / "store.db-shm"]
    for file in files:
        file.chmod(0o666)
    assert await other.get(A, "n") == b"x"
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    await other.close()
    await store.close()


async def test_a_file_that_is_a_link_of_its_owners_may_be_used(tmp_path):
    (tmp_path / "real.db").touch(0o644)
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    store = SqliteStore(tmp_path / "link.db")
    await store.put(A, "n", b"x", 60, 600, ACCOUNT)
    assert stat.S_IMODE((tmp_path / "real.db").stat().st_mode) == 0o600
    await store.close()


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.db-shm"])
async def test_a_file_of_another_user_is_refused_for_root_too(name, mode, tmp_path, monkeypatch):
    for file in ("store.db", name):
        (tmp_path / file).touch(0o600)
    (tmp_path / name).chmod(mode)
    if os.getuid() == 0:
        os.chown(tmp_path / name, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    store = SqliteStore(tmp_path / "store.db")
    with pytest.raises(StoreError, match=r"^The store at \S+ cannot be used: it is another user's\.$"):
        await store.get(A, "n")
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    await store.close()


@pytest.mark.parametrize("leads", ["to a file", "nowhere yet"])
async def test_a_link_of_another_user_is_refused(leads, tmp_path, monkeypatch):
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    if os.getuid() == 0:
        os.chown(tmp_path / "link.db", 12345, 12345, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if leads == "to a file":
        (tmp_path / "real.db").touch(0o600)
    store = SqliteStore(tmp_path / "link.db")
    with pytest.raises(StoreError, match="cannot be used: it is another user's link"):
        await store.get(A, "n")
    await store.close()
    assert (tmp_path / "real.db").exists() == (leads == "to a file")


async def test_where_a_link_of_the_user_leads_a_file_of_the_user_alone_is_made(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    store = SqliteStore(tmp_path / "link.db")
    before = os.umask(0o022)
    try:
        assert await store.get(A, "n") is None
    finally:
        os.umask(before)
    await store.close()
    assert stat.S_IMODE((tmp_path / "real.db").stat().st_mode) == 0o600


async def test_a_file_of_an_older_version_starts_over(tmp_path):
    path = tmp_path / "store.db"
    file = sqlite3.connect(path)
    file.executescript(
        "CREATE TABLE kept (id INTEGER PRIMARY KEY, key TEXT UNIQUE, size INTEGER, used INTEGER, seconds REAL,"
        " ends REAL, expires REAL); CREATE INDEX kept_used ON kept (used);"
        "CREATE TABLE data (id INTEGER PRIMARY KEY, bytes BLOB);"
        "CREATE TABLE total (id INTEGER PRIMARY KEY, bytes INTEGER); INSERT INTO total VALUES (1, 600);"
        "CREATE TRIGGER kept_more AFTER INSERT ON kept BEGIN UPDATE total SET bytes = bytes + new.size; END;"
        "INSERT INTO kept VALUES (1, 'key', 600, 1, 60, 9e9, 9e9); INSERT INTO data VALUES (1, x'00');"
    )
    file.close()
    stores = [SqliteStore(path) for _ in range(4)]
    added = await asyncio.gather(*(store.add(A, "n", b"x", 60, 600, ACCOUNT) for store in stores))
    assert added.count(True) == 1
    assert await stores[1].get(A, "n") == b"x"
    for store in stores:
        await store.close()


async def test_a_database_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "store.db"
    for tables in (["customers"], ["data"], ["kept", "data", "total", "customers"]):
        path.unlink(missing_ok=True)
        file = sqlite3.connect(path)
        for table in tables:
            file.execute(f"CREATE TABLE {table} (name TEXT)")
            file.execute(f"INSERT INTO {table} VALUES ('Ann')")
        file.commit()
        store = SqliteStore(path)
        with pytest.raises(
            StoreError, match=r"^The store at \S+ cannot be used: it is a database of something else\.$"
        ):
            await store.put(A, "n", b"x", 60, 600, ACCOUNT)
        await store.close()
        assert [file.execute(f"SELECT name FROM {table}").fetchall() for table in tables] == [[("Ann",)]] * len(tables)
        file.close()


async def test_a_file_grows_no_larger_than_its_bound_and_a_bit(tmp_path):
    clock = Clock()
    store = SqliteStore(tmp_path / "store.db", Quotas(4_000_000, 4_000_000), clock=clock)
    for turn in range(30):
        await store.put(A, str(turn), LARGE[:1_500_000], 60, 600, ACCOUNT)
        clock.now += 25 * (turn % 3)
    await store.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 8_000_000


async def test_what_has_expired_leaves_the_file_though_nothing_is_put(tmp_path):
    clock = Clock()
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    for i in range(10):
        await store.put(A, str(i), b"x", 5, 600, ACCOUNT)
    clock.now += 100
    assert await store.get(A, "other") is None
    await store.close()
    with sqlite3.connect(tmp_path / "store.db") as file:
        assert file.execute("SELECT (SELECT count(*) FROM kept), (SELECT count(*) FROM data)").fetchone() == (0, 0)
        assert file.execute("SELECT bytes FROM total").fetchone() == (0,)
        assert file.execute("SELECT count(*) FROM accounts").fetchone() == (0,)
    file.close()


def test_a_file_in_a_missing_directory_is_told_at_once(tmp_path):
    with pytest.raises(ConfigurationError, match=r"^The directory of the store at \S+ does not exist\.$"):
        open_store(f"sqlite:///{tmp_path}/missing/store.db", Limits())


async def test_a_file_of_something_else_is_told_and_replaced_in_good_time(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(b"something else " * 1000)
    store = SqliteStore(path)
    for call in (store.put(A, "n", b"x", 60, 600, ACCOUNT), store.get(A, "n")):
        with pytest.raises(StoreError, match=r"^The store at \S+ cannot be used: file is not a database\.$"):
            await call
    assert path.read_bytes() == b"something else " * 1000
    path.unlink()
    await store.put(A, "n", b"x", 60, 600, ACCOUNT)
    assert await store.get(A, "n") == b"x"
    await store.close()


async def test_a_damaged_file_is_told(tmp_path):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    for i in range(100):
        await store.put(A, str(i), bytes(2000), 60, 600, ACCOUNT)
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match=r"^The store at \S+ cannot be used: "):
        for i in range(100):
            await store.get(A, str(i))
    await store.close()


async def test_a_directory_is_no_file(tmp_path):
    store = SqliteStore(tmp_path)
    with pytest.raises(StoreError, match="cannot be used"):
        await store.get(A, "n")


# Redis


async def test_redis_out_of_reach_is_told_without_the_password():
    port = free_port()
    store = open_store(f"redis://user:s3cret@127.0.0.1:{port}/0", Limits())
    for call in (
        store.put(A, "n", b"x", 60, 600, ACCOUNT),
        store.add(A, "n", b"x", 60, 600, ACCOUNT),
        store.get(A, "n"),
    ):
        with pytest.raises(StoreError, match=rf"^The store at 127\.0\.0\.1:{port} cannot be reached\.$"):
            await call
    await store.close()


async def test_a_wrong_password_is_told_without_it(redis_url):
    store = open_store(redis_url.replace("//", "//nobody:s3cret@"), Limits())
    with pytest.raises(StoreError, match=r"^The store at \S+ does not accept the credentials given\.$"):
        await store.get(A, "n")
    await store.close()


async def test_a_full_redis_refuses(redis_url):
    from redis.asyncio import Redis

    store = open_store(redis_url, Limits())
    async with Redis.from_url(redis_url) as raw:
        await raw.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreError, match=r"^The store at \S+ refused: .*maxmemory'?\.$"):
                await store.put(A, "n", b"x", 60, 600, ACCOUNT)
        finally:
            await raw.config_set("maxmemory", "0")
    await store.close()


async def test_a_redis_that_forbids_what_reading_needs_is_told_in_one_line(redis_url):
    from redis.asyncio import Redis

    async with Redis.from_url(redis_url) as raw:
        await raw.execute_command("ACL", "SETUSER", "weak", "on", ">s3cret", "~*", "+@all", "-@scripting")
    store = open_store(redis_url.replace("//", "//weak:s3cret@"), Limits())
    with pytest.raises(StoreError, match=r"^The store at \S+ refused: [^\n]*'eval'[^\n]*\.$") as caught:
        await store.get(A, "n")
    assert "local head" not in str(caught.value)
    await store.close()


async def test_a_redis_that_went_and_came_back_is_found_again(tmp_path):
    port = free_port()
    store = RedisStore(f"redis://127.0.0.1:{port}/0")
    with redis_server(port, tmp_path):
        await asyncio.gather(*(store.put(A, str(i), b"x", 60, 600, ACCOUNT) for i in range(10)))
    with pytest.raises(StoreError):
        await store.get(A, "1")
    with redis_server(port, tmp_path):
        assert await asyncio.gather(*(store.get(A, str(i)) for i in range(10))) == [None] * 10
        await store.put(A, "n", b"y", 60, 600, ACCOUNT)
        assert await store.get(A, "n") == b"y"
    await store.close()


async def test_connections_that_lay_idle_while_redis_restarted_do_no_harm(tmp_path):
    port = free_port()
    store = RedisStore(f"redis://127.0.0.1:{port}/0")
    with redis_server(port, tmp_path):
        await asyncio.gather(*(store.put(A, str(i), b"x", 60, 600, ACCOUNT) for i in range(10)))
    with redis_server(port, tmp_path):
        for _ in range(5):
            await asyncio.sleep(0)  # a loop that runs has seen them close
        await store.put(A, "n", b"y", 60, 600, ACCOUNT)
        assert await store.get(A, "n") == b"y"
    await store.close()


# Names of stores


async def test_each_kind_of_store_has_its_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory://", Limits()), MemoryStore)
    for url in ("redis://localhost:6379/0", "rediss://localhost"):
        guarded = open_store(url, Limits())
        assert isinstance(guarded, CircuitBreaker) and isinstance(guarded._store, RedisStore)
    for url, path in (("sqlite:///here.db", "here.db"), (f"sqlite:///{tmp_path}/there.db", "there.db")):
        store = open_store(url, Limits())
        await store.put(A, "n", b"x", 60, 600, ACCOUNT)
        await store.close()
        assert (tmp_path / path).exists()
    await (store := open_store("sqlite:///:memory:", Limits())).put(A, "n", b"x", 60, 600, ACCOUNT)
    await store.close()
    assert await store.get(A, "n") == b"x"
    await store.close()


@pytest.mark.parametrize(
    "url",
    ["", "memory", "memory://x", "sqlite://", "sqlite:///", "sqlite://host/x", "s3cret", "postgres://u:s3cret@h/"],
)
def test_any_other_url_is_told_what_is_possible(url):
    with pytest.raises(ConfigurationError, match=r'^A store is "memory://", "sqlite:///path", .*\.$') as caught:
        open_store(url, Limits())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://u:s3cret@h:port/0", "redis://u:s3cret@[h/0", "redis://:s3cret/@h:1:2/0", "redis://h?option=s3cret"]
)
def test_a_redis_url_that_is_none_is_told_without_its_password(url):
    with pytest.raises(ConfigurationError, match=r"^The url of a store in Redis must read \S+\.$") as caught:
        open_store(url, Limits())
    assert caught.value.__cause__ is None


def test_stores_that_are_not_used_are_not_loaded():
    script = (
        "import sys, deltamcp.stores.store, deltamcp.stores.store, deltamcp.stores.redis\n"
        "deltamcp.stores.store.open_store('memory://', deltamcp.limits.Limits())\n"
        "assert not {'sqlite3', 'redis'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_expired_entries_in_memory_go_without_a_call(monkeypatch):
    monkeypatch.setattr("deltamcp.stores.store._SWEEP_SECONDS", 0.01)
    store = MemoryStore()
    await store.put("ann", "x", b"data", 0.01, 0.01, "ann")
    await wait_until(lambda: not store._entries)
    assert store._sweep_timer is None and not store._accounts
