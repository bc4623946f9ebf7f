"""A server under attack: its process, its memory, the callers that attack it and the others that wait."""

import base64
import contextlib
import http.client
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import cbor2

from bench import messages
from bench.hostile.servers.options import GatewayOptions, ServerOptions
from bench.machine import CLIENT_CORE, run_on_core
from bench.peers import OURS
from bench.ports import find_free_port
from bench.server_process import ServerProcess
from deltamcp.values import Era

MEGABYTE = 1_000_000
MEMORY_CAP = 6_000 * MEGABYTE
"""A server that asks the system for more gets none: the attacks must not take the machine down."""
ATTACKER, OTHER = "127.0.0.1", "127.0.0.2"
"""The addresses that attackers and other callers come from."""
SERVED, GATEWAY = "served", "gateway"
"""The programs of this library's command line."""
_USUAL = ServerOptions()
_PAUSE_SECONDS = 0.004
_PROGRAM = Path(__file__).with_name("other_caller.py")


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class HttpReply(NamedTuple):
    status: int
    """0 if the server closed the connection without a reply."""
    body: bytes
    session: str | None = None

    @property
    def sentence(self) -> str:
        """What was answered, in a few words."""
        if not self.status:
            return "the connection was closed"
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            said = messages.parse_reply(self.body)
            if "error" in said:
                return f"{self.status} {said['error']['message'][:100]}"
            result = said["result"]
            text = result["content"][0]["text"][:100] if result.get("content") else "a result"
            return f"{self.status} {'error: ' if result.get('isError') else ''}{text}"
        return f"{self.status}"

    @property
    def result(self) -> dict[str, Any]:
        """The result of a request that succeeded.

        Raises:
            RuntimeError: the request failed.
        """
        try:
            result: dict[str, Any] = messages.parse_reply(self.body)["result"]
        except (ValueError, KeyError):
            raise RuntimeError(f"not a result: {self.status} {self.body[:300]!r}") from None
        return result


class AttackedServer:
    """A server program as a process, whose memory can be read. Leaving the `with` block kills it."""

    def __init__(self, name: str, options: ServerOptions | GatewayOptions = _USUAL, beside: Any = None) -> None:
        """
        Args:
            name: The library whose server it is, if the options need no other program.
            beside: How an attack uses what was started beside the server.
        """
        self.port = find_free_port()
        self.grpc_port = 0
        if isinstance(options, ServerOptions) and options.grpc_port:
            self.grpc_port = find_free_port()
            options = options._replace(grpc_port=self.grpc_port)
        self.options = options
        self.beside = beside
        self.program = options.program or name
        words = (str(self.port), options.encode())
        self._server = ServerProcess(self.program, *words, piped=False, package="bench.hostile.servers")
        self.process = self._server.process
        cap_memory(self.process.pid)
        put_first(self.process.pid)

    def __enter__(self) -> "AttackedServer":
        try:
            self._server.wait_for_port(self.port)
            if self.grpc_port:
                self._server.wait_for_port(self.grpc_port)
            if isinstance(self.options, ServerOptions) and not self.options.tokens and not self.options.introspection:
                self._warm_up()
            self.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def _warm_up(self) -> None:
        """Uses every feature once as callers do, so that what a server loads at its first use is not counted."""
        caller = HttpCaller(self.port, OTHER)
        caller.call("total", {"values": ["x"]})
        caller.call("no_such_tool", {})
        caller.call("echo", {"text": "x"})
        caller.request("resources/read", {"uri": "y://a-b-c-d!"})
        caller.request("prompts/get", {"name": "greet", "arguments": {"name": "x"}})
        caller.open_session()
        if self.program in (OURS, SERVED):
            body = cbor2.dumps(json.loads(messages.call(Era.MODERN, "echo", {"text": "x"})))
            caller.post(body, modern_headers("tools/call", "echo") | {"Content-Type": "application/cbor"})
            with contextlib.suppress(RuntimeError):  # nothing is stored where the store does not answer
                handle = caller.store("list_rows_in_parts")
                for more in ({"fields": "[?id>`9`]"}, {"fields": "id"}, {"grep": "user"}, {"offset": 50}):
                    caller.call("continue", {"handle": handle, **more})
                patch = [{"find": "x", "replace": "y"}]
                caller.call("echo", {"text": {"$result": handle, "path": "/0/email", "patch": patch}})
            caller.call("discover", {"query": "list users"})
            caller.call("execute", {"operation": "ech", "params": {}})

    @property
    def has_ended(self) -> str:
        """Why the process has ended; empty if it has not."""
        code = self.process.poll()
        return "" if code is None else f"the server has ended with {code}: {self._server.stderr_end()[-200:]}"

    def last_line(self, word: str) -> str:
        """The last line of its log with a word; empty if there is none."""
        found = [line for line in self._server.stderr_all().splitlines() if word in line]
        return found[-1].strip() if found else ""

    def cpu_seconds(self) -> float:
        return self._server.cpu_seconds()

    def settle(self) -> None:
        """Has the server return free memory to the system, if it still answers."""
        caller = HttpCaller(self.port, OTHER, seconds=10)
        with contextlib.suppress(OSError, http.client.HTTPException):
            if self.program in (OURS, SERVED, GATEWAY):
                self.process.send_signal(signal.SIGUSR1)
                caller.get("/healthz")  # it is answered after the signal
            else:
                caller.call("settle", {})


class HttpCaller:
    """Sends requests to a server, each on a connection of its own."""

    def __init__(self, port: int, source: str = ATTACKER, seconds: float = 60.0, token: str = "") -> None:
        self.port = port
        self.source = source
        self.seconds = seconds
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def connect(self) -> socket.socket:
        try:
            return socket.create_connection(("127.0.0.1", self.port), self.seconds, (self.source, 0))
        except OSError:
            if self.source == ATTACKER:
                raise
        # Only Linux has every address of the loopback's network.
        return socket.create_connection(("127.0.0.1", self.port), self.seconds)

    def post(self, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Posts to /mcp and reads the reply, even if the server replies before it has read the body.

        Raises:
            TimeoutError: there is no reply in time.
        """
        return self.ask("POST", "/mcp", body, headers)

    def get(self, path: str, headers: Mapping[str, str] = NO_HEADERS) -> HttpReply:
        return self.ask("GET", path, b"", headers)

    def ask(self, verb: str, path: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> HttpReply:
        """Sends a request of any kind, as `post` does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.seconds)
        connection.sock = self.connect()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(verb, path, body, {**self.headers, **headers})
            reply = connection.getresponse()
            return HttpReply(reply.status, reply.read(), reply.headers.get("Mcp-Session-Id"))
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            return HttpReply(0, b"")
        finally:
            connection.close()

    def request(self, method: str, params: dict[str, Any], session: str | None = None) -> HttpReply:
        """Sends a request of the modern era, or of a session."""
        era = Era.MODERN if session is None else Era.HANDSHAKE
        name = params.get("name", params.get("uri"))
        return self.post(messages.request(era, method, params), modern_headers(method, name, session))

    def call(self, tool: str, arguments: dict[str, Any], session: str | None = None) -> HttpReply:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, session)

    def store(self, tool: str, session: str | None = None, arguments: dict[str, Any] | None = None) -> str:
        """Calls a tool whose result is cut, and returns the handle of the whole.

        Raises:
            RuntimeError: nothing was stored.
        """
        reply = self.call(tool, arguments or {}, session)
        meta = reply.result.get("_meta", {}).get("io.github.delta-mcp/result", {})
        if "handle" not in meta:
            raise RuntimeError(f"{tool} was not stored: {reply.sentence}")
        handle: str = meta["handle"]
        return handle

    def open_session(self, client: bytes = b'{"name":"bench","version":"1"}') -> HttpReply:
        """Opens a handshake session with these bytes as `clientInfo`."""
        body = messages.initialize().replace(b'{"name": "bench", "version": "1"}', client)
        body = body.replace(b'{"name":"bench","version":"1"}', client)
        return self.post(body, messages.headers(None, "initialize"))

    def send(self, body: bytes, headers: Mapping[str, str], verb: str = "POST") -> socket.socket:
        """Sends a request and leaves the reply unread."""
        opened = self.connect()
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body)), **self.headers, **headers}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        opened.sendall("\r\n".join(lines).encode() + body)
        return opened


def modern_headers(method: str, name: Any = None, session: str | None = None) -> dict[str, str]:
    """The headers of a request; without the name if that is too long or too odd for one."""
    era = Era.MODERN if session is None else Era.HANDSHAKE
    fits = isinstance(name, str) and name.isascii() and name.isprintable() and len(name) < 8_000
    return messages.headers(era, method, name if fits else None, session)


class Waits(NamedTuple):
    """How long another caller waited, in seconds."""

    requests: int
    longest: float
    median: float
    failed: int


class OtherCallerProcess:
    """Another caller that sends one request every few milliseconds, from another process and another address."""

    def __init__(self, port: int, body: bytes, headers: Mapping[str, str] | None) -> None:
        """Without headers, `body` has the frames of a gRPC call."""
        request = body
        if headers is not None:
            sent = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), **headers}
            lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
            request = "\r\n".join(lines).encode() + body
        source = OTHER if sys.platform == "linux" else ""
        job = {
            "port": port,
            "source": source,
            "pause": _PAUSE_SECONDS,
            "request": base64.b64encode(request).decode(),
            "grpc": headers is None,
        }
        with run_on_core(CLIENT_CORE):
            self._process = subprocess.Popen(
                [sys.executable, "-EP", str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        put_first(self._process.pid, priority=2)
        self._tell(json.dumps(job))

    def __enter__(self) -> "OtherCallerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def report(self) -> Waits:
        """How long it waited since the last report."""
        self._tell("report")
        assert self._process.stdout is not None
        told = b""
        while not told.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], 30)[0]:
                raise RuntimeError("the other caller does not report")
            part = self._process.stdout.read(4096)
            if not part:
                raise RuntimeError("the other caller has ended")
            told += part
        return Waits(**json.loads(told))


def discover_request() -> tuple[bytes, dict[str, str]]:
    """The request by which other callers see how long a server makes them wait."""
    return messages.request(Era.MODERN, "server/discover"), messages.headers(Era.MODERN, "server/discover")


def call_request(tool: str, arguments: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    return messages.call(Era.MODERN, tool, arguments), messages.headers(Era.MODERN, "tools/call", tool)


def put_first(pid: int, priority: int = 1) -> None:
    """Puts a process before the attackers and before what else the machine does, on any core, if the system allows it.

    What others wait is then due to the server, and not to whoever else needs its core.
    """
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, range(os.cpu_count() or 1))
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(priority))


# Memory


def cap_memory(pid: int) -> None:
    """Bounds the address space of a process, where the system can do that."""
    if hasattr(resource, "prlimit"):
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_CAP, MEMORY_CAP))


def resident_bytes(pid: int, peak: bool = False) -> float:
    """The size of a process in memory, or the largest since `reset_peak`; NaN where the system does not tell."""
    name = "VmHWM:" if peak else "VmRSS:"
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024
    return float("nan")


def reset_peak(pid: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
