"""Values that several tests return from tools."""

from typing import Any

USERS: list[dict[str, Any]] = [
    {
        "id": index + 1,
        "username": f"user_{index + 1:04}",
        "email": f"user_{index + 1:04}@example.com",
        "score": index * 37 % 101,
        "active": index % 3 != 0,
    }
    for index in range(1000)
]


LINES = "".join(f"Line {number} of the log: the quick brown fox jumps. Over the lazy dog.\n" for number in range(60))
