"""The server with misbehaving tools over HTTP, and a client that can be as rude as a test needs.

Nothing measures time: waits are bounded, and what must come first is asserted by order.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.conditions import HANG_SECONDS
from tests.support.fork_server import ForkedProcess, Start, fork
from tests.support.paths import MISBEHAVING_SERVER
from tests.support.processes import free_port, wait_until_it_listens
from tests.support.watched_process import WatchedProcess

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
SECRET = "hunter2-db-password"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
NUMBERS = itertools.count(1)


# The server


@dataclasses.dataclass(frozen=True)
class FaultServer(WatchedProcess):
    """One server process."""

    process: ForkedProcess
    port: int
    trace: Path
    log: Path

    def sockets(self) -> int:
        count = 0
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                count += str(entry.readlink()).startswith("socket:")
        return count


@contextlib.contextmanager
def fault_server(place: Path, **limits: float) -> Iterator[FaultServer]:
    place.mkdir(parents=True, exist_ok=True)
    port = free_port()
    trace, log = place / "trace", place / "log"
    environment = {**os.environ, "FAULTS_TRACE": str(trace), "FAULTS_LIMITS": json.dumps(limits)}
    start = Start(["serve", str(MISBEHAVING_SERVER), "--http", f"127.0.0.1:{port}"], str(Path.cwd()), environment)
    with log.open("wb") as errors, Path(os.devnull).open() as nothing:
        process = fork(start, nothing.fileno(), errors.fileno(), errors.fileno())
    try:
        wait_until_it_listens(process, port)
        yield FaultServer(process, port, trace, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(HANG_SECONDS)


# A client that can be as rude as a test needs


class HttpReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The JSON-RPC message in the body: all of it, or the last event of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return list(parse_events(self.body))[-1]
        assert self.headers.get("content-type") == "application/json", (self.status, self.headers, self.body[:200])
        return json.loads(self.body, parse_constant=refuse_constant)

    def error(self) -> dict[str, Any]:
        """The error, of a body that is nothing but a well-formed JSON-RPC error."""
        message = self.json()
        assert set(message) == {"jsonrpc", "id", "error"}, message
        assert message["jsonrpc"] == "2.0"
        assert type(message["error"]["code"]) is int
        assert message["error"]["message"]
        assert "\n" not in message["error"]["message"], "one sentence"
        found = message["error"]
        assert isinstance(found, dict)
        return found

    def result(self) -> dict[str, Any]:
        message = self.json()
        assert message["jsonrpc"] == "2.0"
        found = message["result"]
        assert isinstance(found, dict)
        return found

    def text(self) -> str:
        """The text of a tool's result."""
        return "".join(item.get("text", "") for item in self.result()["content"])


def refuse_constant(word: str) -> None:
    raise AssertionError(f"{word} on the wire")


def parse_events(body: bytes) -> Iterator[Any]:
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:"))
        if data:
            yield json.loads(data, parse_constant=refuse_constant)


class HttpWire:
    """One connection; HTTP/1.1 read by hand.

    A plain socket, not asyncio's streams: those forget what has been received once a write fails.
    """

    def __init__(self, plug: socket.socket) -> None:
        self.plug = plug
        self.buffer = b""
        self.over = False

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(port: int, patience: float = HANG_SECONDS, address: str = "127.0.0.1") -> "AsyncIterator[HttpWire]":
        async with asyncio.timeout(patience):
            with socket.socket() as plug:
                plug.setblocking(False)
                plug.bind((address, 0))
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", port))
                yield HttpWire(plug)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.plug, data)

    async def pour(self, pieces: Iterable[bytes]) -> None:
        """Sends for as long as the server takes it."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                await self.send(piece)

    async def more(self) -> None:
        try:
            data = await asyncio.get_running_loop().sock_recv(self.plug, 262_144)
        except ConnectionError:
            data = b""
        self.buffer += data
        self.over = not data

    async def take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if self.over:
                raise ConnectionAbortedError(f"hung up after {self.buffer[:300]!r}")
            await self.more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    async def take_through(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if self.over:
                raise ConnectionAbortedError(f"hung up after {self.buffer[:300]!r}")
            await self.more()
        return await self.take(self.buffer.index(mark) + len(mark))

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = await self.take_through(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        version, status, *_ = first.split(" ", 2)
        assert version == "HTTP/1.1", first
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(status), headers

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; nothing where it ends as it should."""
        size = int((await self.take_through(b"\r\n")).split(b";")[0], 16)
        data = await self.take(size)
        assert await self.take(2) == b"\r\n"
        return data

    async def reply(self) -> HttpReply:
        """One whole response; fails where the body does not end as its framing says."""
        status, headers = await self.head()
        if status == 100:
            status, headers = await self.head()
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            pieces = []
            while piece := await self.chunk():
                pieces.append(piece)
            body = b"".join(pieces)
        elif "content-length" in headers:
            body = await self.take(int(headers["content-length"]))
        elif status not in {202, 204, 304}:
            body = await self.ended()
        return HttpReply(status, headers, body)

    async def event(self) -> Any:
        """The next message of an event stream whose head has been read; None where it ends as it should."""
        while piece := await self.chunk():
            found = list(parse_events(piece))
            if found:
                assert len(found) == 1, found
                return found[0]
        return None

    async def ended(self) -> bytes:
        """What still comes before the server hangs up."""
        while not self.over:
            await self.more()
        taken, self.buffer = self.buffer, b""
        return taken


@contextlib.asynccontextmanager
async def run_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Something that goes on while the block runs, and no longer."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def header_lines(headers: dict[str, str | None]) -> bytes:
    return b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items() if value is not None)


def request_bytes(
    port: int, body: bytes | None, headers: dict[str, str | None], verb: str = "POST", path: str = "/mcp"
) -> bytes:
    """One HTTP request; a header given as None is left out."""
    every: dict[str, str | None] = {"Host": f"127.0.0.1:{port}"}
    if body is not None:
        every |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        every["Content-Length"] = str(len(body))
    every |= headers
    return f"{verb} {path} HTTP/1.1\r\n".encode() + header_lines(every) + b"\r\n" + (body or b"")


async def send_http(
    port: int, body: bytes | None, headers: dict[str, str | None], verb: str = "POST", path: str = "/mcp"
) -> HttpReply:
    async with HttpWire.open(port) as wire:
        await wire.send(request_bytes(port, body, headers, verb, path))
        return await wire.reply()


def modern_headers(method: str, params: dict[str, Any]) -> dict[str, str | None]:
    name = params.get("name", params.get("uri"))
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": name if isinstance(name, str) else None}


def message(method: str, params: dict[str, Any] | None = None, id_: Any = None) -> bytes:
    value: dict[str, Any] = {"jsonrpc": "2.0", "id": next(NUMBERS) if id_ is None else id_, "method": method}
    if params is not None:
        value["params"] = params
    return json.dumps(value).encode()


def notification(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def call_params(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


async def initialize(port: int, version: str = LEGACY, capabilities: dict[str, Any] | None = None) -> HttpReply:
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "hostile", "version": "1"},
    }
    reply = await send_http(port, message("initialize", params), {})
    assert reply.status == 200, reply
    return reply


async def open_session(port: int, version: str = LEGACY) -> dict[str, str | None]:
    """The headers of a session of its own."""
    opened = await initialize(port, version)
    headers: dict[str, str | None] = {
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "MCP-Protocol-Version": opened.result()["protocolVersion"],
    }
    started = await send_http(port, notification("notifications/initialized", {}), headers)
    assert started.status == 202
    return headers


class HttpEra:
    """How one era frames a request."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modern = name == "modern"

    async def headers(self, port: int, method: str = "tools/call", params: dict[str, Any] | None = None) -> Any:
        if self.modern:
            return modern_headers(method, call_params("echo") if params is None else params)
        return await open_session(port)

    def body(self, method: str, params: dict[str, Any], id_: Any = None) -> bytes:
        if self.modern:
            params = {**params, "_meta": {**META, **params.get("_meta", {})}}
        return message(method, params, id_)

    def plain(self, body: bytes) -> bytes:
        """A body written for the modern era, without what only that has."""
        return body if self.modern else body.replace(b',"_meta":' + json.dumps(META).encode(), b"")

    async def ask(self, port: int, method: str, params: dict[str, Any], id_: Any = None) -> HttpReply:
        return await send_http(port, self.body(method, params, id_), await self.headers(port, method, params))

    async def call(self, port: int, tool: str, **arguments: Any) -> HttpReply:
        return await self.ask(port, "tools/call", call_params(tool, **arguments))


ERAS = [HttpEra("modern"), HttpEra("handshake")]
both_eras = pytest.mark.parametrize("era", ERAS, ids=[era.name for era in ERAS])
in_modern, in_handshake = ERAS


async def still_serves(port: int) -> None:
    for era in ERAS:
        assert (await era.call(port, "add", a=2, b=3)).text() == "5"


# Bodies that are no message


def echo_body(value: bytes, id_: bytes = b"1") -> bytes:
    """A modern or handshake call of echo with a value pasted in as it stands."""
    meta = json.dumps(META).encode()
    return (
        b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"tools/call","params":{"name":"echo","arguments":{"value":'
        b"" + value + b'},"_meta":' + meta + b"}}"
    )


def nested(levels: int) -> bytes:
    """Arrays that make the whole message `levels` deep: message, params and arguments are three of them."""
    return b"[" * (levels - 3) + b"]" * (levels - 3)


# Streams that wait


async def open_listen(wire: HttpWire, port: int, id_: Any = "listen") -> None:
    params = {"notifications": {"toolsListChanged": True}}
    await wire.send(
        request_bytes(
            port, in_modern.body("subscriptions/listen", params, id_), modern_headers("subscriptions/listen", {})
        )
    )
    status, headers = await wire.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    first = await wire.event()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["_meta"][SUBSCRIPTION] == id_


async def open_stream(wire: HttpWire, port: int, headers: dict[str, str | None]) -> None:
    await wire.send(request_bytes(port, None, {**headers, "Accept": "text/event-stream"}, "GET"))
    status, found = await wire.head()
    assert (status, found["content-type"]) == (200, "text/event-stream")


LARGE = 100 * 1024 * 1024

SLACK = 24 * 1024 * 1024


REFUSED_EARLY: dict[str, tuple[str, str, dict[str, str | None], int]] = {
    "wrong path": ("POST", "/elsewhere", {}, 404),
    "wrong method": ("PUT", "/mcp", {}, 405),
    "wrong host": ("POST", "/mcp", {"Host": "evil.example.com"}, 421),
    "wrong media type": ("POST", "/mcp", {"Content-Type": "text/plain"}, 415),
    "compressed": ("POST", "/mcp", {"Content-Encoding": "gzip"}, 415),
}


SLOW_REQUESTS = {
    "headers": (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", b"X-Slow: x\r\n"),
    "request line": (b"POST /", b"x"),
    "body": (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\nContent-Length: 100000\r\n\r\n",
        b" ",
    ),
    "chunked body": (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\n \r\n",
    ),
}
