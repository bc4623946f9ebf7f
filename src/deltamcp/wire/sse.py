"""Server-sent events, as far as MCP uses them. Pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")

KEEP_ALIVE = b":\n\n"
"""Keeps proxies from closing a silent stream."""


def encode_event(data: bytes, id_: str | None = None) -> bytes:
    """One message. JSON holds no raw line breaks, so one `data:` line carries it."""
    if id_ is None:
        return b"event: message\ndata: %b\n\n" % data
    return b"id: %b\nevent: message\ndata: %b\n\n" % (id_.encode(), data)


def encode_priming_event(id_: str, retry_ms: int) -> bytes:
    """MCP 2025-11-25: the first event, empty, so that a client knows where to reconnect and how soon."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (id_.encode(), retry_ms)


class SseEvent(NamedTuple):
    """One event as a reader sees it. `data` is empty in one that only says where and when to reconnect."""

    data: bytes
    id: str | None = None
    retry_ms: int | None = None
    kind: str = "message"


class SseReader:
    """Bytes to events, by the rules of the HTML standard, "Interpreting an event stream".

    Raises:
        ValueError: from `feed`, an event is larger than `most` bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        """The events that are complete now."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]  # the other half of a line's end
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
