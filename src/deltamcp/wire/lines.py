"""Line framing of messages, as the stdio transport uses it."""

from collections.abc import Iterator

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import Malformed, RequestId
from deltamcp.wire.jsonrpc import EDGE_BYTES, find_id


class LineReader:
    """Splits bytes into lines of at most `limits.message_bytes` bytes; of a longer line it holds only the two ends."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parts: list[bytes] = []
        self._size = 0
        self._start: bytes | None = None
        """The start of a line that is too long."""
        self._is_refused = False

    def feed(self, data: bytes) -> Iterator[bytes | Malformed]:
        """Yields each line that `data` completes.

        It reports a line that is too long once: as soon as it finds the id, perhaps at the end of the line; without
        an id when the line has ended, or is twice as long as allowed.
        """
        *complete, rest = data.split(b"\n")
        for part in complete:
            if not self._parts and len(part) <= self._limits.message_bytes:  # nearly every line
                if part.strip():
                    yield part
                continue
            self._append(part)
            line, start, is_refused = b"".join(self._parts), self._start, self._is_refused
            self._parts, self._size, self._start, self._is_refused = [], 0, None, False
            if start is None:
                if line.strip():
                    yield line
            elif not is_refused:
                yield self._too_long(find_id(start, line, self._limits))
        if not rest:
            return
        self._append(rest)
        if self._start is not None and not self._is_refused:
            id_ = find_id(self._start, b"", self._limits)
            if id_ is not None or self._size > 2 * self._limits.message_bytes:
                self._is_refused = True
                yield self._too_long(id_)

    def _append(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limits.message_bytes:
            held = b"".join(self._parts)
            if self._start is None:
                self._start = held[:EDGE_BYTES]
            self._parts = [held[-EDGE_BYTES:]]

    def _too_long(self, id_: RequestId | None) -> Malformed:
        return Malformed(Fault.TOO_LARGE, f"A message may have at most {self._limits.message_bytes} bytes.", id_)
