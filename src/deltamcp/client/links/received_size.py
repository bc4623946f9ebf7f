"""The size of what a server sent, and the total of what the client puts together from several messages."""

from deltamcp.errors import ClientError
from deltamcp.wire.message_bounds import count_values

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
"""Size of the largest message, list or result, unless the program allows another. A message is held as bytes, joined,
and decoded at once, which is some 60 MB. Screenshots and exports of other servers stay below 10 MB."""
BYTES_PER_VALUE = 24
"""Bytes that a value or the name of a field counts at least; decoded, it takes up to 80."""


class TotalSize:
    """Adds up the parts of one list or one result."""

    def __init__(self, subject: str, max_bytes: int) -> None:
        """`subject` begins the sentence that tells that the total is too large."""
        self._subject, self._max_bytes = subject, max_bytes
        self._size = 0

    def add(self, body: bytes, at_least: int = 0) -> None:
        """Adds a part, given as JSON; it counts `at_least` so many bytes.

        Raises:
            ClientError: the total is too large.
        """
        self._size += max(size_of(body), at_least)
        if self._size > self._max_bytes:
            raise too_large_error(self._subject, self._max_bytes)


def size_of(body: bytes) -> int:
    """Returns the size of a value, given as JSON."""
    # Text in strings may look like structure, so that this is at least the true count, and mostly suffices.
    if BYTES_PER_VALUE * sum(map(body.count, (b"[", b"{", b",", b":"))) < len(body):
        return len(body)
    return max(len(body), BYTES_PER_VALUE * count_values(body))


def too_large_error(subject: str, max_bytes: int) -> ClientError:
    return ClientError(
        f"{subject} is larger than {max_bytes:,} bytes; ask for less, or allow a larger max_bytes if you trust it."
    )
