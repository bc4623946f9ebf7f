"""Shared stores: what replicas share beside stored data, in memory, SQLite and Redis."""

import asyncio
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp.stores.circuit_breaker import CircuitBreaker
from deltamcp.stores.redis import RedisStore
from deltamcp.stores.sqlite import SqliteStore
from deltamcp.stores.store import (
    DEFAULT_QUOTAS,
    ENTRY_BYTES,
    MemoryStore,
    Quotas,
    SharedStore,
    StoreError,
    StoreFullError,
    TokenBuckets,
    take_token,
)
from tests.support.processes import free_port
from tests.support.properties import examples
from tests.support.redis_server import redis_server
from tests.support.store_medium import Clock, until

A, B = "alice@example.org", "bob@example.org"
ACCOUNT = "an account"


# Deleting


async def test_what_was_deleted_is_gone_for_every_replica(medium):
    one, other = medium.open(), medium.open()
    await one.put(A, "n", b"x", 60, 600, ACCOUNT)
    await one.put(B, "n", b"y", 60, 600, ACCOUNT)
    await other.delete(A, "n")
    await other.delete(A, "n")
    assert await one.get(A, "n") is None
    assert await one.get(B, "n") == b"y"
    assert await one.add(A, "n", b"z", 60, 600, ACCOUNT)


async def test_what_was_deleted_counts_no_more(medium):
    store = medium.open(Quotas(2 * ENTRY_BYTES, 2 * ENTRY_BYTES))
    for turn in range(20):
        await store.put(A, str(turn), b"", 60, 600, str(turn))
        await store.delete(A, str(turn))
    await store.put(A, "a", b"", 60, 600, ACCOUNT)
    await store.put(A, "b", b"", 60, 600, ACCOUNT)
    assert await store.get(A, "a") == await store.get(A, "b") == b""


# Replacing


async def test_only_what_was_expected_is_replaced(medium):
    one, other = medium.open(), medium.open()
    assert not await one.replace(A, "n", b"", b"x", 60, 600, ACCOUNT), "nothing is not the same as empty"
    await one.put(A, "n", b"", 60, 600, ACCOUNT)
    assert not await other.replace(A, "n", b"x", b"y", 60, 600, ACCOUNT)
    assert await other.replace(A, "n", b"", b"\0x", 60, 600, ACCOUNT)
    assert not await one.replace(A, "n", b"", b"y", 60, 600, ACCOUNT)
    assert not await one.replace(B, "n", b"\0x", b"y", 60, 600, ACCOUNT)
    assert await one.get(A, "n") == b"\0x"


async def test_of_many_that_expect_the_same_one_replaces_it(medium):
    replicas = [medium.open(), medium.open()]
    await replicas[0].put(A, "n", b"first", 60, 600, ACCOUNT)
    calls = (replicas[i % 2].replace(A, "n", b"first", b"%d" % i, 60, 600, ACCOUNT) for i in range(50))
    replaced = await asyncio.gather(*calls)
    assert replaced.count(True) == 1
    assert await replicas[0].get(A, "n") == b"%d" % replaced.index(True)


async def count_up(store: SharedStore) -> None:
    while True:
        found = await store.get(A, "count")
        assert found is not None
        if await store.replace(A, "count", found, b"%d" % (int(found) + 1), 60, 600, ACCOUNT):
            return


async def test_counting_by_replacing_loses_nothing(medium):
    replicas = [medium.open(), medium.open()]
    await replicas[0].put(A, "count", b"0", 60, 600, ACCOUNT)
    await asyncio.gather(*(count_up(replicas[i % 2]) for i in range(40)))
    assert await replicas[1].get(A, "count") == b"40"


@pytest.mark.parametrize("medium", ["memory", "sqlite"], indirect=True)
async def test_what_has_expired_is_not_replaced_and_what_was_replaced_lives_anew(medium):
    store = medium.open()
    await store.put(A, "n", b"x", 60, 60, ACCOUNT)
    medium.clock.now += 40
    assert await store.replace(A, "n", b"x", b"y", 60, 60, ACCOUNT)
    medium.clock.now += 40
    assert await store.get(A, "n") == b"y"
    medium.clock.now += 40
    assert not await store.replace(A, "n", b"y", b"z", 60, 60, ACCOUNT)


async def test_what_does_not_fit_replaces_nothing(medium):
    store = medium.open(Quotas(3 * ENTRY_BYTES, 3 * ENTRY_BYTES))
    await store.put(A, "n", b"x", 60, 600, ACCOUNT)
    await store.put(B, "n", bytes(ENTRY_BYTES - 1), 60, 600, "another account")
    with pytest.raises(StoreFullError):
        await store.replace(A, "n", b"x", bytes(ENTRY_BYTES), 60, 600, ACCOUNT)
    assert await store.get(A, "n") == b"x"


# Token buckets


async def test_a_bucket_has_its_tokens_and_says_when_the_next_comes(medium):
    store = medium.open()
    assert [await store.take_token("b", 0.001, 3) for _ in range(3)] == [0, 0, 0]
    seconds = await store.take_token("b", 0.001, 3)
    assert 900 < seconds <= 1000
    assert await store.take_token("another", 0.001, 3) == 0


@pytest.mark.parametrize("medium", ["memory", "sqlite"], indirect=True)
async def test_a_bucket_is_refilled_and_no_further_than_full(medium):
    store = medium.open()
    for _ in range(3):
        await store.take_token("b", 0.5, 3)
    assert await store.take_token("b", 0.5, 3) == pytest.approx(2)
    medium.clock.now += 2
    assert await store.take_token("b", 0.5, 3) == 0
    assert await store.take_token("b", 0.5, 3) == pytest.approx(2)
    medium.clock.now += 1000
    assert [await store.take_token("b", 0.5, 3) for _ in range(4)] == [0, 0, 0, pytest.approx(2)]


async def test_who_waits_as_long_as_it_is_told_gets_a_token(medium):
    store = medium.open()
    for rate in (3.0, 7.0, 90.0):
        bucket = f"bucket {rate}"
        seconds = 0.0
        while seconds == 0:  # a busy machine may take so long that there is another
            seconds = await store.take_token(bucket, rate, 1)
        medium.clock.now += seconds
        await asyncio.sleep(seconds + 0.001)
        assert await store.take_token(bucket, rate, 1) == 0


async def test_of_many_at_once_as_many_get_a_token_as_there_are(medium):
    replicas = [medium.open(), medium.open()]
    took = await asyncio.gather(*(replicas[i % 2].take_token("b", 0.0001, 7) for i in range(60)))
    assert took.count(0) == 7


@pytest.mark.parametrize("medium", ["redis"], indirect=True)
async def test_in_redis_a_bucket_is_forgotten_once_it_is_full(medium, redis_url):
    from redis.asyncio import Redis

    store = medium.open()
    await store.take_token("b", 0.0001, 5)
    async with Redis.from_url(redis_url) as raw:
        [key] = [key async for key in raw.scan_iter(match=f"{medium.prefix}*")]
        assert 9_000 < await raw.ttl(key) <= 10_001


async def test_in_a_file_buckets_are_forgotten_once_they_are_full(tmp_path):
    clock = Clock()
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    for number in range(10):
        await store.take_token(str(number), 1, 5)
    clock.now += 61
    await store.take_token("another", 1, 5)
    count = await store._run(lambda file: file.execute("SELECT count(*) FROM buckets").fetchone()[0])
    assert count == 1
    await store.close()


def test_in_memory_buckets_are_forgotten_once_they_are_full():
    clock = Clock()
    buckets = TokenBuckets(clock)
    for number in range(1000):
        buckets.take(f"slow {number}", 0.001, 5)
    for number in range(20_000):
        clock.now += 0.01
        buckets.take(f"{number}", 10, 5)
    assert 1000 <= len(buckets) < 2200, "at most as many again as are in use"


RATES = st.floats(0.01, 1000)
BURSTS = st.integers(1, 50)
STEPS = st.lists(st.floats(0, 100) | st.just(0.0), max_size=80)


@settings(max_examples=examples(300))
@given(rate=RATES, burst=BURSTS, steps=STEPS)
def test_no_span_of_time_has_more_tokens_than_the_law_allows(rate, burst, steps):
    full_at, now, taken = 0.0, 1e9, []
    for step in steps:
        now += step / rate
        for _ in range(3):
            full_at, seconds = take_token(full_at, now, rate, burst)
            assert seconds >= 0
            if not seconds:
                taken.append(now)
            else:
                assert take_token(full_at, now + seconds, rate, burst)[1] == 0, "the wait it tells is long enough"
    for first, last in itertools.combinations(range(len(taken)), 2):
        span = taken[last] - taken[first]
        assert last - first + 1 <= burst + rate * (span + 2e-6) + 1e-6


@settings(max_examples=examples(40), deadline=None)
@given(burst=BURSTS, asks=st.integers(1, 120), rate=st.floats(0.0001, 0.001))
def test_a_burst_is_as_long_as_it_may_be_in_every_store(redis_url, tmp_path_factory, burst, asks, rate):
    async def main() -> None:
        path = tmp_path_factory.mktemp("buckets") / "store.db"
        stores: list[SharedStore] = [MemoryStore(), SqliteStore(path), RedisStore(redis_url, prefix=f"{uuid.uuid4()}:")]
        for store in stores:
            took = [await store.take_token("b", rate, burst) for _ in range(asks)]
            assert took.count(0) == min(asks, burst)
            await store.close()

    asyncio.run(main())


TAKER = """
import asyncio, sys
from deltamcp.limits import Limits
from deltamcp.stores.store import open_store

async def main():
    store = open_store(sys.argv[1], Limits(store_seconds=30))
    await store.get("a", "b")
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum([await store.take_token("shared", 0.0001, 100) == 0 for _ in range(90)]))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_processes_share_a_bucket(kind, tmp_path, request):
    url = request.getfixturevalue("redis_url") if kind == "redis" else f"sqlite:///{tmp_path}/store.db"
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", TAKER, url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None and await child.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
    assert sum(int(output) for output, _ in outputs) == 100


# Messages


class Heard:
    """A subscriber that collects what it hears."""

    def __init__(self, store: SharedStore, channel: str = "c") -> None:
        self.all: list[bytes | None] = []
        self._task = asyncio.ensure_future(self._listen(store, channel))

    async def _listen(self, store: SharedStore, channel: str) -> None:
        async with contextlib.aclosing(store.subscribe(channel)) as messages:
            async for message in messages:
                self.all.append(message)

    async def has(self, *expected: bytes | None) -> None:
        async def is_so() -> bool:
            if self._task.done():
                self._task.result()
            return self.all == list(expected)

        try:
            await until(is_so)
        except AssertionError:
            raise AssertionError(f"heard {self.all}, not {expected}") from None

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def hearing(*stores: SharedStore, channel: str = "c") -> AsyncIterator[list[Heard]]:
    heard = [Heard(store, channel) for store in stores]
    for one in heard:
        await one.has(None)
    yield heard
    for one in heard:
        await one.stop()


async def test_all_that_subscribe_hear_every_message_in_order(medium):
    one, other = medium.open(), medium.open()
    await one.publish("c", b"before")
    async with hearing(one, other, other) as heard:
        for store, message in ((one, b"1"), (other, b"\0\xff"), (one, b""), (other, b"3" * 10_000)):
            await store.publish("c", message)
        for subscriber in heard:
            await subscriber.has(None, b"1", b"\0\xff", b"", b"3" * 10_000)


async def test_channels_do_not_mix(medium):
    store = medium.open()
    async with hearing(store) as heard, hearing(store, channel="another") as others:
        await store.publish("c", b"1")
        await store.publish("another", b"2")
        await store.publish("c", b"3")
        await heard[0].has(None, b"1", b"3")
        await others[0].has(None, b"2")


async def test_after_the_last_subscriber_nothing_is_left(medium):
    store = medium.open()
    for _ in range(5):
        async with hearing(store) as heard:
            await store.publish("c", b"x")
            await heard[0].has(None, b"x")
    if isinstance(store, MemoryStore):
        assert not store._subscribers


@pytest.mark.parametrize("medium", ["redis"], indirect=True)
async def test_in_redis_databases_and_prefixes_do_not_mix(medium, redis_url):
    one, other = medium.open(), RedisStore(redis_url.replace("/0", "/1"), prefix=medium.prefix)
    third = RedisStore(redis_url, prefix="another:")
    async with hearing(one, other, third) as heard:
        for store, message in ((third, b"3"), (other, b"2"), (one, b"1")):
            await store.publish("c", message)
        for subscriber, message in zip(heard, (b"1", b"2", b"3"), strict=True):
            await subscriber.has(None, message)
    await other.close()
    await third.close()


async def test_a_slow_subscriber_in_memory_is_told_that_it_missed_messages(monkeypatch):
    monkeypatch.setattr("deltamcp.stores.store._MAX_UNREAD", 3)
    store = MemoryStore()
    async with contextlib.aclosing(store.subscribe("c")) as messages:
        assert await anext(messages) is None
        for number in range(6):
            await store.publish("c", b"%d" % number)
        assert [await anext(messages) for _ in range(4)] == [b"0", b"1", b"2", None]
        await store.publish("c", b"6")
        assert await anext(messages) == b"6"


async def test_a_file_tells_a_subscriber_that_looked_too_late(tmp_path):
    clock = Clock()
    store, other = (SqliteStore(tmp_path / "store.db", clock=clock) for _ in range(2))
    async with contextlib.aclosing(store.subscribe("c")) as messages:
        assert await anext(messages) is None
        await other.publish("c", b"1")
        assert await anext(messages) == b"1"
        for message in (b"2", b"3"):
            await other.publish("c", message)
        clock.now += 100
        await other.publish("c", b"4")
        assert [await anext(messages) for _ in range(2)] == [None, b"4"]
        clock.now += 100
        await other.publish("elsewhere", b"5")
        await other.publish("c", b"6")
        assert await anext(messages) == b"6", "what was deleted had been heard"
    await store.close()
    await other.close()


async def test_a_file_holds_a_bounded_number_of_messages(tmp_path, monkeypatch):
    monkeypatch.setattr("deltamcp.stores.sqlite._MAX_KEPT", 5)
    store = SqliteStore(tmp_path / "store.db")
    for number in range(20):
        await store.publish("c", b"%d" % number)
    count = await store._run(lambda file: file.execute("SELECT count(*) FROM messages").fetchone()[0])
    assert count == 5
    await store.close()


SPEAKER = """
import asyncio, json, sys
from deltamcp.limits import Limits
from deltamcp.stores.store import open_store

async def main():
    store = open_store(sys.argv[1], Limits(store_seconds=30))
    heard, published = [], None
    async for message in store.subscribe("c"):
        if message is None:
            print("ready", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            for number in range(50):
                await store.publish("c", f"{sys.argv[2]} {number}".encode())
            continue
        heard.append(message.decode())
        if len(heard) == 150:
            break
    print(json.dumps(heard))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_processes_hear_each_other_in_one_order(kind, tmp_path, request):
    url = request.getfixturevalue("redis_url") if kind == "redis" else f"sqlite:///{tmp_path}/store.db"
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", SPEAKER, url, name, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name in "abc"
    ]
    for child in children:
        assert child.stdout is not None and await child.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
    heard = [json.loads(output) for output, _ in outputs]
    assert heard[0] == heard[1] == heard[2]
    for name in "abc":
        assert [text for text in heard[0] if text.startswith(name)] == [f"{name} {number}" for number in range(50)]


# Behind the circuit breaker


async def test_a_subscriber_learns_of_each_gap_and_hears_what_comes_after(tmp_path, caplog):
    port = free_port()
    store = CircuitBreaker(RedisStore(f"redis://127.0.0.1:{port}/0"), 1.0, retry_seconds=0.01)
    heard = Heard(store)
    expected: list[bytes | None] = []
    for turn in range(3):
        with redis_server(port, tmp_path):
            expected.append(None)
            await heard.has(*expected)
            while True:
                with contextlib.suppress(StoreError):
                    await store.publish("c", b"%d" % turn)
                    break
                await asyncio.sleep(0.01)
            expected.append(b"%d" % turn)
            await heard.has(*expected)
    warnings = [record for record in caplog.records if "nothing is heard of other replicas" in record.getMessage()]
    assert 2 <= len(warnings) <= 4, "one for each time that Redis was away"
    await heard.stop()
    await store.close()


async def test_a_redis_that_says_nothing_at_all_is_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr("deltamcp.stores.redis._SILENCE_SECONDS", 0.5)
    port = free_port()
    store = CircuitBreaker(RedisStore(f"redis://127.0.0.1:{port}/0", connect_seconds=0.2), 1.0, retry_seconds=0.01)
    with redis_server(port, tmp_path) as process:
        heard = Heard(store)
        await heard.has(None)
        await asyncio.sleep(1.2)
        assert heard.all == [None], "a ping is answered"
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.2)
        process.send_signal(signal.SIGCONT)
        await heard.has(None, None)
        await heard.stop()
        await store.close()


async def test_a_store_that_only_stores_is_not_shared_and_is_counted_and_replaced_here():
    class Plain:
        private = False
        data = b""

        async def get(self, owner: str, name: str) -> bytes | None:
            return self.data

        async def put(self, owner: str, name: str, data: bytes, seconds: float, *rest: Any) -> None:
            await asyncio.sleep(0)
            self.data, self.seconds = data, seconds

    plain: Any = Plain()
    store = CircuitBreaker(plain, 1.0)
    assert not store.shared
    await store.put(A, "count", b"0", 60, 600, ACCOUNT)
    await asyncio.gather(*(count_up(store) for _ in range(20)))
    assert await store.get(A, "count") == b"20"
    assert not await store.replace(A, "count", b"19", b"x", 60, 600, ACCOUNT)
    await store.delete(A, "count")
    assert plain.data == b"" and plain.seconds < 0.1, "what cannot be deleted expires"
    assert [await store.take_token("b", 0.001, 2) == 0 for _ in range(3)] == [True, True, False]


def test_stores_say_whether_other_processes_reach_them(tmp_path):
    assert not MemoryStore().shared
    assert CircuitBreaker(SqliteStore(tmp_path / "store.db", DEFAULT_QUOTAS), 1.0).shared
    assert CircuitBreaker(RedisStore("redis://127.0.0.1:1/0"), 1.0).shared
