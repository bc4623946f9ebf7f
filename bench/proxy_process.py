"""A program between a client and servers, or one of these servers itself, asked one request at a time."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bench import messages
from bench.machine import deadline
from bench.peers import ROOT
from bench.ports import wait_for_port
from bench.server_process import REPLY_SECONDS
from deltamcp.values import Era


class ProxyProcess:
    """A process with pipes; leaving the `with` block kills it and what it started."""

    def __init__(self, words: Sequence[str], folder: str) -> None:
        """`folder` is where it keeps files of its user."""
        self.began = time.perf_counter()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        homes = {f"XDG_{name}_HOME": folder for name in ("CONFIG", "CACHE", "STATE")}
        quiet = {"FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"}
        self.process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **homes, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
        )

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._errors.close()

    def stderr_end(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace")


class Front(Protocol):
    """What a client talks to."""

    def ask(self, body: bytes) -> bytes:
        """Sends a request and returns the reply to it."""
        ...

    def close(self) -> None: ...


class PipeFront:
    """Pipes to a process; the client introduces itself as the handshake era asks, which all proxies know."""

    def __init__(self, words: Sequence[str], folder: str) -> None:
        self.server = ProxyProcess(words, folder)
        assert self.server.process.stdin is not None and self.server.process.stdout is not None
        self._to, self._from = self.server.process.stdin.fileno(), self.server.process.stdout.fileno()
        self._read = b""
        try:
            self.ask(messages.initialize())
            os.write(self._to, messages.INITIALIZED + b"\n")
        except BaseException:
            self.close()
            raise

    def ask(self, body: bytes) -> bytes:
        with deadline(REPLY_SECONDS, f"a reply of {self.server.process.args!r}"):
            os.write(self._to, body + b"\n")
            while True:
                line = self._line()
                if b'"method"' not in line[:200]:  # a notification, or a request that nobody answers here
                    return line

    def _line(self) -> bytes:
        while b"\n" not in self._read:
            data = os.read(self._from, 1 << 16)
            if not data:
                raise RuntimeError(f"{self.server.process.args!r} has ended: {self.server.stderr_end()}")
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def close(self) -> None:
        self.server.close()


class HttpFront:
    """A session at a port, over one connection that stays open."""

    def __init__(self, port: int, words: Sequence[str] = (), folder: str = "") -> None:
        """`words` start the server, unless it runs already."""
        self.server = ProxyProcess(words, folder) if words else None
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_SECONDS)
        self._headers = messages.headers(None, "initialize")
        try:
            if self.server is not None:
                wait_for_port(port, self.server.process)
            self.ask(messages.initialize())
            self.ask(messages.INITIALIZED)
        except BaseException:
            self.close()
            raise

    def ask(self, body: bytes) -> bytes:
        try:
            reply = self._post(body)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            self._connection.close()  # a server closes a connection that nobody uses for seconds
            reply = self._post(body)
        answer = reply.read()
        if reply.status not in (200, 202):
            raise RuntimeError(f"the proxy answers {reply.status}: {answer[:500]!r}")
        session = reply.headers.get("Mcp-Session-Id")
        if session is not None:
            self._headers = messages.headers(Era.HANDSHAKE, "tools/call", session=session)
        return answer

    def _post(self, body: bytes) -> http.client.HTTPResponse:
        self._connection.request("POST", "/mcp", body, self._headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()
        if self.server is not None:
            self.server.close()


def listed_names(front: Front) -> list[str]:
    """The names of the tools that a client of the handshake era is shown."""
    reply: Any = messages.parse_reply(front.ask(messages.request(Era.HANDSHAKE, "tools/list")))
    return [tool["name"] for tool in reply["result"]["tools"]]


def write_config(path: str, entries: dict[str, dict[str, Any]]) -> str:
    """Writes an `mcpServers` file, and returns its path."""
    Path(path).write_text(json.dumps({"mcpServers": entries}))
    return path
