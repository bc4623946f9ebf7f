"""A store in a SQLite file, which the processes of one host share and which outlives them."""

import asyncio
import contextlib
import functools
import os
import sqlite3
import stat
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from deltamcp.errors import ConfigurationError
from deltamcp.stores.store import (
    DEFAULT_QUOTAS,
    ENTRY_BYTES,
    Quotas,
    StoreError,
    StoreUnreachableError,
    hash_key,
    hash_text,
    take_token,
)


def integer(row: Any) -> int:
    """Returns the first value of a row.

    Raises:
        sqlite3.DatabaseError: there is no row, or it has something else.
    """
    if row is None or not isinstance(row[0], int):
        raise changed_error()
    return row[0]


def number(row: Any) -> float:
    """Returns the first value of a row; raises as `integer` does."""
    if row is None or not isinstance(row[0], int | float):
        raise changed_error()
    return row[0]


def blob(row: Any) -> bytes:
    """Returns the first value of a row; raises as `integer` does."""
    if row is None or not isinstance(row[0], bytes):
        raise changed_error()
    return row[0]


def changed_error() -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError("something else has changed what it stores; delete the file")


SCHEMA = (
    "CREATE TABLE messages (id INTEGER PRIMARY KEY, channel TEXT, sent REAL, bytes BLOB)",
    "CREATE INDEX messages_sent ON messages (sent)",
)
_KEPT_SECONDS = 60.0
"""A process that did not look for so long is told that it missed messages."""
_MAX_KEPT = 10_000


class NewMessages(NamedTuple):
    """What a subscriber has not seen yet."""

    messages: list[bytes]
    newest: int
    """The id of the newest message, in any channel."""
    missed: bool
    """Whether some were deleted before the subscriber looked."""


def insert(file: sqlite3.Connection, channel: str, message: bytes, now: float) -> None:
    """Adds a message and deletes old ones."""
    with file:
        file.execute("BEGIN IMMEDIATE")
        file.execute("INSERT INTO messages (channel, sent, bytes) VALUES (?, ?, ?)", [channel, now, message])
        # The newest one always stays, so that ids go on from it.
        file.execute(
            "DELETE FROM messages WHERE (sent <= ? OR id <= last_insert_rowid() - ?) AND id < last_insert_rowid()",
            [now - _KEPT_SECONDS, _MAX_KEPT],
        )


def newest_id(file: sqlite3.Connection) -> int:
    return integer(file.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone())


def after(file: sqlite3.Connection, channel: str, seen: int) -> NewMessages:
    """Returns the messages of a channel after the one with the id `seen`."""
    newest = newest_id(file)
    if newest == seen:
        return NewMessages([], seen, missed=False)
    with file:
        file.execute("BEGIN")
        newest = newest_id(file)
        oldest = integer(file.execute("SELECT coalesce(min(id), 0) FROM messages").fetchone())
        found = file.execute("SELECT bytes FROM messages WHERE id > ? AND channel = ? ORDER BY id", [seen, channel])
        # The file may also have been replaced by another one, whose ids start anew.
        missed = newest < seen or oldest > seen + 1
        return NewMessages([blob(row) for row in found], newest, missed)


_BUSY_SECONDS = 30.0
"""How long to wait for other processes; each locks the file for one entry, some 100 ms for a large one."""

_SWEEP_SECONDS = 60.0
"""How often expired entries are deleted; until then `get` ignores them."""

_POLL_SECONDS = 0.02
"""How often a subscriber looks for messages; one look takes some 50 µs."""

_APPLICATION = 0x444D4350
_VERSION = 3
"""The version of the schema. A file of another version starts over, as what it holds lasts two days at most."""

_TABLES = {"kept", "data", "total", "accounts", "buckets", "messages"}
# `data` is a table of its own so that recording a read does not rewrite the bytes. `used` is a counter, as clocks can
# stand still.
_SCHEMA = (
    "CREATE TABLE kept (id INTEGER PRIMARY KEY, key TEXT UNIQUE, account BLOB, size INTEGER, used INTEGER,"
    " seconds REAL, ends REAL, expires REAL)",
    "CREATE INDEX kept_used ON kept (used)",
    "CREATE INDEX kept_account_used ON kept (account, used)",
    "CREATE INDEX kept_expires ON kept (expires)",
    "CREATE TABLE data (id INTEGER PRIMARY KEY, bytes BLOB)",
    "CREATE TABLE total (id INTEGER PRIMARY KEY, bytes INTEGER)",
    "INSERT INTO total VALUES (1, 0)",
    "CREATE TABLE accounts (account BLOB PRIMARY KEY, bytes INTEGER) WITHOUT ROWID",
    """
    CREATE TRIGGER kept_more AFTER INSERT ON kept BEGIN
        UPDATE total SET bytes = bytes + new.size;
        INSERT INTO accounts VALUES (new.account, new.size)
            ON CONFLICT (account) DO UPDATE SET bytes = bytes + excluded.bytes;
    END
    """,
    """
    CREATE TRIGGER kept_less AFTER DELETE ON kept BEGIN
        UPDATE total SET bytes = bytes - old.size;
        UPDATE accounts SET bytes = bytes - old.size WHERE account = old.account;
        DELETE FROM accounts WHERE account = old.account AND bytes <= 0;
        DELETE FROM data WHERE id = old.id;
    END
    """,
    "CREATE TABLE buckets (key BLOB PRIMARY KEY, full_at REAL) WITHOUT ROWID",
    "CREATE INDEX buckets_full_at ON buckets (full_at)",
    *SCHEMA,
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WorkResult = TypeVar("_WorkResult")


class SqliteStore:
    """A `SharedStore` in a SQLite file. It stores users' data in clear; only the file's owner may read it.

    Forgotten data stays visible in the file until other data overwrites it. Owners and names are hashed.
    """

    private = True
    shared = True
    redis_url: str | None = None

    def __init__(
        self,
        path: str | Path,
        quotas: Quotas = DEFAULT_QUOTAS,
        busy_seconds: float = _BUSY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`busy_seconds` is how long to wait while another process locks the file."""
        self._path = Path(path).absolute()
        if not self._path.parent.is_dir():
            raise ConfigurationError(f"The directory of the store at {self._path} does not exist.")
        self._quotas = quotas
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._next_sweep = 0.0
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "deltamcp-store")  # stops when the store is garbage collected

    async def put(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> None:
        await self._insert(owner, name, data, idle_seconds, max_seconds, account, replace=True)

    async def add(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> bool:
        return await self._insert(owner, name, data, idle_seconds, max_seconds, account, replace=False)

    async def replace(
        self,
        owner: str,
        name: str,
        expected: bytes,
        data: bytes,
        idle_seconds: float,
        max_seconds: float,
        account: str,
    ) -> bool:
        return await self._insert(
            owner, name, data, idle_seconds, max_seconds, account, replace=True, expected=expected
        )

    async def get(self, owner: str, name: str) -> bytes | None:
        return await self._run(lambda file: self._get(file, hash_key(owner, name)))

    async def delete(self, owner: str, name: str) -> None:
        key = hash_key(owner, name)
        await self._run(lambda file: file.execute("DELETE FROM kept WHERE key = ?", [key]))

    async def take_token(self, bucket: str, rate: float, burst: int) -> float:
        key = hash_text(bucket)

        def take(file: sqlite3.Connection) -> float:
            with file:
                file.execute("BEGIN IMMEDIATE")
                now = self._clock()
                row = file.execute("SELECT full_at FROM buckets WHERE key = ?", [key]).fetchone()
                full_at, seconds = take_token(now if row is None else number(row), now, rate, burst)
                if not seconds:
                    file.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?)", [key, full_at])
            return seconds

        return await self._run(take)

    async def publish(self, channel: str, message: bytes) -> None:
        await self._run(lambda file: insert(file, channel, message, self._clock()))

    async def subscribe(self, channel: str) -> AsyncGenerator[bytes | None, None]:
        seen = await self._run(newest_id)
        yield None
        while True:
            new = await self._run(functools.partial(after, channel=channel, seen=seen))
            seen = new.newest
            if new.missed:
                yield None
            for message in new.messages:
                yield message
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)

    async def _run(self, work: Callable[[sqlite3.Connection], _WorkResult]) -> _WorkResult:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run_in_thread, work)

    def _run_in_thread(self, work: Callable[[sqlite3.Connection], _WorkResult]) -> _WorkResult:
        try:
            if self._connection is None:
                self._connection = self._open()
            now = self._clock()
            if now >= self._next_sweep:
                self._next_sweep = now + _SWEEP_SECONDS
                _forget_stale(self._connection, now)
            return work(self._connection)
        except (sqlite3.Error, OSError) as error:
            # The file may have been moved or replaced, so the next call opens it anew.
            self._close()
            if _is_busy(error):
                raise StoreUnreachableError(f"The store at {self._path} is locked by another process.") from error
            raise StoreError(f"The store at {self._path} cannot be used: {error}.") from error

    # Opening

    def _open(self) -> sqlite3.Connection:
        self._restrict_access()
        file = sqlite3.connect(self._path, timeout=self._busy_seconds, isolation_level=None)
        try:
            self._enable_wal(file)
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute("PRAGMA journal_size_limit = 16777216")
            with file:
                file.execute("BEGIN IMMEDIATE")
                self._create_tables(file)
        except BaseException:
            file.close()
            raise
        return file

    def _restrict_access(self) -> None:
        """Creates the file, and makes it and the files beside it unreadable for other users.

        Raises:
            StoreError: the file or a link to it is another user's, who could read or change what is stored; also if
                this process could open it, as root can.
        """
        # SQLite makes a file where a link leads, and the files beside it there.
        target = Path(os.path.realpath(self._path))
        if os.name == "posix":
            with contextlib.suppress(FileNotFoundError):
                link = self._path.lstat()
                if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), 0):
                    raise StoreError(f"The store at {self._path} cannot be used: it is another user's link.")
        # Existing files are not opened here: closing one would drop the locks that this process has on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if os.name != "posix":
            return
        for path in (target, Path(f"{target}-wal"), Path(f"{target}-shm")):
            with contextlib.suppress(FileNotFoundError):
                file = path.lstat()
                if not stat.S_ISREG(file.st_mode) and not stat.S_ISLNK(file.st_mode):
                    continue
                if file.st_uid != os.geteuid():
                    raise StoreError(f"The store at {path} cannot be used: it is another user's.")
                if stat.S_ISREG(file.st_mode) and stat.S_IMODE(file.st_mode) & _OTHERS:
                    path.chmod(0o600)

    def _enable_wal(self, file: sqlite3.Connection) -> None:
        """Enables WAL; retries while busy, as SQLite fails all but one of the processes that create it together."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                file.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _create_tables(self, file: sqlite3.Connection) -> None:
        marks = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if marks == [_APPLICATION, _VERSION]:
            return
        found = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if found and (not found <= _TABLES or "kept" not in found):
            raise StoreError(f"The store at {self._path} cannot be used: it is a database of something else.")
        for name in found:
            file.execute(f"DROP TABLE {name}")
        for statement in _SCHEMA:
            file.execute(statement)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Entries

    async def _insert(
        self,
        owner: str,
        name: str,
        data: bytes,
        idle_seconds: float,
        max_seconds: float,
        account: str,
        *,
        replace: bool,
        expected: bytes | None = None,
    ) -> bool:
        self._quotas.check_size(data)
        key, account_hash = hash_key(owner, name), hash_text(account)

        def insert(file: sqlite3.Connection) -> bool:
            with file:
                file.execute("BEGIN IMMEDIATE")
                now = self._clock()
                if expected is not None and not _holds(file, key, expected, now):
                    return False
                file.execute("DELETE FROM kept WHERE key = ? AND (? OR expires <= ?)", [key, replace, now])
                size, expires = len(data) + ENTRY_BYTES, now + min(idle_seconds, max_seconds)
                inserted = file.execute(
                    "INSERT OR IGNORE INTO kept (key, account, size, used, seconds, ends, expires)"
                    " VALUES (?, ?, ?, (SELECT coalesce(max(used), 0) + 1 FROM kept), ?, ?, ?)",
                    [key, account_hash, size, idle_seconds, now + max_seconds, expires],
                )
                if not inserted.rowcount:
                    return False
                self._make_room(file, account_hash, now)
                file.execute("INSERT INTO data VALUES (?, ?)", [inserted.lastrowid, data])
            return True

        return await self._run(insert)

    def _make_room(self, file: sqlite3.Connection, account: bytes, now: float) -> None:
        """Deletes what the account has to give up for its newest entry.

        Raises:
            StoreFullError: the entry does not fit all the same.
        """
        if _account_bytes(file, account) > self._quotas.per_account or _total_bytes(file) > self._quotas.total:
            _forget_stale(file, now)
        delete_oldest = "DELETE FROM kept WHERE used = (SELECT min(used) FROM kept WHERE account = ?)"
        while _account_bytes(file, account) > self._quotas.per_account:
            if not file.execute(delete_oldest, [account]).rowcount:
                raise changed_error()
        if _total_bytes(file) > self._quotas.total:
            raise self._quotas.full_error()

    def _get(self, file: sqlite3.Connection, key: str) -> bytes | None:
        now = self._clock()
        # Two transactions, so that other processes need not wait while the bytes are read.
        touched = file.execute(
            "UPDATE kept SET used = (SELECT max(used) + 1 FROM kept), expires = min(ends, ? + seconds)"
            " WHERE key = ? AND expires > ?",
            [now, key, now],
        )
        if not touched.rowcount:
            return None
        with file:
            file.execute("BEGIN")
            row = file.execute("SELECT id FROM kept WHERE key = ? AND expires > ?", [key, now]).fetchone()
            if row is None:
                return None
            # A SELECT would hold the GIL while it copies the bytes, 30 ms for 50 MB.
            with file.blobopen("data", "bytes", integer(row), readonly=True) as blob:
                return blob.read()


def _is_busy(error: Exception) -> bool:
    busy = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    # Errors of Python's own, such as for a text that is no UTF-8, have no code.
    return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in busy


def _holds(file: sqlite3.Connection, key: str, expected: bytes, now: float) -> bool:
    found = file.execute(
        "SELECT 1 FROM kept JOIN data USING (id) WHERE key = ? AND expires > ? AND bytes = ?", [key, now, expected]
    )
    return found.fetchone() is not None


def _total_bytes(file: sqlite3.Connection) -> int:
    return integer(file.execute("SELECT bytes FROM total").fetchone())


def _account_bytes(file: sqlite3.Connection, account: bytes) -> int:
    return integer(file.execute("SELECT bytes FROM accounts WHERE account = ?", [account]).fetchone())


def _forget_stale(file: sqlite3.Connection, now: float) -> None:
    file.execute("DELETE FROM kept WHERE expires <= ?", [now])
    file.execute("DELETE FROM buckets WHERE full_at <= ?", [now])
