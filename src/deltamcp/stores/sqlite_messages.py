"""The messages between processes that share a SQLite file: a table of the newest ones, which subscribers poll."""

import sqlite3
from typing import NamedTuple

from deltamcp.stores import sqlite_cells

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
    return sqlite_cells.integer(file.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone())


def after(file: sqlite3.Connection, channel: str, seen: int) -> NewMessages:
    """Returns the messages of a channel after the one with the id `seen`."""
    newest = newest_id(file)
    if newest == seen:
        return NewMessages([], seen, missed=False)
    with file:
        file.execute("BEGIN")
        newest = newest_id(file)
        oldest = sqlite_cells.integer(file.execute("SELECT coalesce(min(id), 0) FROM messages").fetchone())
        found = file.execute("SELECT bytes FROM messages WHERE id > ? AND channel = ? ORDER BY id", [seen, channel])
        # The file may also have been replaced by another one, whose ids start anew.
        missed = newest < seen or oldest > seen + 1
        return NewMessages([sqlite_cells.blob(row) for row in found], newest, missed)
