"""A store in a SQLite file, which the processes of one host share and which outlives them."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from deltamcp.errors import ConfigurationError
from deltamcp.stores.store import ENTRY_BYTES, StoreError, check_size, hash_key

_BUSY_SECONDS = 30.0
"""How long to wait for other processes; each locks the file for one entry, some 100 ms for a large one."""

_SWEEP_SECONDS = 60.0
"""How often expired entries are deleted; until then `get` ignores them."""

# `data` is a table of its own so that recording a read does not rewrite the bytes. `used` is a counter, as clocks can
# stand still.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, size INTEGER, used INTEGER, seconds REAL, ends REAL, expires REAL);
CREATE INDEX IF NOT EXISTS kept_used ON kept (used);
CREATE INDEX IF NOT EXISTS kept_expires ON kept (expires);
CREATE TABLE IF NOT EXISTS data (id INTEGER PRIMARY KEY, bytes BLOB);
CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY, bytes INTEGER);
INSERT OR IGNORE INTO total VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS kept_more AFTER INSERT ON kept BEGIN
    UPDATE total SET bytes = bytes + new.size;
END;
CREATE TRIGGER IF NOT EXISTS kept_less AFTER DELETE ON kept BEGIN
    UPDATE total SET bytes = bytes - old.size;
    DELETE FROM data WHERE id = old.id;
END;
"""

_WorkResult = TypeVar("_WorkResult")


class SqliteStore:
    """A `Store` in a SQLite file. It stores users' data in clear; only the file's owner may read it.

    Forgotten data stays visible in the file until other data overwrites it. Owners and names are hashed.
    """

    private = True

    def __init__(
        self, path: str | Path, max_bytes: int = 1024 * 1024 * 1024, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = Path(path).absolute()
        if not self._path.parent.is_dir():
            raise ConfigurationError(f"The directory of the store at {self._path} does not exist.")
        self._max_bytes = max_bytes
        self._clock = clock
        self._next_sweep = 0.0
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "deltamcp-store")  # stops when the store is garbage collected

    async def put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> None:
        check_size(data, self._max_bytes)
        await self._run(
            lambda file: self._insert(file, hash_key(owner, name), data, idle_seconds, max_seconds, replace=True)
        )

    async def add(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> bool:
        check_size(data, self._max_bytes)
        return await self._run(
            lambda file: self._insert(file, hash_key(owner, name), data, idle_seconds, max_seconds, replace=False)
        )

    async def get(self, owner: str, name: str) -> bytes | None:
        return await self._run(lambda file: self._get(file, hash_key(owner, name)))

    async def forget(self, owner: str, name: str) -> None:
        await self._run(lambda file: file.execute("DELETE FROM kept WHERE key = ?", [hash_key(owner, name)]))

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
            raise StoreError(f"The store at {self._path} cannot be used: {error}.") from error

    def _open(self) -> sqlite3.Connection:
        self._path.touch(0o600)  # SQLite gives the files beside it the same permissions
        file = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            _enable_wal(file)
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute("PRAGMA journal_size_limit = 16777216")
            file.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except BaseException:
            file.close()
            raise
        return file

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _insert(
        self, file: sqlite3.Connection, key: str, data: bytes, idle_seconds: float, max_seconds: float, *, replace: bool
    ) -> bool:
        with file:
            file.execute("BEGIN IMMEDIATE")
            now = self._clock()
            file.execute("DELETE FROM kept WHERE key = ? AND (? OR expires <= ?)", [key, replace, now])
            inserted = file.execute(
                "INSERT OR IGNORE INTO kept (key, size, used, seconds, ends, expires)"
                " VALUES (?, ?, (SELECT coalesce(max(used), 0) + 1 FROM kept), ?, ?, ?)",
                [key, len(data) + ENTRY_BYTES, idle_seconds, now + max_seconds, now + min(idle_seconds, max_seconds)],
            )
            if not inserted.rowcount:
                return False
            file.execute("INSERT INTO data VALUES (?, ?)", [inserted.lastrowid, data])
            if _total_bytes(file) > self._max_bytes:
                _forget_stale(file, now)
            delete_oldest = "DELETE FROM kept WHERE used = (SELECT min(used) FROM kept)"
            while _total_bytes(file) > self._max_bytes and file.execute(delete_oldest).rowcount:
                pass
        return True

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
            with file.blobopen("data", "bytes", row[0], readonly=True) as blob:
                return blob.read()


def _enable_wal(file: sqlite3.Connection) -> None:
    """Enables WAL; retries while busy, as SQLite fails all but one of the processes that create the file together."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _total_bytes(file: sqlite3.Connection) -> int:
    total: int = file.execute("SELECT bytes FROM total").fetchone()[0]
    return total


def _forget_stale(file: sqlite3.Connection, now: float) -> None:
    file.execute("DELETE FROM kept WHERE expires <= ?", [now])
