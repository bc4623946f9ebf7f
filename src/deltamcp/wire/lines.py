"""Line framing of messages, as the stdio transport uses it."""

from collections.abc import Iterator

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import Malformed


class LineReader:
    """Splits bytes into lines of at most `limits.message_bytes` bytes."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.message_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | Malformed]:
        """Yields each line that `data` completes; reports a line that is too long once, and skips it to its end."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            if self._skipping:
                self._skipping = False
                continue
            if self._parts:
                line = b"".join([*self._parts, line])
                self._parts.clear()
                self._size = 0
            if len(line) > self._limit:
                yield self._too_long()
            elif line.strip():
                yield line
        if self._skipping or not rest:
            return
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > self._limit:
            self._parts.clear()
            self._size = 0
            self._skipping = True
            yield self._too_long()

    def _too_long(self) -> Malformed:
        return Malformed(Fault.TOO_LARGE, f"A message may have at most {self._limit} bytes.")
