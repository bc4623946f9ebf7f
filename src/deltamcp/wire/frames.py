"""Where messages begin and end in a stream of bytes: lines, as stdio has them, and server-sent events, without I/O."""

import re
from collections.abc import Iterator
from typing import NamedTuple

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


_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")

KEEP_ALIVE = b":\n\n"
"""A comment that keeps proxies from closing an idle stream."""


def encode_event(data: bytes, id_: str | None = None) -> bytes:
    """Encodes one message as an event. JSON has no raw line breaks, so one `data:` line carries it."""
    if id_ is None:
        return encode_named_event("message", data)
    return b"id: %b\nevent: message\ndata: %b\n\n" % (id_.encode(), data)


def encode_named_event(kind: str, data: bytes) -> bytes:
    """Encodes one event of any kind, whose data is JSON."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def encode_priming_event(id_: str, retry_ms: int) -> bytes:
    """Encodes the empty first event of MCP 2025-11-25, which tells the client where to reconnect and how soon."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (id_.encode(), retry_ms)


class SseEvent(NamedTuple):
    """One event of a stream. `data` is empty in an event that only tells where and when to reconnect."""

    data: bytes
    id: str | None = None
    retry_ms: int | None = None
    kind: str = "message"


class SseReader:
    """Reads events from bytes by the rules of the HTML standard, "Interpreting an event stream"."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        """The line that has begun. It grows in place, because many small pieces take more than their bytes."""
        self._size = 0
        self._after_cr = False
        self._event: _PartialEvent | None = None

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        """Yields each event that `data` completes.

        Raises:
            ValueError: an event is larger than `max_bytes`.
        """
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]  # the second half of a CRLF
            self._after_cr = False
        if not data:
            return
        self._after_cr = data.endswith(b"\r")
        self._size += len(data)
        self._line += data
        if b"\n" in data or b"\r" in data:
            *lines, rest = _LINE_END.split(self._line)
            self._line = bytearray(rest)
            lines.reverse()
            while lines:  # a line is given up as soon as it is read, because it may be the whole of a large event
                line = lines.pop()
                if line.startswith(b":"):
                    continue
                if line:
                    self._event = self._event or _PartialEvent()
                    self._event.add(line)
                elif self._event is not None:
                    yield self._event.complete()
                    self._event, self._size = None, len(rest)
        if self._size > self._max_bytes:
            raise ValueError(f"an event is larger than {self._max_bytes} bytes")


class _PartialEvent:
    """An event of which more lines may come."""

    def __init__(self) -> None:
        self._data: bytes | bytearray | None = None
        self._id: str | None = None
        self._retry: int | None = None
        self._kind = "message"

    def add(self, line: bytes) -> None:
        name, _, value = line.removeprefix(_BOM).partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if self._data is None:
                self._data = value
            else:
                # In place, because many short lines take more than their bytes.
                self._data = self._data if isinstance(self._data, bytearray) else bytearray(self._data)
                self._data += b"\n"
                self._data += value
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")

    def complete(self) -> SseEvent:
        return SseEvent(bytes(self._data or b""), self._id, self._retry, self._kind)
