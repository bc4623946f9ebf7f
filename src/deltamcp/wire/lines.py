"""Messages that are a line each, as stdio carries them."""

from collections.abc import Iterator

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import Malformed


class LineReader:
    """Splits bytes into lines, none longer than the limit."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.message_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | Malformed]:
        """Whole lines as they complete; a line too long is reported once and skipped to its end."""
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
