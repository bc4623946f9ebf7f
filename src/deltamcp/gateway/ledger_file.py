"""The ledger's file: sums by day, upstream and tool in SQLite, to which several gateways of a user may add at once."""

import contextlib
import datetime
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.ledger_figures import LedgerKey, LedgerRows, Usage
from deltamcp.runtime.own_files import user_folder

KEPT_DAYS = 400
_BUSY_SECONDS = 5.0
_APPLICATION = 0x444D4C47
_VERSION = 1
_SCHEMA = (
    "CREATE TABLE usage (day TEXT, upstream TEXT, tool TEXT, calls INTEGER, failed INTEGER, uncounted INTEGER,"
    " before INTEGER, after INTEGER, PRIMARY KEY (day, upstream, tool)) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
_ADD = (
    "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (day, upstream, tool) DO UPDATE SET"
    " calls = calls + excluded.calls, failed = failed + excluded.failed, uncounted = uncounted + excluded.uncounted,"
    " before = before + excluded.before, after = after + excluded.after"
)


class LedgerFile:
    """Stores figures, and no content: names of upstreams and tools, and numbers. Its methods block."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` is `ledger.sqlite` in the user's folder for state by default.

        Raises:
            ConfigurationError: the user has no home.
        """
        self.path: Path = user_folder("state") / "ledger.sqlite" if path is None else path

    def add(self, rows: LedgerRows) -> None:
        """Adds figures to those of their days, all or none of them.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
            ConfigurationError: it is no ledger.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        values = [(*key, *(getattr(usage, name) for name in Usage.__struct_fields__)) for key, usage in rows.items()]
        with self._open() as connection:
            self._make_tables(connection)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_ADD, values)
            connection.execute("DELETE FROM usage WHERE day < ?", (_days_ago(KEPT_DAYS),))
            connection.execute("COMMIT")

    def read(self, days: int | None = None) -> dict[LedgerKey, Usage]:
        """Returns the figures of the last days, today included; of all by default.

        Raises:
            ConfigurationError: the file is no ledger, or is damaged.
        """
        if not self.path.exists():
            return {}
        since = "" if days is None else _days_ago(days - 1)
        try:
            with self._open() as connection:
                if _is_empty(connection):  # a gateway has just made it
                    return {}
                if _version(connection) != (_APPLICATION, _VERSION):
                    raise self._foreign()
                found = connection.execute("SELECT * FROM usage WHERE day >= ? ORDER BY 1, 2, 3", (since,)).fetchall()
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"The ledger at {self.path} cannot be read ({error}); delta-mcp stats --reset starts a new one."
            ) from None
        return {LedgerKey(*values[:3]): Usage(*values[3:]) for values in found}

    def reset(self) -> None:
        """Forgets all figures, also those of a file that cannot be read."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if _version(connection) == (_APPLICATION, _VERSION):
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")
        if _version(connection) != (_APPLICATION, _VERSION):
            raise self._foreign()

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            # What is written survives the death of this process; only a crash of the system may lose the last of it.
            connection.execute("PRAGMA synchronous = NORMAL")
            yield connection
        finally:
            connection.close()

    def _foreign(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.path} is no ledger of this version; delta-mcp stats --reset deletes it and starts a new one."
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    return (
        connection.execute("PRAGMA application_id").fetchone()[0],
        connection.execute("PRAGMA user_version").fetchone()[0],
    )


def _days_ago(days: int) -> str:
    return (datetime.date.today() - datetime.timedelta(days=days)).isoformat()
