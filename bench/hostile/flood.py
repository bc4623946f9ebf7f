"""Many connections at once, each with a request that follows the reply to the one before."""

import contextlib
import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench.hostile.attacked_server import ATTACKER, NO_HEADERS, HttpCaller

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
MakeRequest = Callable[[int], bytes]
"""The bytes of a request, by its number."""
Follow = Callable[[bytes], bytes | None]
"""The bytes of the request that follows a reply, by the reply's head; None for the next one by its number."""


class FloodTally(NamedTuple):
    """What came of a flood."""

    statuses: Counter[str]
    """How many replies there were by status; `closed` stands for connections that ended without one."""
    seconds: float

    @property
    def answered(self) -> int:
        return self.statuses.total() - self.statuses["closed"]

    @property
    def text(self) -> str:
        counts = ", ".join(f"{count:,} × {status}" for status, count in self.statuses.most_common(4))
        return f"{counts or 'no reply'} in {self.seconds:.1f} s"


def write_request(verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS) -> bytes:
    """The bytes of an HTTP request."""
    sent = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    return "\r\n".join(lines).encode() + body


class _PendingReply:
    """A reply of which some has come; of a long one only the length is kept."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.status = ""
        self.head = b""
        self._missing = 0
        self._end = b""

    def take(self, data: bytes) -> bool:
        """Takes more of it; whether it is whole."""
        if not self.status:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return False
            self.head, self.status = head, head[9:12].decode("latin-1")
            found = _LENGTH.search(head)
            self._missing = int(found.group(1)) if found else 0 if self.status == "204" else -1
        if self._missing < 0:  # in chunks
            self._end = (self._end + data)[-5:]
            return self._end == b"0\r\n\r\n"
        self._missing -= len(data)
        return self._missing <= 0


class Flood:
    """Sends requests on so many connections until a time or a number is over."""

    def __init__(self, port: int, make: MakeRequest, connections: int, follow: Follow = lambda _: None) -> None:
        self._caller = HttpCaller(port, ATTACKER, 20)
        self._make = make
        self._follow = follow
        self._connections = connections
        self._statuses: Counter[str] = Counter()
        self._sent = 0
        self._selector = selectors.DefaultSelector()

    def run(self, seconds: float, requests: int | None = None) -> FloodTally:
        """Sends for so long, or so many requests; waits for the replies to the last ones only while there is time."""
        began = time.monotonic()
        end = began + seconds
        try:
            for _ in range(self._connections):
                self._connect(requests)
            while self._selector.get_map() and (left := end - time.monotonic()) > 0:
                for key, _ in self._selector.select(left):
                    self._receive(key, requests)
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
        return FloodTally(self._statuses, time.monotonic() - began)

    def _connect(self, requests: int | None) -> None:
        try:
            stream = self._caller.connect()
        except OSError:
            self._statuses["not connected"] += 1
            return
        self._selector.register(stream, selectors.EVENT_READ, _PendingReply())
        self._send(stream, requests)

    def _send(self, stream: socket.socket, requests: int | None, head: bytes = b"") -> None:
        data = self._follow(head) if head else None
        if data is None:
            if requests is not None and self._sent >= requests:
                self._end(stream)
                return
            data = self._make(self._sent)
            self._sent += 1
        with contextlib.suppress(OSError):  # what has become of it is read next
            stream.sendall(data)

    def _receive(self, key: selectors.SelectorKey, requests: int | None) -> None:
        stream, reply = key.fileobj, key.data
        assert isinstance(stream, socket.socket)
        data = b""
        with contextlib.suppress(OSError):
            data = stream.recv(1 << 18)
        if not data:
            self._statuses["closed"] += 1
            self._end(stream)
            self._connect(requests)
            return
        if reply.take(data):
            self._statuses[reply.status] += 1
            head = reply.head
            reply.clear()
            self._send(stream, requests, head)

    def _end(self, stream: socket.socket) -> None:
        self._selector.unregister(stream)
        stream.close()
