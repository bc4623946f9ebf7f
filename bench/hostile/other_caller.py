"""Another caller of a server under attack, a process of its own: sends one request again and again and times it.

in   a line of JSON: {"port", "source", "request", "pause", "grpc"}; then a line for each report
out  for each report a line of JSON on the requests since the last: {"requests", "longest", "median", "failed"}, in s

`@NUMBER@` in the request is another number in each. With `grpc` it is the frames of a call, which is the first of a
connection of its own. A request that is not answered yet counts with the time it has
waited. The caller comes from an address of its own. The program is run by its path and imports nothing of Delta-MCP.
"""

import base64
import contextlib
import json
import os
import selectors
import socket
import statistics
import sys
import time
from typing import Any

NUMBER = "@NUMBER@"


class OtherCaller:
    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._request = base64.b64decode(job["request"])
        self._socket: socket.socket | None = None
        self._began: float | None = None
        self._reply = b""
        self._times: list[float] = []
        self._failed = 0
        self._number = 0

    def run(self) -> None:
        """Sends until stdin closes."""
        with selectors.DefaultSelector() as selector:
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            due = time.perf_counter()
            while True:
                now = time.perf_counter()
                if self._began is None and now >= due:
                    self._send(selector)
                wait = 0.2 if self._began is not None else max(0.0, due - now)
                for key, _ in selector.select(wait):
                    if key.fileobj is self._socket:
                        if self._receive(selector):
                            due = time.perf_counter() + self._job["pause"]
                    elif not os.read(sys.stdin.fileno(), 4096):
                        return
                    else:
                        self._report()

    def _send(self, selector: selectors.BaseSelector) -> None:
        self._began = time.perf_counter()
        try:
            if self._socket is None:
                address, source = ("127.0.0.1", self._job["port"]), self._job["source"]
                self._socket = socket.create_connection(address, 5, (source, 0) if source else None)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(self._socket, selectors.EVENT_READ)
            self._number += 1
            self._socket.sendall(self._request.replace(NUMBER.encode(), b"%08d" % self._number))
        except OSError:
            self._fail(selector)

    def _receive(self, selector: selectors.BaseSelector) -> bool:
        """Reads what has arrived; whether the reply is whole."""
        assert self._socket is not None and self._began is not None
        data = b""
        with contextlib.suppress(OSError):
            data = self._socket.recv(1 << 18)
        if not data:
            self._fail(selector)
            return True
        self._reply += data
        if self._job["grpc"]:
            is_over, is_good = read_frames(self._reply)
        else:
            is_over, is_good = is_whole(self._reply), self._reply.startswith(b"HTTP/1.1 200")
        if not is_over:
            return False
        self._times.append(time.perf_counter() - self._began)
        self._failed += not is_good
        self._began, self._reply = None, b""
        if self._job["grpc"]:
            self._disconnect(selector)
        return True

    def _fail(self, selector: selectors.BaseSelector) -> None:
        """Ends a request that failed, and its connection."""
        assert self._began is not None
        self._failed += 1
        self._times.append(time.perf_counter() - self._began)
        self._began, self._reply = None, b""
        self._disconnect(selector)
        time.sleep(0.01)

    def _disconnect(self, selector: selectors.BaseSelector) -> None:
        if self._socket is not None:
            selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def _report(self) -> None:
        times = self._times
        if self._began is not None:
            times = [*times, time.perf_counter() - self._began]
        told = {
            "requests": len(times),
            "longest": max(times, default=0.0),
            "median": statistics.median(times) if times else 0.0,
            "failed": self._failed,
        }
        print(json.dumps(told), flush=True)
        self._times, self._failed = [], 0


def is_whole(reply: bytes) -> bool:
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return body.endswith(b"0\r\n\r\n")


def read_frames(reply: bytes) -> tuple[bool, bool]:
    """Whether the frames of an HTTP/2 server (RFC 9113, 4.1) have the end of a stream, and data before it."""
    at, has_data = 0, False
    while at + 9 <= len(reply):
        end = at + 9 + int.from_bytes(reply[at : at + 3])
        kind, flags = reply[at + 3], reply[at + 4]
        if end > len(reply):
            break
        has_data = has_data or kind == 0
        if kind in (0, 1) and flags & 1:
            return True, has_data
        at = end
    return False, has_data


if __name__ == "__main__":
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as given:
        OtherCaller(json.loads(given.readline())).run()
