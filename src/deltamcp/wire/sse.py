"""Server-sent events as MCP uses them: encodes and reads event streams, without I/O."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")

KEEP_ALIVE = b":\n\n"
"""A comment that keeps proxies from closing an idle stream."""


def encode_event(data: bytes, id_: str | None = None) -> bytes:
    """Encodes one message as an event. JSON has no raw line breaks, so one `data:` line carries it."""
    if id_ is None:
        return b"event: message\ndata: %b\n\n" % data
    return b"id: %b\nevent: message\ndata: %b\n\n" % (id_.encode(), data)


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
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._after_cr = False

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
        self._parts.append(data)
        if b"\n" in data or b"\r" in data:
            *lines, rest = _LINE_END.split(b"".join(self._parts))
            self._parts = [rest]
            for line in lines:
                if line.startswith(b":"):
                    continue
                if line:
                    self._lines.append(line)
                elif self._lines:
                    yield _parse_event(self._lines)
                    self._lines, self._size = [], len(rest)
        if self._size > self._max_bytes:
            raise ValueError(f"an event is larger than {self._max_bytes} bytes")


def _parse_event(lines: list[bytes]) -> SseEvent:
    data: list[bytes] = []
    id_: str | None = None
    retry: int | None = None
    kind = "message"
    for line in lines:
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"id" and b"\0" not in value:
            id_ = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            retry = int(value)
        elif name == b"event":
            kind = value.decode("utf-8", "replace")
    return SseEvent(b"\n".join(data), id_, retry, kind)
