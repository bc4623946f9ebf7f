"""The circuit breaker: a store that does not answer delays the callers who find that out, and nobody after them."""

import asyncio
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer, Limits, ResultPolicy
from deltamcp.stores.circuit_breaker import CircuitBreaker
from deltamcp.stores.redis import RedisStore
from deltamcp.stores.sqlite import SqliteStore
from deltamcp.stores.store import MemoryStore, Store, StoreError, StoreFullError, StoreUnreachableError
from tests.support.conditions import wait_until
from tests.support.office_server import KEY, ROWS, call, result_text
from tests.support.processes import free_port
from tests.support.raw_client import raw_client
from tests.support.redis_server import redis_server

SOON = 0.02
"""A deadline that a store in memory keeps, as it does not wait."""


class HangingStore(MemoryStore):
    """A store that can be made to hang; it counts the calls that reach it, and the probes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.reached = self.probes = self.probes_at_once = self.most_probes_at_once = 0
        self.does_late = False

    async def add(self, owner: str, name: str, *rest: Any) -> bool:
        self.reached += 1
        if self.does_late:
            await super().add(owner, name, *rest)
        await self.goes_on.wait()
        return await super().add(owner, name, *rest)

    async def get(self, owner: str, name: str) -> bytes | None:
        if owner != "probe":
            self.reached += 1
            await self.goes_on.wait()
            return await super().get(owner, name)
        self.probes += 1
        self.probes_at_once += 1
        self.most_probes_at_once = max(self.most_probes_at_once, self.probes_at_once)
        try:
            await self.goes_on.wait()
        finally:
            self.probes_at_once -= 1
        return None


async def fail(store: Store, *numbers: int) -> None:
    """Makes calls at once, all of which must fail because the store does not answer."""
    calls = [store.add("owner", str(number), b"x", 60, 600, "account") for number in numbers]
    for error in await asyncio.gather(*calls, store.get("owner", "x"), return_exceptions=True):
        assert isinstance(error, StoreUnreachableError), error


async def answers(store: Store) -> None:
    async def does() -> None:
        while True:
            try:
                await store.get("owner", "x")
                return
            except StoreUnreachableError:
                await asyncio.sleep(0.01)

    async with asyncio.timeout(60):
        await does()


async def test_after_the_first_callers_nobody_reaches_a_store_that_hangs():
    slow = HangingStore()
    store = CircuitBreaker(slow, SOON, retry_seconds=0.001)
    assert await store.add("owner", "before", b"x", 60, 600, "account")
    slow.goes_on.clear()
    await fail(store, *range(5))
    reached = slow.reached
    assert reached == 7
    for number in range(100):
        await fail(store, number)
    assert slow.reached == reached
    await wait_until(lambda: slow.probes >= 3)
    assert slow.most_probes_at_once == 1
    slow.goes_on.set()
    await answers(store)
    assert await store.get("owner", "before") == b"x"
    assert await store.add("owner", "after", b"x", 60, 600, "account")
    assert slow.probes_at_once == 0


async def test_each_outage_is_found_and_logged_once(caplog):
    slow = HangingStore()
    store = CircuitBreaker(slow, SOON, retry_seconds=0.001)
    for _ in range(2):
        slow.goes_on.clear()
        for number in range(20):
            await fail(store, number)
        slow.goes_on.set()
        await answers(store)
    assert [record.getMessage() for record in caplog.records] == [
        "nothing is stored until the store answers again: The store did not answer within 0.02 s.",
        "the store answers again",
    ] * 2


async def test_probes_come_less_and_less_often(monkeypatch):
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    slow = HangingStore()
    store = CircuitBreaker(slow, SOON, retry_seconds=1)
    slow.goes_on.clear()
    monkeypatch.setattr("deltamcp.stores.circuit_breaker.asyncio.sleep", pause)
    await fail(store, 1)
    while len(pauses) < 7:
        await sleep(0.005)
    await store.close()
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize("error", [StoreError("refused"), StoreFullError("full")])
async def test_a_store_that_refuses_has_answered(error, monkeypatch):
    inner = HangingStore()
    store = CircuitBreaker(inner, SOON)

    async def refuse(*place: Any) -> None:
        raise error

    monkeypatch.setattr(inner, "put", refuse)
    for _ in range(3):
        with pytest.raises(type(error)):
            await store.put("owner", "name", b"x", 60, 600, "account")
        assert await store.get("owner", "name") is None
    assert inner.probes == 0


async def test_a_caller_that_leaves_says_nothing_of_the_store():
    slow = HangingStore()
    store = CircuitBreaker(slow, 60)
    slow.goes_on.clear()
    call = asyncio.ensure_future(store.get("owner", "name"))
    await wait_until(lambda: slow.reached == 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    slow.goes_on.set()
    assert await store.get("owner", "name") is None and slow.probes == 0


async def test_a_deadline_leaves_time_for_the_data(monkeypatch):
    deadlines: list[float] = []
    timeout = asyncio.timeout

    def note(seconds: float) -> asyncio.Timeout:
        deadlines.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr("deltamcp.stores.circuit_breaker.asyncio.timeout", note)
    store = CircuitBreaker(HangingStore(), 60)
    await store.put("owner", "name", bytes(1024), 60, 600, "account")
    await store.add("owner", "large", bytes(48 * 1024 * 1024), 60, 600, "account")
    await store.get("owner", "large")
    assert [round(seconds, 3) for seconds in deadlines] == [60, 61.5, 60]


async def test_closing_does_not_wait_for_a_store_that_hangs():
    class Endless(HangingStore):
        async def close(self) -> None:
            await asyncio.Event().wait()

    slow = Endless()
    store = CircuitBreaker(slow, SOON, retry_seconds=0.001)
    slow.goes_on.clear()
    await fail(store, 1)
    await store.close()
    slow.goes_on.set()
    assert await store.get("owner", "name") is None, "and the circuit is closed again"


# Real stores


async def test_a_redis_that_stands_still(tmp_path, monkeypatch):
    port = free_port()
    with redis_server(port, tmp_path) as process:
        patient = RedisStore(f"redis://127.0.0.1:{port}/0")
        await patient.put("owner", "before", b"x", 60, 600, "account")
        slow = RedisStore(f"redis://127.0.0.1:{port}/0", connect_seconds=0.2)
        store = CircuitBreaker(slow, 0.2, retry_seconds=0.01)
        process.send_signal(signal.SIGSTOP)
        try:
            await fail(store, *range(40))  # more than it has connections
            reached = count_calls(slow, monkeypatch)
            for number in range(50):
                await fail(store, number)
            assert not reached
        finally:
            process.send_signal(signal.SIGCONT)
        await answers(store)
        assert await patient.get("owner", "before") == b"x"
        # What the first callers asked for has happened meanwhile or not, but it is whole.
        for number in range(40):
            assert await patient.get("owner", str(number)) in (None, b"x")
        await store.close()
        await patient.close()


async def test_a_locked_file(tmp_path, monkeypatch):
    path: Path = tmp_path / "store.db"
    slow = SqliteStore(path, busy_seconds=0.05)
    store = CircuitBreaker(slow, 0.1, retry_seconds=0.01)
    await slow.put("owner", "before", b"x", 60, 600, "account")
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    tried = 0
    run = slow._run_in_thread

    def count(work: Any) -> Any:
        nonlocal tried
        tried += 1
        return run(work)

    monkeypatch.setattr(slow, "_run_in_thread", count)
    await fail(store, *range(40))
    assert tried < 40, "those that wait for the first one leave at their own deadline"
    reached = count_calls(slow, monkeypatch)
    for number in range(50):
        await fail(store, number)
    assert not reached
    lock.close()
    await answers(store)
    assert await slow.get("owner", "before") == b"x"
    assert await slow.add("owner", "after", b"x", 60, 600, "account")
    await store.close()


def count_calls(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the list to which the names of the callers' calls of a store are added from now on."""
    calls: list[str] = []

    def counted(name: str, function: Any) -> Any:
        def count(owner: str, *rest: Any) -> Any:
            if owner != "probe":
                calls.append(name)
            return function(owner, *rest)

        return count

    for name in ("put", "add", "get"):
        monkeypatch.setattr(store, name, counted(name, getattr(store, name)))
    return calls


# What callers are told


def slow_office() -> tuple[Any, HangingStore]:
    slow = HangingStore()
    server: Any = DeltaServer(
        "office", results=ResultPolicy(max_tokens=300), store=slow, limits=Limits(store_seconds=SOON)
    )
    server.tool(name="rows")(lambda: ROWS)
    server.tool(name="take")(lambda v: str(v))
    return server, slow


async def test_callers_are_told_what_could_not_be_stored_and_that_they_may_try_again():
    server, slow = slow_office()
    async with raw_client(server) as raw:
        handle = (await call(raw, "rows"))["_meta"][KEY]["handle"]
        slow.goes_on.clear()
        for _ in range(3):
            result = await call(raw, "rows")
            assert "The rest could not be stored; call again with narrower arguments." in result_text(result)
            assert "continue" not in result_text(result) and not result.get("isError")
            assert result["_meta"][KEY]["rest"] == "not stored" and "handle" not in result["_meta"][KEY]
            for tool, arguments in (("continue", {"handle": handle}), ("take", {"v": {"$result": handle}})):
                refused = await call(raw, tool, **arguments)
                assert refused["isError"]
                assert "stored results cannot be reached now; try again in a few seconds." in result_text(refused)
            read = await raw.modern("resources/read", uri=f"office://results/{handle}")
            assert "stored results cannot be reached now" in read["error"]["message"]
        assert slow.reached == 2, "one call found out"
        slow.goes_on.set()
        await answers(server._store)
        assert "next: offset" in result_text(await call(raw, "continue", handle=handle))


async def test_what_was_stored_after_its_deadline_is_neither_lost_nor_in_the_way():
    server, slow = slow_office()
    async with raw_client(server) as raw, raw_client(server) as other:
        policy = {"deltas": True}
        slow.goes_on.clear()
        slow.does_late = True
        told = await call(raw, "rows", policy)
        assert "could not be stored" in result_text(told) and "handle" not in told["_meta"][KEY]
        assert len(slow._entries) == 1
        slow.does_late = False
        slow.goes_on.set()
        await answers(server._store)
        again = await call(raw, "rows", policy)
        assert again["_meta"][KEY]["outcome"] == "full", "this caller was told that the first one was not stored"
        handle = again["_meta"][KEY]["handle"]
        assert len(slow._entries) == 1, "it is the same result, under the same name"
        assert "next: offset" in result_text(await call(raw, "continue", handle=handle))
        first = await call(other, "rows", policy)
        assert first["_meta"][KEY]["outcome"] == "full"
