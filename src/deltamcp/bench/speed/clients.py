"""A side started and spoken to: over HTTP with the standard library's client, over stdio with bare pipes."""

import contextlib
import http.client
import itertools
import os
import socket
import time
from typing import NamedTuple

from deltamcp.bench.speed import messages
from deltamcp.bench.speed.machine import Child, deadline
from deltamcp.bench.speed.messages import Era
from deltamcp.bench.speed.sides import Side

START_SECONDS = 180.0
REPLY_SECONDS = 60.0


class HttpSide:
    """A side behind a port of the loopback."""

    def __init__(self, side: Side, tools: str, *arguments: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.child = Child(side, str(self.port), tools, *arguments, piped=False)
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_SECONDS)

    def __enter__(self) -> "HttpSide":
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.child.__exit__()

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.child.process.poll() is None:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise RuntimeError(f"{self.child.process.args!r} does not listen: {self.child.last_words()}")

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[bytes, str | None]:
        """The body of the reply and the session it names.

        Raises:
            RuntimeError: the reply is an error.
        """
        self._connection.request("POST", "/mcp", body, headers)
        reply = self._connection.getresponse()
        answer = reply.read()
        if reply.status not in (200, 202):
            raise RuntimeError(f"{self.child.process.args!r} answers {reply.status}: {answer[:500]!r}")
        return answer, reply.headers.get("Mcp-Session-Id")

    def handshake(self) -> str:
        """Opens a session and gives its id."""
        _, session = self.post(messages.initialize(), messages.headers(None, "initialize"))
        if session is None:
            raise RuntimeError(f"{self.child.process.args!r} opens no session")
        self.post(messages.INITIALIZED, messages.headers(Era.HANDSHAKE, "notifications/initialized", session=session))
        return session


class Load(NamedTuple):
    """What a side did under load."""

    per_second: float
    cpu_us: float
    """NaN where it is not known."""


class StdioSide:
    """A side behind two pipes, driven by blocking reads and writes."""

    def __init__(self, side: Side, tools: str) -> None:
        self.began = time.perf_counter()
        self.child = Child(side, "stdio", tools, piped=True)
        assert self.child.process.stdin is not None and self.child.process.stdout is not None
        self._to = self.child.process.stdin.fileno()
        self._from = self.child.process.stdout.fileno()

    def __enter__(self) -> "StdioSide":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()

    @property
    def age(self) -> float:
        """Seconds since just before the process was started."""
        return time.perf_counter() - self.began

    def ask(self, line: bytes, seconds: float = REPLY_SECONDS) -> bytes:
        """One round trip."""
        with deadline(seconds, f"a reply of {self.child.process.args!r}"):
            self._write(line + b"\n")
            parts = [self._read()]
            while not parts[-1].endswith(b"\n"):
                parts.append(self._read())
        return b"".join(parts)

    def handshake(self) -> None:
        self.ask(messages.initialize(), START_SECONDS)
        self._write(messages.INITIALIZED + b"\n")

    def load(self, lines: list[bytes], in_flight: int, seconds: float) -> Load:
        """Keeps so many requests in flight; a new one follows each reply."""
        following = itertools.cycle(line + b"\n" for line in lines)
        answered = 0
        with deadline(seconds + REPLY_SECONDS, f"the load on {self.child.process.args!r}"):
            cpu, began = self.child.cpu_seconds(), time.perf_counter()
            end = began + seconds
            self._write(b"".join(itertools.islice(following, in_flight)))
            while not answered or time.perf_counter() < end:
                done = self._read().count(b"\n")
                answered += done
                if done:
                    self._write(b"".join(itertools.islice(following, done)))
            took, used = time.perf_counter() - began, self.child.cpu_seconds() - cpu
            left = in_flight
            while left > 0:
                left -= self._read().count(b"\n")
        if left < 0:
            raise RuntimeError(f"{self.child.process.args!r} sends more than it was asked")
        return Load(answered / took, used / answered * 1e6)

    def _write(self, data: bytes) -> None:
        os.write(self._to, data)

    def _read(self) -> bytes:
        data = os.read(self._from, 1 << 16)
        if not data:
            raise RuntimeError(f"{self.child.process.args!r} has ended: {self.child.last_words()}")
        return data
