"""Results that outlive the process: sealed, for an hour, for one user, one identity; safe for several processes."""

import asyncio
import itertools
import os
import secrets
import sqlite3
from pathlib import Path

import pytest

from deltamcp.delivery.stored_results import KEPT_SECONDS, UNSCOPED, KeptResults, ResultRoot, StoredResults
from deltamcp.errors import UsageError
from deltamcp.limits import Limits
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.shown_result import StoredHeader
from deltamcp.runtime import files
from deltamcp.stores.store import MemoryStore, StoreError
from deltamcp.values import ANONYMOUS_CALLER, LOCAL, Caller
from deltamcp.work import Work
from tests.support.conditions import advance_clock, wait_until

USER = Caller(LOCAL, conversation="conversation")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for purpose in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def make_stored(kept: KeptResults | None) -> StoredResults:
    stored = StoredResults(MemoryStore(), Limits(), "server", "server", "continue")
    stored.keep(kept, "")
    return stored


async def store(stored: StoredResults, text: str, caller: Caller = USER, root: str | None = None) -> str:
    head = StoredHeader("text", None, ResolvedPolicy(), root or "", is_part=True)
    handle = await stored.store(head, text, caller, UNSCOPED, None if root is None else ResultRoot(root, "call"))
    assert handle is not None
    return handle.name


async def text_of(stored: StoredResults, name: str) -> str:
    return str((await stored.open(name, USER)).parts(Work(10**6)).at(""))


async def test_a_later_process_opens_what_an_earlier_one_stored():
    first, second = KeptResults(b"x", Limits()), KeptResults(b"x", Limits())
    name = await store(make_stored(first), "the rows")
    await first.close()
    assert await text_of(make_stored(second), name) == "the rows"
    await second.close()


async def test_what_others_than_the_local_user_store_is_not_kept():
    kept = KeptResults(b"x", Limits())
    name = await store(make_stored(kept), "the rows", ANONYMOUS_CALLER)
    assert await kept.get(name) is None
    own = await store(make_stored(kept), "the rows")
    with pytest.raises(UsageError):
        await make_stored(kept).open(own, ANONYMOUS_CALLER)
    await kept.close()


async def test_another_identity_finds_nothing_and_its_key_opens_nothing():
    one, other = KeptResults(b"x", Limits()), KeptResults(b"y", Limits())
    assert await one.add("R1", b"rows")
    assert await other.get("R1") is None
    assert other._open("R1", one._close("R1", b"rows")) is None
    assert one._open("R2", one._close("R1", b"rows")) is None, "nor does another handle"
    assert await other.add("R1", b"others") and await one.get("R1") == b"rows"
    await one.close()
    await other.close()


async def test_after_an_hour_it_is_gone_read_or_not():
    clock = Clock()
    kept = KeptResults(b"x", Limits(), clock)
    await kept.add("R1", b"rows")
    clock.now += KEPT_SECONDS - 1
    assert await kept.get("R1") == b"rows"
    clock.now += 2
    assert await kept.get("R1") is None
    await kept.close()


async def test_a_process_deletes_what_others_have_left():
    clock = Clock()
    left, kept = KeptResults(b"x", Limits(), clock), KeptResults(b"y", Limits(), clock)
    await left.add("R1", b"rows")

    file = sqlite3.connect(left._path)

    def count() -> int:
        return int(file.execute("SELECT count(*) FROM data").fetchone()[0])

    assert count() == 1
    clock.now += KEPT_SECONDS + 1
    async with kept.swept():
        await wait_until(lambda: count() == 0, "what was left is deleted when a process starts")
        await left.add("R2", b"rows")
        clock.now += KEPT_SECONDS + 1
        advance_clock(61)
        await wait_until(lambda: count() == 0, "and while it runs")
    file.close()
    await left.close()
    await kept.close()


async def test_another_users_key_or_database_is_refused(monkeypatch: pytest.MonkeyPatch):
    await (kept := KeptResults(b"x", Limits())).add("R1", b"rows")
    await kept.close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        other = KeptResults(b"x", Limits())
        with pytest.raises(StoreError, match="another user's"):
            await other.add("R2", b"rows")
        with pytest.raises(StoreError, match="another user's"):
            await other.get("R1")
        stored = make_stored(other)
        name = await store(stored, "the rows")
        assert await text_of(stored, name) == "the rows", "in this process it is there"
        with pytest.raises(UsageError, match="Nothing is kept"):
            await stored.open("R1", USER)
        await other.close()


async def test_of_processes_that_start_together_all_seal_with_the_same_key():
    processes = [KeptResults(b"x", Limits()) for _ in range(8)]
    assert all(await asyncio.gather(*(one.add(f"R{at}", b"rows") for at, one in enumerate(processes))))
    assert await asyncio.gather(*(processes[0].get(f"R{at}") for at in range(8))) == [b"rows"] * 8
    assert sorted(await asyncio.gather(*(one.add("R", b"rows") for one in processes))) == [False] * 7 + [True]
    for one in processes:
        await one.close()


def test_of_two_programs_that_write_a_file_one_succeeds(tmp_path: Path):
    path = tmp_path / "folder" / "key"
    files.add_own_file(path, b"first")
    files.add_own_file(path, b"second")
    assert path.read_bytes() == b"first" and [*path.parent.iterdir()] == [path]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_two_processes_give_no_handle_twice(monkeypatch: pytest.MonkeyPatch):
    kept = KeptResults(b"x", Limits())
    numbers = itertools.chain([0, 0], itertools.count(1))
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(numbers))
    first, second = make_stored(kept), make_stored(kept)
    assert (await store(first, "one"), await store(second, "two")) == ("R2222", "R3222")
    later = make_stored(kept)
    assert (await text_of(later, "R2222"), await text_of(later, "R3222")) == ("one", "two")
    await kept.close()


async def test_a_kept_result_has_no_root_and_so_is_no_base():
    kept, root = KeptResults(b"x", Limits()), "3fa9c0ffee" + "0" * 54
    first = make_stored(kept)
    name = await store(first, "the rows", root=root)
    found = await first.find_by_root(ResultRoot(root, "call"), USER)
    assert found is not None and found[0].name == name
    later = make_stored(kept)
    assert await text_of(later, name) == "the rows"
    assert await later.find_by_root(ResultRoot(root, "call"), USER) is None
    assert await store(later, "the rows", root=root) == name, "the same result has the same handle"
    again = await later.find_by_root(ResultRoot(root, "call"), USER)
    assert again is not None and again[1].header.root == root
    await kept.close()


async def test_another_result_with_the_same_short_root_gets_a_longer_handle():
    kept = KeptResults(b"x", Limits())
    first, later = make_stored(kept), make_stored(kept)
    short = await store(first, "one", root="3fa9c0ffee" + "0" * 54)
    long = await store(later, "two", root="3fa9c0ffee" + "1" * 54)
    assert long != short and long.startswith(short)
    await kept.close()


async def test_a_store_that_fails_costs_no_result(tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    stored = make_stored(KeptResults(b"x", Limits()))
    name = await store(stored, "the rows")
    assert await text_of(stored, name) == "the rows"
