"""The messages between processes that share a SQLite file: a table of the newest ones, which subscribers poll."""

import sqlite3
from typing import NamedTuple

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
        added = file.execute("INSERT INTO messages (channel, sent, bytes) VALUES (?, ?, ?)", [channel, now, message])
        # The newest one always stays, so that ids go on from it.
        oldest = (added.lastrowid or 0) - _MAX_KEPT
        file.execute(
            "DELETE FROM messages WHERE (sent <= ? OR id <= ?) AND id < ?",
            [now - _KEPT_SECONDS, oldest, added.lastrowid],
        )


def newest_id(file: sqlite3.Connection) -> int:
    newest: int | None = file.execute("SELECT max(id) FROM messages").fetchone()[0]
    return newest or 0


def after(file: sqlite3.Connection, channel: str, seen: int) -> NewMessages:
    """Returns the messages of a channel after the one with the id `seen`."""
    newest = newest_id(file)
    if newest == seen:
        return NewMessages([], seen, missed=False)
    with file:
        file.execute("BEGIN")
        newest = newest_id(file)
        oldest = file.execute("SELECT min(id) FROM messages").fetchone()[0]
        found = file.execute("SELECT bytes FROM messages WHERE id > ? AND channel = ? ORDER BY id", [seen, channel])
        # The file may also have been replaced by another one, whose ids start anew.
        missed = newest < seen or oldest is None or oldest > seen + 1
        return NewMessages([message for (message,) in found], newest, missed)
