"""A server under measurement as a process, asked over HTTP with the standard library's client or over bare pipes."""

import contextlib
import http.client
import itertools
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench import messages
from bench.machine import CLIENT_CORE, SERVER_CORE, deadline, run_on_core
from bench.peers import ROOT
from bench.ports import START_SECONDS, find_free_port, wait_for_port
from deltamcp.values import Era

REPLY_SECONDS = 60.0

_running: set["ServerProcess"] = set()


class ServerProcess:
    """One process of one server program. Leaving the `with` block kills it."""

    def __init__(self, name: str, *arguments: str, piped: bool, package: str = "bench.servers") -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with run_on_core(SERVER_CORE):
            self.process = subprocess.Popen(
                [sys.executable, "-E", "-m", f"{package}.{name}", *arguments],
                cwd=ROOT,
                env={**os.environ, "FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"},
                stdin=pipe,
                stdout=pipe,
                stderr=self._errors,
                bufsize=0,
            )
        _running.add(self)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                stream.close()
        _running.discard(self)

    def cpu_seconds(self) -> float:
        """User and system time so far; NaN where the system does not tell."""
        # What clock_getcpuclockid(3) makes of a pid, which Python does not offer; /proc tells hundredths of a second.
        return time.clock_gettime(~self.process.pid << 3 | 2) if sys.platform == "linux" else math.nan

    def wait_for_port(self, port: int) -> None:
        """Returns when it listens at a port.

        Raises:
            RuntimeError: it ended, or does not listen in time.
        """
        try:
            wait_for_port(port, self.process)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {self.stderr_end()}") from None

    def stderr_all(self) -> str:
        """Everything that it wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def stderr_end(self) -> str:
        """The end of what it wrote to stderr, to say why it failed."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        return self._errors.read().decode(errors="replace")


@contextlib.contextmanager
def run_as_client() -> Iterator[None]:
    """Runs this process, the client, on its core; SIGTERM interrupts it like Ctrl-C; servers are killed at the end."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with run_on_core(CLIENT_CORE):
            yield
    finally:
        for server in list(_running):
            server.__exit__()
        signal.signal(signal.SIGTERM, before)


class HttpServerProcess:
    """A server process behind a port of the loopback."""

    def __init__(self, name: str, tools: str, *arguments: str, package: str = "bench.servers") -> None:
        self.port = find_free_port()
        self.server = ServerProcess(name, str(self.port), tools, *arguments, piped=False, package=package)
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_SECONDS)

    def __enter__(self) -> "HttpServerProcess":
        try:
            self.server.wait_for_port(self.port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.server.__exit__()

    def post(self, body: bytes, headers: dict[str, str], path: str = "/mcp") -> tuple[bytes, str | None]:
        """Posts a body; gives the body of the reply and the session it names.

        Raises:
            RuntimeError: the reply is an error.
        """
        self._connection.request("POST", path, body, headers)
        reply = self._connection.getresponse()
        answer = reply.read()
        if reply.status not in (200, 202):
            raise RuntimeError(f"{self.server.process.args!r} answers {reply.status}: {answer[:500]!r}")
        return answer, reply.headers.get("Mcp-Session-Id")

    def handshake(self) -> str:
        """Opens a session and gives its id."""
        _, session = self.post(messages.initialize(), messages.headers(None, "initialize"))
        if session is None:
            raise RuntimeError(f"{self.server.process.args!r} opens no session")
        self.post(messages.INITIALIZED, messages.headers(Era.HANDSHAKE, "notifications/initialized", session=session))
        return session


class StdioLoad(NamedTuple):
    """What a server did under load."""

    per_second: float
    cpu_us: float
    """NaN where it is not known."""


class StdioServerProcess:
    """A server process behind two pipes, driven by blocking reads and writes."""

    def __init__(self, name: str, tools: str) -> None:
        self.began = time.perf_counter()
        self.server = ServerProcess(name, "stdio", tools, piped=True)
        assert self.server.process.stdin is not None and self.server.process.stdout is not None
        self._to = self.server.process.stdin.fileno()
        self._from = self.server.process.stdout.fileno()

    def __enter__(self) -> "StdioServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    @property
    def age(self) -> float:
        """Seconds since just before the process was started."""
        return time.perf_counter() - self.began

    def ask(self, line: bytes, seconds: float = REPLY_SECONDS) -> bytes:
        """Sends a line and reads the line that answers it."""
        with deadline(seconds, f"a reply of {self.server.process.args!r}"):
            self._write(line + b"\n")
            parts = [self._read()]
            while not parts[-1].endswith(b"\n"):
                parts.append(self._read())
        return b"".join(parts)

    def handshake(self) -> None:
        """Introduces the client as the handshake era asks."""
        self.ask(messages.initialize(), START_SECONDS)
        self._write(messages.INITIALIZED + b"\n")

    def load(self, lines: list[bytes], in_flight: int, seconds: float) -> StdioLoad:
        """Keeps so many requests in flight; a new one follows each reply."""
        following = itertools.cycle(line + b"\n" for line in lines)
        answered = 0
        with deadline(seconds + REPLY_SECONDS, f"the load on {self.server.process.args!r}"):
            cpu, began = self.server.cpu_seconds(), time.perf_counter()
            end = began + seconds
            self._write(b"".join(itertools.islice(following, in_flight)))
            while not answered or time.perf_counter() < end:
                done = self._read().count(b"\n")
                answered += done
                if done:
                    self._write(b"".join(itertools.islice(following, done)))
            took, used = time.perf_counter() - began, self.server.cpu_seconds() - cpu
            left = in_flight
            while left > 0:
                left -= self._read().count(b"\n")
        if left < 0:
            raise RuntimeError(f"{self.server.process.args!r} sends more than it was asked")
        return StdioLoad(answered / took, used / answered * 1e6)

    def _write(self, data: bytes) -> None:
        os.write(self._to, data)

    def _read(self) -> bytes:
        data = os.read(self._from, 1 << 16)
        if not data:
            raise RuntimeError(f"{self.server.process.args!r} has ended: {self.server.stderr_end()}")
        return data
