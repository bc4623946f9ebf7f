"""What a SQLite file has in a cell. Any column holds any type, so that whoever changed the file chose theirs, too."""

import sqlite3
from typing import Any


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
