"""Load over HTTP on plain sockets, a process of its own: a job on stdin, what came of it on stdout.

in   {"port", "ids", "connections", "seconds", "headers", "before", "after", "path"}, in JSON
out  DONE {"requests", "microseconds", "bytes", "errors", "p50_us", "p99_us"}

It is run by its path and imports nothing of Delta-MCP, whose import would be a part of every load's start. A request
takes it 22 µs of CPU where wrk takes 17, and the bare server 33 and more: on its own core it keeps any server busy.
"""

import itertools
import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from httptools import HttpResponseParser


class LoadConnection:
    """One request at a time; the next goes out when the reply is whole."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.times: list[float] = []
        self.bytes = self.errors = 0
        self._requests = requests
        self._parser = HttpResponseParser(self)
        self._size = 0

    def send(self) -> None:
        self._began = time.perf_counter()
        self.socket.sendall(next(self._requests))

    def receive(self) -> None:
        """Reads what has arrived.

        Raises:
            ConnectionError: the server has closed.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("a connection was closed under load")
        self._size += len(data)
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.times.append(time.perf_counter() - self._began)
        self.bytes += self._size
        self.errors += self._parser.get_status_code() != 200
        self._size = 0
        self.send()


def load(job: dict[str, Any]) -> dict[str, float]:
    """Lasts until there was a reply at least; what is in flight at the end is not counted."""
    requests = itertools.cycle([request(job, place) for place in range(1, job["ids"] + 1)])
    connections = [LoadConnection(job["port"], requests) for _ in range(job["connections"])]
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        began = time.perf_counter()
        for connection in connections:
            connection.send()
        while (left := began + job["seconds"] - time.perf_counter()) > 0 or not any(one.times for one in connections):
            for key, _ in selector.select(max(left, 0.01)):
                key.data.receive()
        took = time.perf_counter() - began
    for connection in connections:
        connection.socket.close()
    times = sorted(itertools.chain.from_iterable(connection.times for connection in connections)) or [0.0]
    return {
        "requests": sum(len(connection.times) for connection in connections),
        "microseconds": took * 1e6,
        "bytes": sum(connection.bytes for connection in connections),
        "errors": sum(connection.errors for connection in connections),
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
    }


def request(job: dict[str, Any], id: int) -> bytes:
    body = f"{job['before']}{id}{job['after']}".encode()
    headers = {"Host": f"127.0.0.1:{job['port']}", **job["headers"], "Content-Length": str(len(body))}
    lines = [f"POST {job['path']} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


if __name__ == "__main__":
    sys.stdout.write(f"DONE {json.dumps(load(json.load(sys.stdin)))}\n")
