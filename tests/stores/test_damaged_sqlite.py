"""A SQLite file that somebody changed: every method does what it says, or raises `StoreError`."""

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp.stores.sqlite import SqliteStore
from deltamcp.stores.store import ENTRY_BYTES, Quotas, StoreError
from tests.support.properties import examples
from tests.support.store_medium import Clock

OWNER, ACCOUNT, CHANNEL, BUCKET = "an owner", "an account", "a channel", "a bucket"
COLUMNS = {
    "kept": ("id", "key", "account", "size", "used", "seconds", "ends", "expires"),
    "data": ("id", "bytes"),
    "total": ("id", "bytes"),
    "accounts": ("account", "bytes"),
    "buckets": ("key", "full_at"),
    "messages": ("id", "channel", "sent", "bytes"),
}
VALUES = st.one_of(
    st.none(),
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 1e308, -1e308, float("inf"), float("-inf")]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.binary(max_size=8).map(lambda data: ("CAST(? AS TEXT)", data)),  # a text that may be no UTF-8
)
CHANGED_CELLS = st.sampled_from([(table, column) for table in COLUMNS for column in COLUMNS[table]]).flatmap(
    lambda cell: st.tuples(st.just(f"UPDATE OR IGNORE {cell[0]} SET {cell[1]} = %s"), VALUES)
)
DELETED_ROWS = st.sampled_from([(f"DELETE FROM {table} WHERE %s IS NULL", None) for table in COLUMNS])
# Tables without the types and keys that SQLite itself would insist on.
UNTYPED = st.sampled_from(list(COLUMNS)).map(
    lambda table: (
        f"CREATE TABLE untyped AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE untyped RENAME TO {table}",
        None,
    )
)
DAMAGE = st.lists(st.one_of(CHANGED_CELLS, DELETED_ROWS, UNTYPED), min_size=1, max_size=6)


def damage(path: Path, changes: list[tuple[str, Any]]) -> None:
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA legacy_alter_table = ON")  # a table is renamed whatever triggers say
    for statement, value in changes:
        if "%s" not in statement:
            file.executescript(statement)
            continue
        written, bound = value if isinstance(value, tuple) else ("?", value)
        try:
            file.execute(statement % written, [bound])
        except sqlite3.IntegrityError:  # a key of that type is what SQLite insists on
            continue
    file.close()


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except StoreError as error:
        assert str(error).startswith("The store") and str(error).endswith(".") and "\n" not in str(error)
        return StoreError


async def use(store: SqliteStore) -> None:
    """Calls every method, and looks at what each returns."""
    assert isinstance(await outcome(store.get(OWNER, "n")), bytes | None | type)
    for name in ("n", "m"):
        await outcome(store.replace(OWNER, name, b"x", b"y", 60, 600, ACCOUNT))
        assert await outcome(store.add(OWNER, name, b"z", 60, 600, ACCOUNT)) in (True, False, StoreError)
        assert await outcome(store.put(OWNER, name, b"x" * ENTRY_BYTES, 60, 600, ACCOUNT)) in (None, StoreError)
        assert isinstance(await outcome(store.get(OWNER, name)), bytes | None | type)
        await outcome(store.delete(OWNER, name))
    seconds = await outcome(store.take_token(BUCKET, 1.0, 2))
    assert seconds is StoreError or 0.0 <= seconds <= 2.0
    subscription = store.subscribe(CHANNEL)
    received = [await outcome(anext(subscription))]
    await outcome(store.publish(CHANNEL, b"news"))
    if received == [None]:
        with contextlib.suppress(TimeoutError):  # in a table without its key a message has no number to go by
            async with asyncio.timeout(0.1):
                received.append(await outcome(anext(subscription)))
    assert all(message in (None, b"news", StoreError) for message in received)
    await subscription.aclose()


async def damage_and_use(changes: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = SqliteStore(path, Quotas(8 * ENTRY_BYTES, 3 * ENTRY_BYTES), clock=Clock())
        for name in ("n", "other"):
            await store.put(OWNER, name, b"x", 60, 600, ACCOUNT)
        await store.take_token(BUCKET, 1.0, 2)
        await store.publish(CHANNEL, b"old")
        damage(path, changes)
        await use(store)
        await store.close()


@given(DAMAGE)
@settings(max_examples=examples(300))
def test_a_damaged_file_is_a_store_error_and_never_another(changes):
    asyncio.run(damage_and_use(changes))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE total SET bytes = NULL",
        "DELETE FROM total",
        "UPDATE accounts SET bytes = NULL",
        "UPDATE accounts SET bytes = 999999",
    ],
)
async def test_an_entry_is_not_put_into_a_damaged_file(tmp_path, statement):
    path = tmp_path / "store.db"
    store = SqliteStore(path, Quotas(8 * ENTRY_BYTES, 3 * ENTRY_BYTES))
    await store.put(OWNER, "n", b"x", 60, 600, ACCOUNT)
    with sqlite3.connect(path) as file:
        file.executescript(statement)
    file.close()
    with pytest.raises(
        StoreError, match=r"^The store at \S+ cannot be used: something else has changed what it stores"
    ):
        await store.put(OWNER, "m", b"x", 60, 600, ACCOUNT)
    await store.close()


async def test_a_message_that_is_no_blob_and_a_bucket_that_is_no_time_are_told(tmp_path):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.take_token(BUCKET, 1.0, 2)
    subscription = store.subscribe(CHANNEL)
    assert await anext(subscription) is None
    with sqlite3.connect(path) as file:
        file.execute("UPDATE buckets SET full_at = 'noon'")
        file.execute("INSERT INTO messages (channel, sent, bytes) VALUES (?, 0, 'a text')", [CHANNEL])
    file.close()
    for call in (store.take_token(BUCKET, 1.0, 2), anext(subscription)):
        with pytest.raises(StoreError, match="something else has changed what it stores"):
            await call
    await store.close()
