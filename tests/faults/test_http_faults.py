"""Faults over Streamable HTTP, against a process of its own and over real sockets.

Every row of the fault table is here in both eras where both have it. Nothing measures time: waits are bounded, and
what must come first is asserted by order.
"""

import asyncio
import base64
import contextlib
import dataclasses
import gzip
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.process import Watched

HERE = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("delta-mcp")
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
SECRET = "hunter2-db-password"
PATIENCE = 15.0
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
NUMBERS = itertools.count(1)

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")


# The server


@dataclasses.dataclass(frozen=True)
class Served(Watched):
    """One server process."""

    process: "subprocess.Popen[bytes]"
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
def serving(place: Path, **limits: float) -> Iterator[Served]:
    place.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    trace, log = place / "trace", place / "log"
    environment = {**os.environ, "FAULTS_TRACE": str(trace), "FAULTS_LIMITS": json.dumps(limits)}
    command = [str(PROGRAM), "serve", str(HERE / "server.py"), "--http", f"127.0.0.1:{port}"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, "the server does not listen"
                time.sleep(0.02)
        yield Served(process, port, trace, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server most tests share; whatever one test does to it the next one feels."""
    place = tmp_path_factory.mktemp("http")
    with serving(place, header_seconds=1, body_seconds=1, threads=8, stall_seconds=0.2) as server:
        yield server
        assert server.process.poll() is None, server.logged()


# A client that can be as rude as a test needs


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The JSON-RPC message in the body: all of it, or the last event of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return list(events(self.body))[-1]
        assert self.headers.get("content-type") == "application/json", (self.status, self.headers, self.body[:200])
        return json.loads(self.body, parse_constant=refuse)

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


def refuse(word: str) -> None:
    raise AssertionError(f"{word} on the wire")


def events(body: bytes) -> Iterator[Any]:
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:"))
        if data:
            yield json.loads(data, parse_constant=refuse)


class Wire:
    """One connection; HTTP/1.1 read by hand.

    A plain socket, not asyncio's streams: those forget what has been received once a write fails.
    """

    def __init__(self, plug: socket.socket) -> None:
        self.plug = plug
        self.buffer = b""
        self.over = False

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(port: int, patience: float = PATIENCE) -> "AsyncIterator[Wire]":
        async with asyncio.timeout(patience):
            with socket.socket() as plug:
                plug.setblocking(False)
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", port))
                yield Wire(plug)

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

    async def reply(self) -> Reply:
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
        return Reply(status, headers, body)

    async def event(self) -> Any:
        """The next message of an event stream whose head has been read; None where it ends as it should."""
        while piece := await self.chunk():
            found = list(events(piece))
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
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
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


def framed(
    port: int, body: bytes | None, headers: dict[str, str | None], verb: str = "POST", path: str = "/mcp"
) -> bytes:
    """One HTTP request; a header given as None is left out."""
    every: dict[str, str | None] = {"Host": f"127.0.0.1:{port}"}
    if body is not None:
        every |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        every["Content-Length"] = str(len(body))
    every |= headers
    return f"{verb} {path} HTTP/1.1\r\n".encode() + header_lines(every) + b"\r\n" + (body or b"")


async def http(
    port: int, body: bytes | None, headers: dict[str, str | None], verb: str = "POST", path: str = "/mcp"
) -> Reply:
    async with Wire.open(port) as wire:
        await wire.send(framed(port, body, headers, verb, path))
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


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


async def initialize(port: int, version: str = LEGACY, capabilities: dict[str, Any] | None = None) -> Reply:
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "hostile", "version": "1"},
    }
    reply = await http(port, message("initialize", params), {})
    assert reply.status == 200, reply
    return reply


async def session(port: int, version: str = LEGACY) -> dict[str, str | None]:
    """The headers of a session of its own."""
    opened = await initialize(port, version)
    headers: dict[str, str | None] = {
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "MCP-Protocol-Version": opened.result()["protocolVersion"],
    }
    started = await http(port, notification("notifications/initialized", {}), headers)
    assert started.status == 202
    return headers


class Era:
    """How one era frames a request."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modern = name == "modern"

    async def headers(self, port: int, method: str = "tools/call", params: dict[str, Any] | None = None) -> Any:
        if self.modern:
            return modern_headers(method, called("echo") if params is None else params)
        return await session(port)

    def body(self, method: str, params: dict[str, Any], id_: Any = None) -> bytes:
        if self.modern:
            params = {**params, "_meta": {**META, **params.get("_meta", {})}}
        return message(method, params, id_)

    def plain(self, body: bytes) -> bytes:
        """A body written for the modern era, without what only that has."""
        return body if self.modern else body.replace(b',"_meta":' + json.dumps(META).encode(), b"")

    async def ask(self, port: int, method: str, params: dict[str, Any], id_: Any = None) -> Reply:
        return await http(port, self.body(method, params, id_), await self.headers(port, method, params))

    async def call(self, port: int, tool: str, **arguments: Any) -> Reply:
        return await self.ask(port, "tools/call", called(tool, **arguments))


ERAS = [Era("modern"), Era("handshake")]
both_eras = pytest.mark.parametrize("era", ERAS, ids=[era.name for era in ERAS])
in_modern, in_handshake = ERAS


async def still_serves(port: int) -> None:
    for era in ERAS:
        assert (await era.call(port, "add", a=2, b=3)).text() == "5"


async def until(condition: Callable[[], bool], what: str) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            return
    raise AssertionError(f"never came: {what}")


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


NOT_MESSAGES = {
    "words": (b"this is not JSON", -32700),
    "nothing": (b"", -32700),
    "blank": (b" \r\n\t ", -32700),
    "half a message": (b'{"jsonrpc":"2.0","id":1,"meth', -32700),
    "a message and more": (echo_body(b"1") + b"}", -32700),
    "two messages": (echo_body(b"1") + b"\n" + echo_body(b"1"), -32700),
    "trailing comma": (echo_body(b"[1,]"), -32700),
    "single quotes": (b"{'jsonrpc':'2.0'}", -32700),
    "null byte": (echo_body(b'"\x00"'), -32700),
    "raw newline in text": (echo_body(b'"a\nb"'), -32700),
    "byte order mark, UTF-16": (echo_body(b"1").decode().encode("utf-16"), -32700),
    "nesting 129": (echo_body(nested(129)), -32700),
    "nesting 900": (echo_body(nested(900)), -32700),
    "nesting 10,000": (echo_body(nested(10_000)), -32700),
    "nesting 1,000,000 that never closes": (b"[" * 1_000_000, -32700),
    "objects 10,000 deep": (echo_body(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), -32700),
    "invalid UTF-8": (echo_body(b'"\xff\xfe"'), -32700),
    "overlong UTF-8": (echo_body(b'"\xc0\xaf"'), -32700),
    "invalid UTF-8 in a key, beside an escape": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","\x80":"\\u0041"}',
        -32700,
    ),
    "UTF-8 of a surrogate": (echo_body(b'"\xed\xa0\x80"'), -32700),
    "lone high surrogate": (echo_body(rb'"\ud800"'), -32700),
    "lone low surrogate": (echo_body(rb'"\udc00 text"'), -32700),
    "surrogates the wrong way round": (echo_body(rb'"\udc00\ud800"'), -32700),
    "integer of 5,000 digits": (echo_body(b"9" * 5_000), -32700),
    "1e400": (echo_body(b"1e400"), -32700),
    "-1e400": (echo_body(b"-1e400"), -32700),
    "NaN": (echo_body(b"NaN"), -32700),
    "Infinity": (echo_body(b"Infinity"), -32700),
    "-Infinity": (echo_body(b"-Infinity"), -32700),
    "leading zero": (echo_body(b"01"), -32700),
    "hexadecimal": (echo_body(b"0x10"), -32700),
    "a number": (b"1", -32600),
    "null": (b"null", -32600),
    "text": (b'"tools/call"', -32600),
    "an empty object": (b"{}", -32600),
    "empty batch": (b"[]", -32600),
    "batch": (b"[" + echo_body(b"1") + b"," + echo_body(b"2", b"2") + b"]", -32600),
    "batch of rubbish": (b"[1,2,3]", -32600),
    "id null": (echo_body(b"1", b"null"), -32600),
    "id float": (echo_body(b"1", b"1.5"), -32600),
    "id true": (echo_body(b"1", b"true"), -32600),
    "id object": (echo_body(b"1", b"{}"), -32600),
    "id array": (echo_body(b"1", b"[1]"), -32600),
    "id of 1 MB": (echo_body(b"1", b'"' + b"x" * 1_000_000 + b'"'), -32600),
    "id of 257 characters": (echo_body(b"1", b'"' + b"x" * 257 + b'"'), -32600),
    "id of 300 digits": (echo_body(b"1", b"1" * 300), -32600),
    "no jsonrpc": (b'{"id":1,"method":"tools/list"}', -32600),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', -32600),
    "jsonrpc a number": (b'{"jsonrpc":2.0,"id":1,"method":"tools/list"}', -32600),
    "method a number": (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    "method null": (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600),
    "params a number": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":7}', -32600),
    "params an array": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32600),
    "neither call nor answer": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "id twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', -32600),
    "method twice": (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list"}', -32600),
    "method twice, once in escapes": (
        rb'{"jsonrpc":"2.0","id":1,"method":"tools/list","\u006dethod":"tools/call"}',
        -32600,
    ),
    "params twice": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{},"params":{}}', -32600),
    "jsonrpc twice": (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/list"}', -32600),
}


@both_eras
@pytest.mark.parametrize("fault", NOT_MESSAGES)
async def test_a_body_that_is_no_message_gets_400_with_the_right_code(served: Served, era: Era, fault: str) -> None:
    body, code = NOT_MESSAGES[fault]
    reply = await http(served.port, era.plain(body), await era.headers(served.port))
    assert (reply.status, reply.error()["code"]) == (400, code), reply.body[:300]
    assert len(reply.body) < 1_000, "the fault is not sent back"


async def test_a_broken_body_without_any_header_of_an_era_gets_400_too(served: Served) -> None:
    for fault in ("words", "nothing", "batch of rubbish", "id null", "nesting 10,000", "invalid UTF-8", "id of 1 MB"):
        body, code = NOT_MESSAGES[fault]
        reply = await http(served.port, body, {})
        assert (reply.status, reply.error()["code"]) == (400, code), fault
    await still_serves(served.port)


# The same faults where the server has no reason to look

HIDDEN_PLACES = {
    "beside the envelope": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%META%},"x":%FAULT%}',
    "in unknown params": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%META%,"x":%FAULT%}}',
    "in _meta": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":%FAULT%,%INNER%}}}',
    "in a notification": b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"x":%FAULT%}}',
    "in a result": b'{"jsonrpc":"2.0","id":1,"result":{"x":%FAULT%}}',
}
HIDDEN_FAULTS = {
    "nesting": b"[" * 200 + b"]" * 200,
    "invalid UTF-8": b'"\xff"',
    "lone surrogate": rb'"\ud83d"',
    "lone surrogate as key": rb'{"\ud83d":1}',
    "1e400": b"1e400",
    "5,000 digits": b"1" * 5_000,
    "NaN": b"NaN",
}


@both_eras
@pytest.mark.parametrize("place", HIDDEN_PLACES)
async def test_what_is_no_json_is_refused_wherever_it_hides(served: Served, era: Era, place: str) -> None:
    wrong = {}
    headers = await era.headers(served.port, "tools/list", {})
    meta = json.dumps(META if era.modern else {"progressToken": 1}).encode()
    for fault, value in HIDDEN_FAULTS.items():
        body = HIDDEN_PLACES[place].replace(b"%FAULT%", value).replace(b"%META%", meta).replace(b"%INNER%", meta[1:-1])
        reply = await http(served.port, body, headers)
        if reply.status != 400 or reply.error()["code"] != -32700:
            wrong[fault] = (reply.status, reply.body[:200])
    assert not wrong


# What is odd, and right


KEPT = {
    "2^64+1": b"18446744073709551617",
    "-2^63-1": b"-9223372036854775809",
    "30 digits": b"123456789012345678901234567890",
    "tiny": b"5e-324",
    "fraction": b"0.1",
    "negative": b"-1",
    "nesting at the limit": nested(128),
    "brackets in text": b'"' + b"[{" * 5_000 + b'"',
    "brackets after an escaped quote": rb'"\"' + b"[" * 500 + rb"\\" + b'"',
    "a pair of surrogates": rb'"\ud83d\ude00"',
    "every control in escapes": json.dumps("".join(map(chr, range(32)))).encode(),
    "line separators": '"\u2028\u2029\x7f\ufffe"'.encode(),
    "empty key": b'{"":0}',
    "many keys": json.dumps({f"k{n}": n for n in range(2_000)}).encode(),
}


@both_eras
@pytest.mark.parametrize("case", KEPT)
async def test_odd_values_come_back_as_they_went(served: Served, era: Era, case: str) -> None:
    value = KEPT[case]
    reply = await http(served.port, era.plain(echo_body(value)), await era.headers(served.port))
    assert reply.status == 200, reply
    assert json.loads(reply.text()) == {"value": json.loads(value)}


@both_eras
async def test_the_last_of_two_equal_keys_wins_inside_arguments(served: Served, era: Era) -> None:
    body = echo_body(b"1").replace(b'"value":1', b'"value":1,"value":2')
    reply = await http(served.port, era.plain(body), await era.headers(served.port))
    assert json.loads(reply.text()) == {"value": 2}


IDS = [0, -1, 2**53 + 1, 2**63, "", "0", "text", "\U0001f600", '"\\\n', "x" * 256]


@both_eras
@pytest.mark.parametrize("id_", IDS, ids=[repr(id_)[:12] for id_ in IDS])
async def test_ids_come_back_with_their_type(served: Served, era: Era, id_: Any) -> None:
    reply = await era.ask(served.port, "tools/call", called("add", a=1, b=2), id_)
    found = reply.json()["id"]
    assert (found, type(found)) == (id_, type(id_))


async def test_a_batch_is_served_to_the_one_version_that_has_batches(served: Served) -> None:
    headers = await session(served.port, "2025-03-26")
    body = b"[" + message("ping", {}, 1) + b"," + message("tools/call", called("add", a=1, b=2), "x") + b"]"
    reply = await http(served.port, body, headers)
    assert reply.status == 200, reply
    if reply.headers["content-type"] == "application/json":
        answers = json.loads(reply.body)
    else:
        found = list(events(reply.body))
        answers = found[0] if isinstance(found[0], list) else found
    assert {answer["id"] for answer in answers} == {1, "x"}


# Size


def filler(total: int) -> Iterator[bytes]:
    piece = b"x" * 65_536
    for _ in range(total // len(piece)):
        yield piece


LARGE = 100 * 1024 * 1024
SLACK = 24 * 1024 * 1024


@both_eras
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_100_mb_are_refused_at_the_limit_and_not_kept(served: Served, era: Era, framing: str) -> None:
    headers = await era.headers(served.port)
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()
    async with Wire.open(served.port) as wire:
        chunked = framing == "chunks"
        framing_headers: dict[str, str | None] = (
            {"Content-Length": None, "Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(LARGE)}
        )
        await wire.send(framed(served.port, b"", {**headers, **framing_headers}))
        pieces = filler(LARGE)
        if chunked:
            pieces = (b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        async with beside(wire.pour(pieces)):
            reply = await wire.reply()
            await wire.ended()
    assert (reply.status, reply.error()["code"]) == (413, -32600)
    assert served.peak() - before < SLACK
    await still_serves(served.port)


async def test_a_client_that_asks_first_is_told_no_before_it_sends_100_mb(served: Served) -> None:
    headers = {**await in_modern.headers(served.port), "Expect": "100-continue", "Content-Length": str(LARGE)}
    async with Wire.open(served.port) as wire:
        await wire.send(framed(served.port, b"", headers))
        status, _ = await wire.head()
    assert status == 413


async def test_a_client_that_asks_first_is_told_to_go_on(served: Served) -> None:
    body = in_modern.body("tools/call", called("add", a=1, b=2))
    headers = {**await in_modern.headers(served.port, "tools/call", called("add")), "Expect": "100-continue"}
    request = framed(served.port, body, headers)
    async with Wire.open(served.port) as wire:
        await wire.send(request[: -len(body)])
        assert (await wire.head())[0] == 100
        await wire.send(body)
        assert (await wire.reply()).text() == "3"


@both_eras
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_is_taken_up_to_the_limit_and_not_a_byte_further(tmp_path: Path, era: Era, framing: str) -> None:
    with serving(tmp_path, message_bytes=2_000) as small:
        for size, status in ((2_000, 200), (2_001, 413)):
            frame = era.body("tools/call", called("echo", value="?"))
            body = frame.replace(b'"?"', b'"' + b"x" * (size - len(frame) + 1) + b'"')
            assert len(body) == size
            headers = await era.headers(small.port)
            if framing == "chunks":
                headers |= {"Content-Length": None, "Transfer-Encoding": "chunked"}
                body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
            reply = await http(small.port, body, headers)
            assert reply.status == status, reply


HEADERS_TOO_LARGE: dict[str, bytes] = {
    "one of 100 kB": b"X-Long: " + b"x" * 100_000 + b"\r\n",
    "one with a name of 100 kB": b"X" * 100_000 + b": x\r\n",
    "2,000 of 50 bytes": b"".join(b"X-%06d: %s\r\n" % (n, b"x" * 40) for n in range(2_000)),
    "one of 33 kB": b"X-Long: " + b"x" * 33 * 1024 + b"\r\n",
}


@both_eras
@pytest.mark.parametrize("case", HEADERS_TOO_LARGE)
async def test_a_header_section_beyond_the_limit_gets_431(served: Served, era: Era, case: str) -> None:
    request = framed(served.port, era.body("tools/list", {}), await era.headers(served.port, "tools/list", {}))
    first, rest = request.split(b"\r\n", 1)
    async with Wire.open(served.port) as wire:
        await wire.send(first + b"\r\n" + HEADERS_TOO_LARGE[case] + rest)
        reply = await wire.reply()
    assert reply.status == 431
    assert not reply.body or reply.error()["code"] == -32600


@pytest.mark.parametrize("arrival", ["in small pieces", "just under the limit, then the rest", "at once"])
@pytest.mark.parametrize("case", HEADERS_TOO_LARGE)
async def test_the_limit_on_headers_holds_however_they_arrive(served: Served, case: str, arrival: str) -> None:
    request = framed(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    first, rest = request.split(b"\r\n", 1)
    request = first + b"\r\n" + HEADERS_TOO_LARGE[case] + rest
    size = 500 if arrival == "in small pieces" else 32_000
    pieces = [request[start : start + size] for start in range(0, len(request), size)]
    if arrival == "just under the limit, then the rest":
        pieces = [pieces[0], b"".join(pieces[1:])]
    async with Wire.open(served.port) as wire, Wire.open(served.port) as blocker:
        if arrival == "at once":  # what comes while the server does not read, the kernel gathers
            params = called("block_loop", seconds=0.15)
            await blocker.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await asyncio.sleep(0.05)

        async def send() -> None:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    await wire.send(piece)
                    await asyncio.sleep(0.05 if len(pieces) == 2 else 0)

        async with beside(send()):
            assert (await wire.head())[0] == 431


async def test_a_header_that_never_ends_gets_431_and_is_not_kept(served: Served) -> None:
    before = served.memory()
    served.forget_peak()
    async with Wire.open(served.port) as wire:
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        async with beside(wire.pour(filler(LARGE))):
            status, _ = await wire.head()
            await wire.ended()
    assert status == 431
    assert served.peak() - before < SLACK
    await still_serves(served.port)


REFUSED_EARLY: dict[str, tuple[str, str, dict[str, str | None], int]] = {
    "wrong path": ("POST", "/elsewhere", {}, 404),
    "wrong method": ("PUT", "/mcp", {}, 405),
    "wrong host": ("POST", "/mcp", {"Host": "evil.example.com"}, 421),
    "wrong media type": ("POST", "/mcp", {"Content-Type": "text/plain"}, 415),
    "compressed": ("POST", "/mcp", {"Content-Encoding": "gzip"}, 415),
}


async def test_what_is_refused_for_another_reason_is_not_kept_either(served: Served) -> None:
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()

    async def pour(case: str) -> None:
        verb, path, headers, status = REFUSED_EARLY[case]
        async with Wire.open(served.port) as wire:
            chunked: dict[str, str | None] = {**headers, "Content-Length": None, "Transfer-Encoding": "chunked"}
            await wire.send(framed(served.port, b"", chunked, verb, path))
            async with beside(wire.pour(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in filler(LARGE))):
                assert (await wire.reply()).status == status
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await wire.ended()

    await asyncio.gather(*map(pour, REFUSED_EARLY))
    assert served.peak() - before < SLACK
    await still_serves(served.port)


TAILS = {
    "many trailers": (b"2\r\n{}\r\n0\r\n", (b"X-Trailer: " + b"x" * 1_000 + b"\r\n") * 64),
    "one trailer": (b"2\r\n{}\r\n0\r\nX-Trailer: ", b"x" * 65_536),
    "the extension of a chunk": (b"2;name=", b"x" * 65_536),
}


async def test_what_chunks_carry_beside_the_body_is_bounded_too(served: Served) -> None:
    """A body of two bytes, and 100 MB where HTTP has room for more."""
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()

    async def pour(tail: str) -> None:
        opening, piece = TAILS[tail]
        async with Wire.open(served.port) as wire:
            headers = {**modern_headers("tools/list", {}), "Content-Length": None, "Transfer-Encoding": "chunked"}
            await wire.send(framed(served.port, b"", headers) + opening)
            async with beside(wire.pour(itertools.repeat(piece, LARGE // len(piece)))):
                answer = await wire.ended()
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer[:200]

    await asyncio.gather(*map(pour, TAILS))
    assert served.peak() - before < SLACK
    await still_serves(served.port)


async def test_20000_requests_to_a_client_that_does_not_read_are_not_taken(served: Served) -> None:
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()
    params = called("echo", value="x" * 4_000)
    request = framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
    async with Wire.open(served.port, 60) as wire:
        sent = 0

        async def flood() -> None:
            nonlocal sent
            with contextlib.suppress(ConnectionError):
                for _ in range(2_000):
                    await wire.send(request * 10)
                    sent += 10

        async with beside(flood()):
            taken = -1
            while taken != sent:
                taken = sent
                await asyncio.sleep(0.3)
            assert sent < 20_000, "the server stops reading"
            assert served.peak() - before < 2 * SLACK
            await still_serves(served.port)


@both_eras
async def test_a_path_of_100_kb_is_refused(served: Served, era: Era) -> None:
    async with Wire.open(served.port) as wire:
        await wire.send(
            framed(
                served.port, era.body("tools/list", {}), await era.headers(served.port), path="/mcp?" + "x" * 100_000
            )
        )
        status, _ = await wire.head()
    assert status in {400, 414, 431}


@both_eras
async def test_a_header_section_of_16_kb_is_taken(served: Served, era: Era) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "X-Long": "x" * 16_384}
    assert (await http(served.port, era.body("tools/list", {}), headers)).status == 200


# What HTTP itself says


@both_eras
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x-unknown"])
async def test_a_compressed_body_gets_415(served: Served, era: Era, coding: str) -> None:
    body = gzip.compress(era.body("tools/list", {}))
    headers = {**await era.headers(served.port, "tools/list", {}), "Content-Encoding": coding}
    reply = await http(served.port, body, headers)
    assert reply.status == 415
    assert reply.error()


MEDIA_TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "Application/JSON": 200,
    "application/json;charset=UTF-8": 200,
    "text/plain": 415,
    "application/jsonx": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=application/json": 415,
    "text/plain; application/json": 415,
    "": 415,
    None: 415,
}


@both_eras
@pytest.mark.parametrize("media_type", MEDIA_TYPES)
async def test_only_json_is_a_body(served: Served, era: Era, media_type: str | None) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "Content-Type": media_type}
    reply = await http(served.port, era.body("tools/list", {}), headers)
    assert reply.status == MEDIA_TYPES[media_type], reply
    if reply.status == 415:
        assert reply.error()


ACCEPTS = {
    "application/json, text/event-stream": 200,
    "text/event-stream, application/json": 200,
    "application/json;q=0.9, text/event-stream;q=0.1": 200,
    "*/*": 200,
    "APPLICATION/JSON, TEXT/EVENT-STREAM": 200,
    "text/html": 406,
    "image/png, text/plain": 406,
}


@both_eras
@pytest.mark.parametrize("accept", ACCEPTS)
async def test_a_client_that_takes_neither_json_nor_events_gets_406(served: Served, era: Era, accept: str) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "Accept": accept}
    reply = await http(served.port, era.body("tools/list", {}), headers)
    assert reply.status == ACCEPTS[accept], reply
    if reply.status == 406:
        assert reply.error()
    else:
        assert reply.result()["tools"]


@both_eras
async def test_a_client_that_takes_only_json_gets_no_events(served: Served, era: Era) -> None:
    params = {**called("speak", seconds=0.1, tag="json"), "_meta": {"progressToken": 1}}
    headers = {**await era.headers(served.port, "tools/call", params), "Accept": "application/json"}
    reply = await http(served.port, era.body("tools/call", params), headers)
    assert reply.headers["content-type"] == "application/json"
    assert reply.status == 406 or reply.text() == "spoke json"


@both_eras
async def test_a_client_that_takes_only_events_gets_no_json(served: Served, era: Era) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "Accept": "text/event-stream"}
    reply = await http(served.port, era.body("tools/list", {}), headers)
    assert reply.status == 406 or reply.headers["content-type"].startswith("text/event-stream")


@both_eras
async def test_a_stream_is_not_for_those_who_take_no_events(served: Served, era: Era) -> None:
    if era.modern:
        body = era.body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        headers = {**modern_headers("subscriptions/listen", {}), "Accept": "application/json"}
        request = framed(served.port, body, headers)
    else:
        request = framed(served.port, None, {**await session(served.port), "Accept": "application/json"}, "GET")
    async with Wire.open(served.port) as wire:
        await wire.send(request)
        assert (await wire.head())[0] == 406


FOREIGN_HOSTS = [
    "evil.example.com",
    "evil.example.com:%PORT%",
    "localhost.evil.example.com",
    "127.0.0.1.evil.example.com:%PORT%",
    "evil.example.com#localhost",
    "evil.example.com/127.0.0.1",
    "127.0.0.1@evil.example.com",
    "localhost\tevil.example.com",
    "",
]


@both_eras
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_a_foreign_host_gets_421(served: Served, era: Era, host: str) -> None:
    headers = {**await era.headers(served.port), "Host": host.replace("%PORT%", str(served.port))}
    reply = await http(served.port, era.body("tools/call", called("add", a=666, b=1)), headers)
    assert reply.status == 421, reply
    assert reply.error()


async def test_a_foreign_host_cannot_open_or_use_a_session_in_any_way(served: Served) -> None:
    headers = {**await session(served.port), "Host": "evil.example.com"}
    for verb, body in (("POST", message("ping", {})), ("GET", None), ("DELETE", None), ("OPTIONS", None)):
        accept = {"Accept": "text/event-stream"} if verb == "GET" else {}
        assert (await http(served.port, body, {**headers, **accept}, verb)).status == 421, verb
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    refused = await http(served.port, message("initialize", params), {"Host": "evil.example.com"})
    assert refused.status == 421
    assert "mcp-session-id" not in refused.headers


async def test_a_request_with_two_hosts_or_none_is_not_served(served: Served) -> None:
    body = in_modern.body("tools/call", called("add", a=667, b=1))
    request = framed(served.port, body, modern_headers("tools/call", called("add")))
    first, host, rest = request.split(b"\r\n", 2)
    assert host.startswith(b"Host:")
    for hosts in (b"", host + b"\r\nHost: evil.example.com\r\n", b"Host: evil.example.com\r\n" + host + b"\r\n"):
        async with Wire.open(served.port) as wire:
            await wire.send(first + b"\r\n" + hosts + rest)
            assert (await wire.reply()).status in {400, 421}, hosts
    assert "add 667 1" not in served.traced()


FOREIGN_ORIGINS = [
    "http://evil.example.com",
    "https://localhost.evil.example.com",
    "http://127.0.0.1.evil.example.com",
    "http://evil.example.com:%PORT%",
    "http://127.0.0.1:%PORT%@evil.example.com",
    "null",
    "http://",
    "file://",
    "localhost",
]


@both_eras
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_a_foreign_origin_gets_403(served: Served, era: Era, origin: str) -> None:
    headers = {**await era.headers(served.port), "Origin": origin.replace("%PORT%", str(served.port))}
    reply = await http(served.port, era.body("tools/call", called("add", a=666, b=2)), headers)
    assert reply.status == 403, reply
    assert reply.error()
    assert "add 666 2" not in served.traced()


@both_eras
@pytest.mark.parametrize("host", ["127.0.0.1:%PORT%", "localhost:%PORT%", "LOCALHOST:%PORT%", "[::1]:%PORT%"])
async def test_every_name_of_this_machine_is_a_good_host_and_origin(served: Served, era: Era, host: str) -> None:
    host = host.replace("%PORT%", str(served.port))
    headers = {**await era.headers(served.port, "tools/list", {}), "Host": host, "Origin": f"http://{host.lower()}"}
    assert (await http(served.port, era.body("tools/list", {}), headers)).status == 200


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "OPTIONS", "HEAD", "GET", "DELETE"])
async def test_modern_clients_have_one_http_method(served: Served, verb: str) -> None:
    headers: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Accept": "text/event-stream"}
    async with Wire.open(served.port) as wire:
        await wire.send(framed(served.port, None, headers, verb))
        status, found = await wire.head()
    assert status == 405
    assert "POST" in found["allow"]


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_sessions_have_three_http_methods(served: Served, verb: str) -> None:
    async with Wire.open(served.port) as wire:
        await wire.send(framed(served.port, None, await session(served.port), verb))
        status, found = await wire.head()
    assert status == 405
    assert {word.strip() for word in found["allow"].split(",")} >= {"GET", "POST", "DELETE"}


@both_eras
@pytest.mark.parametrize("path", ["/", "/mcp2", "/mcp/deeper", "/MCP", "//mcp", "/.well-known/x", "*"])
async def test_another_path_gets_404(served: Served, era: Era, path: str) -> None:
    reply = await http(
        served.port,
        era.body("tools/list", {}),
        await era.headers(served.port, "tools/list", {}),
        path=path,
    )
    assert reply.status in ({400, 404} if path == "*" else {404}), reply


NO_HTTP = {
    "words": b"hello there\r\n\r\n",
    "nulls": b"\x00" * 100 + b"\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + b"\x01" * 160 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version of its own": b"POST /mcp HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a length that is no number": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
    "a negative length": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "a length beyond 64 bits": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "two lengths": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a chunk of no size": (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
    ),
    "a header without a colon": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n",
    "a space before the colon": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-A : b\r\n\r\n",
}


@pytest.mark.parametrize("case", NO_HTTP)
async def test_what_is_not_http_gets_400_at_most(served: Served, case: str) -> None:
    async with Wire.open(served.port) as wire:
        await wire.send(NO_HTTP[case])
        answer = await wire.ended()
    status = answer.split(b" ", 2)[1] if answer else b"hung up"
    assert status in {b"hung up", b"400", b"413", b"501", b"505"}, answer
    assert b"Traceback" not in answer
    await still_serves(served.port)


async def test_websockets_are_refused(served: Served) -> None:
    headers: dict[str, str | None] = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(b"x" * 16).decode(),
        "Sec-WebSocket-Version": "13",
    }
    async with Wire.open(served.port) as wire:
        await wire.send(framed(served.port, None, headers, "GET"))
        status, _ = await wire.head()
    assert 400 <= status < 500
    assert "Traceback" not in served.logged()[-5_000:]
    await still_serves(served.port)


@both_eras
async def test_requests_sent_without_waiting_are_answered_in_order(served: Served, era: Era) -> None:
    headers = await era.headers(served.port, "tools/call", called("add"))
    requests = [
        framed(served.port, era.body("tools/call", called("add", a=number, b=0), number), headers)
        for number in range(20)
    ]
    async with Wire.open(served.port) as wire:
        await wire.send(b"".join(requests))
        assert [(await wire.reply()).json()["id"] for _ in requests] == list(range(20))


@pytest.mark.parametrize("ahead", ["many small requests", "one large request"])
async def test_the_limit_on_headers_is_for_one_request_and_not_for_what_came_before_it(
    served: Served, ahead: str
) -> None:
    """The last request is cut in its headers, so that these arrive with everything before them."""
    request = framed(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    params = called("echo", value="x" * 100_000)
    large = framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
    before = [large] if ahead == "one large request" else [request] * (100_000 // len(request))
    async with Wire.open(served.port) as wire:
        async with beside(wire.pour([b"".join(before) + request[:50]])):
            await asyncio.sleep(0.2)
            async with beside(wire.pour([request[50:]])):
                statuses = [(await wire.reply()).status for _ in [*before, request]]
    assert statuses == [200] * len(statuses)


async def test_a_connection_goes_on_after_a_refusal(served: Served) -> None:
    good = framed(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    bad = framed(served.port, b"no JSON", modern_headers("tools/list", {}))
    async with Wire.open(served.port) as wire:
        for request, status in ((good, 200), (bad, 400), (good, 200), (bad, 400), (good, 200)):
            await wire.send(request)
            assert (await wire.reply()).status == status


# Sessions


@pytest.mark.parametrize("id_", ["nobody", "0" * 32, "../../etc/passwd", "x" * 10_000, "\xff\xfe", "a b"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_gets_404(served: Served, verb: str, id_: str) -> None:
    headers: dict[str, str | None] = {"Mcp-Session-Id": id_, "MCP-Protocol-Version": LEGACY}
    if verb == "GET":
        headers["Accept"] = "text/event-stream"
    reply = await http(served.port, message("ping", {}) if verb == "POST" else None, headers, verb)
    assert reply.status == 404
    assert reply.error()


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_missing_session_gets_400(served: Served, verb: str) -> None:
    headers: dict[str, str | None] = {"MCP-Protocol-Version": LEGACY}
    if verb == "GET":
        headers["Accept"] = "text/event-stream"
    reply = await http(served.port, message("tools/list", {}) if verb == "POST" else None, headers, verb)
    assert reply.status == 400
    assert reply.error()


async def test_a_deleted_session_is_gone_for_every_method(served: Served) -> None:
    headers = await session(served.port)
    assert (await http(served.port, None, headers, "DELETE")).status in {200, 202, 204}
    for verb, body in (("POST", message("ping", {})), ("GET", None), ("DELETE", None)):
        accept = {"Accept": "text/event-stream"} if verb == "GET" else {}
        assert (await http(served.port, body, {**headers, **accept}, verb)).status == 404, verb


async def test_deleting_a_session_ends_its_calls_and_its_streams(served: Served) -> None:
    headers = await session(served.port)
    async with Wire.open(served.port) as call, Wire.open(served.port) as stream:
        await stream.send(framed(served.port, None, {**headers, "Accept": "text/event-stream"}, "GET"))
        assert (await stream.head())[0] == 200
        await call.send(
            framed(served.port, message("tools/call", called("async_sleep", seconds=60, tag="deleted")), headers)
        )
        await until(lambda: "started deleted" in served.traced(), "the call")
        assert (await http(served.port, None, headers, "DELETE")).status in {200, 202, 204}
        await until(lambda: "cancelled deleted" in served.traced(), "its end")
        while await stream.chunk():
            pass
        assert "result" not in (await call.reply()).json()


@pytest.mark.parametrize("version", ["1999-01-01", "nonsense", "", "2026-07-28", "x" * 5_000, "2025-11-25, 2026-07-28"])
async def test_a_session_refuses_a_version_it_cannot_speak(served: Served, version: str) -> None:
    headers = {**await session(served.port), "MCP-Protocol-Version": version}
    reply = await http(served.port, message("tools/list", {}), headers)
    if version:
        assert reply.status == 400
        assert reply.error()
    else:
        assert reply.status in {200, 400}


INITIALIZE: dict[str, dict[str, Any]] = {
    "no params": {},
    "version a number": {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "no version": {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "capabilities an array": {"protocolVersion": LEGACY, "capabilities": [], "clientInfo": {"name": "x"}},
}


@pytest.mark.parametrize("case", INITIALIZE)
async def test_an_initialize_that_says_too_little_opens_no_session(served: Served, case: str) -> None:
    reply = await http(served.port, message("initialize", INITIALIZE[case]), {})
    assert reply.error()["code"] == -32602, reply
    assert "mcp-session-id" not in reply.headers


async def test_an_unknown_version_is_answered_with_one_the_server_has(served: Served) -> None:
    opened = await initialize(served.port, "1999-01-01")
    assert opened.result()["protocolVersion"] == LEGACY


async def test_one_session_cannot_read_the_stream_of_another(served: Served) -> None:
    owner, thief = await session(served.port), await session(served.port)
    async with Wire.open(served.port) as wire:
        params = {**called("speak", seconds=0.5, tag="private"), "_meta": {"progressToken": "t"}}
        await wire.send(framed(served.port, message("tools/call", params), owner))
        assert (await wire.head())[1]["content-type"] == "text/event-stream"
        raw = b""
        while b"progress" not in raw:
            raw += await wire.chunk()
        ids = [line[3:].strip().decode() for line in raw.split(b"\n") if line.startswith(b"id:")]
    assert ids
    async with Wire.open(served.port) as wire:
        headers = {**thief, "Accept": "text/event-stream", "Last-Event-ID": ids[0]}
        await wire.send(framed(served.port, None, headers, "GET"))
        status, _ = await wire.head()
        await until(lambda: "finished private" in served.traced(), "the owner's call")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while status == 200 and (piece := await wire.chunk()):
                    assert b"private" not in piece


async def asking(wire: Wire, port: int, id_: Any) -> tuple[dict[str, str | None], Any]:
    """A session in which a tool has asked its question, and the question."""
    opened = await initialize(port, capabilities={"elicitation": {}})
    headers: dict[str, str | None] = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    await http(port, notification("notifications/initialized", {}), headers)
    await wire.send(framed(port, message("tools/call", called("ask"), id_), headers))
    await wire.head()
    question = await wire.event()
    assert question["method"] == "elicitation/create"
    return headers, question


async def test_one_session_cannot_answer_the_questions_of_another(served: Served) -> None:
    async with Wire.open(served.port) as wire:
        owner, question = await asking(wire, served.port, 61)
        yes = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"ok": True}}}
        no = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        await http(served.port, json.dumps(yes).encode(), await session(served.port))
        await http(served.port, json.dumps(no).encode(), owner)
        found = await wire.event()
    assert found["id"] == 61
    assert found["result"]["content"][0]["text"] == "user said decline"


ANSWERS: dict[str, Any] = {
    "an error": {"error": {"code": -1, "message": "no user here"}},
    "an error that is none": {"error": "no"},
    "a result that is none": {"result": 7},
    "an empty result": {"result": {}},
    "an unknown action": {"result": {"action": "explode"}},
    "content of another shape": {"result": {"action": "accept", "content": {"ok": "perhaps", "more": [1]}}},
    "no content": {"result": {"action": "accept"}},
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_that_is_none_fails_the_tool_and_not_the_server(served: Served, case: str) -> None:
    async with Wire.open(served.port) as wire:
        owner, question = await asking(wire, served.port, 62)
        answer = json.dumps({"jsonrpc": "2.0", "id": question["id"], **ANSWERS[case]}).encode()
        told = await http(served.port, answer, owner)
        if told.status == 400:
            assert told.error()["code"] == -32600
            return
        async with asyncio.timeout(5):
            found = await wire.event()
    assert found["id"] == 62
    assert "error" in found or found["result"].get("isError") is True, found
    assert (await http(served.port, message("ping", {}), owner)).result() == {}


async def test_two_streams_of_one_session_do_not_both_carry_a_message(served: Served) -> None:
    headers = await session(served.port)
    async with Wire.open(served.port) as one, Wire.open(served.port) as two:
        await watch(one, served.port, headers)
        await two.send(framed(served.port, None, {**headers, "Accept": "text/event-stream"}, "GET"))
        if (await two.head())[0] != 200:
            return
        await http(served.port, message("tools/call", called("announce")), headers)
        tasks = [asyncio.create_task(wire.event()) for wire in (one, two)]
        await asyncio.wait(tasks, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(tasks, timeout=0.3)
        heard = [task.result() for task in tasks if task.done() and task.result()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(heard) == 1


@pytest.mark.parametrize("last", ["nonsense", "-1", "9" * 40, "../1", "0", "\xff", "a" * 5_000])
async def test_an_event_id_nobody_gave_out_harms_nothing(served: Served, last: str) -> None:
    headers = {**await session(served.port), "Accept": "text/event-stream", "Last-Event-ID": last}
    async with Wire.open(served.port) as wire:
        await wire.send(framed(served.port, None, headers, "GET"))
        status, _ = await wire.head()
    assert status in {200, 400, 404, 409}
    assert (await http(served.port, message("ping", {}), {**headers, "Accept": "application/json"})).status == 200


# Requests that are wrong in what they ask

UNKNOWN: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "method": ("tools/cal", {}, -32601, 404),
    "method of the other side": ("sampling/createMessage", {}, -32601, 404),
    "tool": ("tools/call", called("ad", a=1, b=2), -32602, 400),
    "prompt": ("prompts/get", {"name": "great"}, -32602, 400),
    "resource": ("resources/read", {"uri": "fault://nowhere"}, -32602, 400),
    "tool without a name": ("tools/call", {"arguments": {}}, -32602, 400),
    "tool with a number for a name": ("tools/call", {"name": 7}, -32602, 400),
    "arguments an array": ("tools/call", {"name": "add", "arguments": [1, 2]}, -32602, 400),
    "arguments text": ("tools/call", {"name": "add", "arguments": "a=1"}, -32602, 400),
    "resource without an address": ("resources/read", {}, -32602, 400),
    "resource with an object for an address": ("resources/read", {"uri": {}}, -32602, 400),
    "cursor nobody gave out": ("tools/list", {"cursor": "nonsense"}, -32602, 400),
    "cursor a number": ("tools/list", {"cursor": 5}, -32602, 400),
    "completion of nothing": ("completion/complete", {}, -32602, 400),
    "completion of rubbish": ("completion/complete", {"ref": 1, "argument": []}, -32602, 400),
}


@both_eras
@pytest.mark.parametrize("case", UNKNOWN)
async def test_a_request_for_what_is_not_there_says_so(served: Served, era: Era, case: str) -> None:
    method, params, code, status = UNKNOWN[case]
    if case == "resource" and not era.modern:
        code = -32002
    reply = await era.ask(served.port, method, params, "the id")
    assert (reply.status, reply.error()["code"]) == (status if era.modern else 200, code), reply
    assert reply.json()["id"] == "the id"


@both_eras
async def test_an_unknown_tool_is_answered_with_the_nearest_names(served: Served, era: Era) -> None:
    for wrong, right in (("ad", "add"), ("plain_slep", "plain_sleep"), ("ADD", "add")):
        reply = await era.call(served.port, wrong)
        assert right in reply.error()["message"], reply.body


@both_eras
@pytest.mark.parametrize("name", ["x" * 100_000, "\x00", "é" * 50, "'; drop table--", ""])
async def test_a_name_nobody_would_choose_is_unknown_and_not_repeated_at_length(
    served: Served, era: Era, name: str
) -> None:
    params = {"name": name, "arguments": {}}
    headers = await era.headers(served.port, "tools/call", params)
    if era.modern:
        headers["Mcp-Name"] = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        if len(headers["Mcp-Name"]) > 20_000:
            pytest.skip("the header alone is refused")
    reply = await http(served.port, era.body("tools/call", params), headers)
    assert reply.error()["code"] == -32602, reply.body[:300]
    assert len(reply.body) < 2_000


ARGUMENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "text for a number": ({"a": "one", "b": 2}, ["a"]),
    "null for a number": ({"a": 1, "b": None}, ["b"]),
    "a list and an object": ({"a": [], "b": {}}, ["a", "b"]),
    "a fraction": ({"a": 1.5, "b": 2}, ["a"]),
    "one missing": ({"a": 1}, ["b"]),
    "all missing": ({}, ["a", "b"]),
    "one too many": ({"a": 1, "b": 2, "carry": 3}, ["carry"]),
}


@both_eras
@pytest.mark.parametrize("case", ARGUMENTS)
async def test_a_wrong_argument_is_named_to_the_model(served: Served, era: Era, case: str) -> None:
    arguments, fields = ARGUMENTS[case]
    reply = await era.call(served.port, "add", **arguments)
    assert (reply.status, reply.result()["isError"]) == (200, True)
    text = reply.text()
    for field in fields:
        assert f"{field}:" in text or f"'{field}'" in text or f'"{field}"' in text.split("expected")[0], text
    assert "integer" in text or case == "one too many", "the schema's relevant part"
    assert not any(noise in text for noise in ("pydantic", "errors.pydantic.dev", "Traceback", "type=", "\n\n")), text


@both_eras
async def test_a_wrong_argument_of_a_megabyte_is_not_sent_back(served: Served, era: Era) -> None:
    reply = await era.call(served.port, "add", a="x" * 1_000_000, b=2)
    assert reply.result()["isError"]
    assert len(reply.body) < 5_000


# Modern requests and their headers


def modern_case(**changes: str | None) -> dict[str, str | None]:
    return {**modern_headers("tools/call", called("add")), **changes}


MISMATCHES: dict[str, dict[str, str | None]] = {
    "another method": modern_case(**{"Mcp-Method": "tools/list"}),
    "no method": modern_case(**{"Mcp-Method": None}),
    "method in capitals": modern_case(**{"Mcp-Method": "TOOLS/CALL"}),
    "empty method": modern_case(**{"Mcp-Method": ""}),
    "another name": modern_case(**{"Mcp-Name": "echo"}),
    "no name": modern_case(**{"Mcp-Name": None}),
    "empty name": modern_case(**{"Mcp-Name": ""}),
    "name in capitals": modern_case(**{"Mcp-Name": "ADD"}),
    "name in bad base64": modern_case(**{"Mcp-Name": "=?base64?YWRk!!?="}),
    "name in base64 of another": modern_case(**{"Mcp-Name": "=?base64?ZWNobw==?="}),
    "name with bytes": modern_case(**{"Mcp-Name": "add\xff"}),
    "another version": modern_case(**{"MCP-Protocol-Version": "2027-01-01"}),
    "a list of versions": modern_case(**{"MCP-Protocol-Version": "2026-07-28, 2025-11-25"}),
}


@pytest.mark.parametrize("case", MISMATCHES)
async def test_headers_that_say_something_else_than_the_body_get_32020(served: Served, case: str) -> None:
    body = in_modern.body("tools/call", called("add", a=668, b=1), 77)
    reply = await http(served.port, body, MISMATCHES[case])
    assert (reply.status, reply.error()["code"]) == (400, -32020), reply
    assert reply.json()["id"] == 77
    assert "add 668 1" not in served.traced()


async def test_a_header_given_twice_is_a_mismatch(served: Served) -> None:
    request = framed(served.port, in_modern.body("tools/call", called("add", a=1, b=2)), modern_case())
    for line in (b"Mcp-Method: tools/call\r\n", b"Mcp-Method: tools/list\r\n", b"Mcp-Name: echo\r\n"):
        first, rest = request.split(b"\r\n", 1)
        async with Wire.open(served.port) as wire:
            await wire.send(first + b"\r\n" + line + rest)
            reply = await wire.reply()
        assert (reply.status, reply.error()["code"]) == (400, -32020), line


@pytest.mark.parametrize("name", ["  add  ", "=?base64?YWRk?="])
async def test_other_ways_to_write_a_header_are_taken(served: Served, name: str) -> None:
    body = in_modern.body("tools/call", called("add", a=1, b=2))
    assert (await http(served.port, body, modern_case(**{"Mcp-Name": name}))).text() == "3"


METAS: dict[str, tuple[Any, int]] = {
    "none": (None, -32602),
    "a number": (7, -32602),
    "an array": ([], -32602),
    "empty": ({}, -32602),
    "no version": ({k: v for k, v in META.items() if "protocolVersion" not in k}, -32602),
    "no capabilities": ({k: v for k, v in META.items() if "clientCapabilities" not in k}, -32602),
    "capabilities an array": ({**META, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
    "version a number": ({**META, "io.modelcontextprotocol/protocolVersion": 2026}, -32602),
    "another version": ({**META, "io.modelcontextprotocol/protocolVersion": "v999"}, -32020),
}


@pytest.mark.parametrize("case", METAS)
async def test_a_modern_request_must_carry_its_meta(served: Served, case: str) -> None:
    meta, code = METAS[case]
    params = called("add", a=669, b=1) if meta is None else {**called("add", a=669, b=1), "_meta": meta}
    reply = await http(served.port, message("tools/call", params, "m"), modern_case())
    assert (reply.status, reply.error()["code"]) == (400, code), reply
    assert reply.json()["id"] == "m"
    assert "add 669 1" not in served.traced()


async def test_a_version_from_the_future_is_told_what_there_is(served: Served) -> None:
    params = {**called("add", a=1, b=2), "_meta": {**META, "io.modelcontextprotocol/protocolVersion": "v999.0.0"}}
    reply = await http(
        served.port, message("tools/call", params, 5), modern_case(**{"MCP-Protocol-Version": "v999.0.0"})
    )
    assert (reply.status, reply.error()["code"]) == (400, -32022)
    assert reply.error()["data"]["requested"] == "v999.0.0"
    assert MODERN in reply.error()["data"]["supported"]


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "nonsense"]
)
async def test_methods_the_modern_era_has_dropped_get_404(served: Served, method: str) -> None:
    reply = await in_modern.ask(served.port, method, {}, 9)
    assert (reply.status, reply.error()["code"], reply.json()["id"]) == (404, -32601, 9)


async def test_what_the_client_cannot_be_asked_gets_32021(served: Served) -> None:
    reply = await in_modern.call(served.port, "ask")
    assert (reply.status, reply.error()["code"]) == (400, -32021)
    assert reply.error()["data"]["requiredCapabilities"]["elicitation"] == {}


@pytest.mark.parametrize("state", ["nonsense", "", "v1." + "A" * 500, 7, None, {"a": 1}, "\U0001f600"])
async def test_a_forged_state_is_never_taken(served: Served, state: Any) -> None:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    answers = {"go": {"action": "accept", "content": {"ok": True}}}
    params = {**called("ask"), "_meta": meta, "requestState": state, "inputResponses": answers}
    reply = await http(served.port, message("tools/call", params), modern_headers("tools/call", params))
    if state is None:
        assert reply.status in {200, 400}
    else:
        assert (reply.status, reply.error()["code"]) == (400, -32602), reply


LISTENS: dict[str, Any] = {
    "missing": {},
    "an array": {"notifications": []},
    "text": {"notifications": "all"},
    "a flag that is no flag": {"notifications": {"toolsListChanged": "yes"}},
    "addresses that are none": {"notifications": {"resourceSubscriptions": [1, None]}},
    "an address for addresses": {"notifications": {"resourceSubscriptions": "fault://secret"}},
}


@pytest.mark.parametrize("case", LISTENS)
async def test_a_subscription_to_rubbish_is_refused_before_a_stream_begins(served: Served, case: str) -> None:
    reply = await in_modern.ask(served.port, "subscriptions/listen", LISTENS[case])
    assert (reply.status, reply.error()["code"]) == (400, -32602), reply


NOTIFICATIONS = {
    "unknown": notification("notifications/nonsense", {}),
    "cancelled without an id": notification("notifications/cancelled", {}),
    "cancelled with an object for an id": notification("notifications/cancelled", {"requestId": {"a": [1]}}),
    "cancelled with null for an id": notification("notifications/cancelled", {"requestId": None}),
    "cancelled for nobody": notification("notifications/cancelled", {"requestId": "nobody"}),
    "progress without a token": notification("notifications/progress", {}),
    "progress for nobody": notification("notifications/progress", {"progressToken": [], "progress": "x"}),
    "a request's method": notification("tools/call", called("add", a=670, b=1)),
    "an answer to nothing": b'{"jsonrpc":"2.0","id":5,"result":{}}',
    "an error to nothing": b'{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"x"}}',
    "an error that is none": b'{"jsonrpc":"2.0","id":5,"error":7}',
    "an answer that is both": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
    "an answer with an id of its own": b'{"jsonrpc":"2.0","id":{"a":1},"result":{}}',
}


@pytest.mark.parametrize("case", NOTIFICATIONS)
async def test_what_needs_no_answer_gets_none_and_harms_nothing(served: Served, case: str) -> None:
    headers = await session(served.port)
    reply = await http(served.port, NOTIFICATIONS[case], headers)
    assert reply.status in {202, 400}
    if reply.status == 202:
        assert reply.body == b""
    else:
        assert reply.error()
    assert (await http(served.port, message("ping", {}), headers)).result() == {}
    assert "add 670 1" not in served.traced()


# Slow clients


async def trickle(port: int, opening: bytes, rest: bytes, pause: float = 0) -> bytes:
    """Sends `rest` a byte at a time, over and over, until the server hangs up; what it said."""
    async with Wire.open(port) as wire:
        await wire.send(opening)

        async def drip() -> None:
            await asyncio.sleep(pause)
            with contextlib.suppress(ConnectionError):
                for byte in itertools.cycle(rest):
                    await wire.send(bytes([byte]))
                    await asyncio.sleep(0.1)

        async with beside(drip()):
            return await wire.ended()


SLOW = {
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


async def test_200_slow_connections_are_closed_at_the_deadline_and_others_are_served_meanwhile(served: Served) -> None:
    closed: list[str] = []

    async def slow(kind: str) -> tuple[str, bytes]:
        answer = await trickle(served.port, *SLOW[kind])
        closed.append(kind)
        return kind, answer

    kinds = list(SLOW) * 50
    tasks = [asyncio.create_task(slow(kind)) for kind in kinds]
    await until(lambda: served.sockets() > 200, "200 connections")
    await still_serves(served.port)
    assert len(closed) < len(kinds), "the others did not wait for the slow ones"
    for kind, answer in await asyncio.gather(*tasks):
        if answer:
            assert answer.startswith(b"HTTP/1.1 408 "), answer
        if "body" in kind and answer:
            assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == -32600
    await still_serves(served.port)


async def test_a_body_that_does_not_come_gets_408(served: Served) -> None:
    answer = await trickle(served.port, SLOW["body"][0], b" ")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == -32600


async def test_a_connection_on_which_nothing_comes_is_closed(served: Served) -> None:
    async with Wire.open(served.port) as wire:
        answer = await wire.ended()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("rest", ["at once and on and on", "later and on and on", "never"])
async def test_a_body_nobody_wants_any_more_cannot_hold_a_connection_open(served: Served, rest: str) -> None:
    """The request is refused by its headers, and its body still comes a byte at a time, or does not."""

    async def refused(case: str) -> None:
        verb, path, headers, status = REFUSED_EARLY[case]
        length: dict[str, str | None] = {**headers, "Content-Length": "100000"}
        opening = framed(served.port, b"", length, verb, path) + (b" " if rest.startswith("at once") else b"")
        answer = await trickle(served.port, opening, b"" if rest == "never" else b" ", 0 if rest[0] == "a" else 0.3)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())

    await asyncio.gather(*map(refused, REFUSED_EARLY))


async def test_a_second_request_cannot_be_slower_than_the_first(served: Served) -> None:
    good = framed(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    answer = await trickle(served.port, good + b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", b"X-Slow: x\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_clients_that_never_read_their_answers_hold_up_nobody(served: Served) -> None:
    async with contextlib.AsyncExitStack() as stack:
        params = called("give", kind="big")
        request = framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        for _ in range(10):
            wire = await stack.enter_async_context(Wire.open(served.port))
            await wire.send(request * 3)
        for _ in range(5):
            await still_serves(served.port)


async def test_clients_that_leave_in_the_middle_of_a_request_are_forgotten(served: Served) -> None:
    idle = served.sockets()
    request = framed(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    for cut in range(1, len(request), 7):
        async with Wire.open(served.port) as wire:
            await wire.send(request[:cut])
    await still_serves(served.port)
    await until(lambda: served.sockets() <= idle + 1, "the end of the connections")


# Calls and their ends


@both_eras
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/event-stream, application/json"])
async def test_a_client_that_leaves_cancels_its_call(served: Served, era: Era, accept: str) -> None:
    """Where a stream was asked for but has not begun, a handshake client cannot come back either."""
    tag = f"leaves-{era.name}-{accept[:4]}"
    params = called("async_sleep", seconds=60, tag=tag)
    if not era.modern and accept.startswith("text/event-stream"):
        pytest.skip("a stream that has begun can be resumed")
    async with Wire.open(served.port) as wire:
        headers = {**await era.headers(served.port, "tools/call", params), "Accept": accept}
        await wire.send(framed(served.port, era.body("tools/call", params), headers))
        await until(lambda: f"started {tag}" in served.traced(), "the call")
    await until(lambda: f"cancelled {tag}" in served.traced(), "its end")


async def test_a_modern_client_that_leaves_a_stream_cancels_its_call(served: Served) -> None:
    params = {**called("speak", seconds=60, tag="streamed"), "_meta": {"progressToken": 1}}
    async with Wire.open(served.port) as wire:
        await wire.send(framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params)))
        assert (await wire.head())[1]["content-type"] == "text/event-stream"
        assert (await wire.event())["method"] == "notifications/progress"
    await until(lambda: "cancelled streamed" in served.traced(), "its end")


async def test_a_handshake_client_that_loses_its_stream_comes_back_for_the_answer(served: Served) -> None:
    headers = await session(served.port)
    async with Wire.open(served.port) as wire:
        params = {**called("speak", seconds=0.5, tag="resumed"), "_meta": {"progressToken": 1}}
        await wire.send(framed(served.port, message("tools/call", params, 31), headers))
        await wire.head()
        raw = b""
        while b"progress" not in raw:
            raw += await wire.chunk()
    ids = [line[3:].strip().decode() for line in raw.split(b"\n") if line.startswith(b"id:")]
    async with Wire.open(served.port) as wire:
        again = {**headers, "Accept": "text/event-stream", "Last-Event-ID": ids[-1]}
        await wire.send(framed(served.port, None, again, "GET"))
        assert (await wire.head())[0] == 200
        found = await wire.event()
    assert found["id"] == 31
    assert found["result"]["content"][0]["text"] == "spoke resumed"


async def test_a_client_that_comes_back_late_gets_the_last_events_and_the_answer(served: Served) -> None:
    """More was said meanwhile than is kept."""
    headers = await session(served.port)
    async with Wire.open(served.port) as wire:
        params = {**called("chatty", count=2_000, tag="chatty"), "_meta": {"progressToken": 1}}
        await wire.send(framed(served.port, message("tools/call", params, 32), headers))
        await wire.head()
        raw = b""
        while b"progress" not in raw:
            raw += await wire.chunk()
    (first, *_) = [line[3:].strip().decode() for line in raw.split(b"\n") if line.startswith(b"id:")]
    await until(lambda: "finished chatty" in served.traced(), "the end of the call")
    async with Wire.open(served.port) as wire:
        again = {**headers, "Accept": "text/event-stream", "Last-Event-ID": first}
        await wire.send(framed(served.port, None, again, "GET"))
        status, _ = await wire.head()
        assert status == 200
        found = b""
        while b"said chatty" not in found:
            found += await wire.chunk()
    steps = [event["params"]["progress"] for event in events(found) if "params" in event]
    assert steps == sorted(set(steps)), "in order, none twice"
    assert len(steps) < 1_000, "not all of them are kept"


async def test_a_cancelled_call_is_cancelled(served: Served) -> None:
    headers = await session(served.port)
    async with Wire.open(served.port) as wire:
        params = called("async_sleep", seconds=60, tag="told")
        await wire.send(framed(served.port, message("tools/call", params, 41), headers))
        await until(lambda: "started told" in served.traced(), "the call")
        told = await http(served.port, notification("notifications/cancelled", {"requestId": 41}), headers)
        assert told.status == 202
        await until(lambda: "cancelled told" in served.traced(), "its end")
        reply = await wire.reply()
    assert b'"result"' not in reply.body
    assert (await http(served.port, message("ping", {}), headers)).result() == {}


async def test_a_cancelled_stream_ends(served: Served) -> None:
    headers = await session(served.port)
    async with Wire.open(served.port) as wire:
        params = {**called("speak", seconds=60, tag="told-stream"), "_meta": {"progressToken": 1}}
        await wire.send(framed(served.port, message("tools/call", params, 42), headers))
        await wire.head()
        assert (await wire.event())["method"] == "notifications/progress"
        await http(served.port, notification("notifications/cancelled", {"requestId": 42}), headers)
        await until(lambda: "cancelled told-stream" in served.traced(), "its end")
        while last := await wire.event():
            assert "result" not in last


@pytest.mark.parametrize("sender", ["modern", "another session", "the same session, another type"])
async def test_a_call_is_cancelled_by_its_own_client_only(served: Served, sender: str) -> None:
    tag = "safe-" + sender.split()[0] + sender.split()[-1]
    owner = await session(served.port)
    async with Wire.open(served.port) as wire:
        params = called("async_sleep", seconds=0.6, tag=tag)
        await wire.send(framed(served.port, message("tools/call", params, 1), owner))
        await until(lambda: f"started {tag}" in served.traced(), "the call")
        if sender == "modern":
            body = notification("notifications/cancelled", {"requestId": 1, "_meta": META})
            await http(served.port, body, modern_headers("notifications/cancelled", {}))
        elif sender == "another session":
            other = await session(served.port)
            await http(served.port, notification("notifications/cancelled", {"requestId": 1}), other)
        else:
            for odd in ("1", True, [1], {"1": 1}):
                await http(served.port, notification("notifications/cancelled", {"requestId": odd}), owner)
        assert (await wire.reply()).text() == f"slept {tag}"


async def test_modern_calls_are_not_cancelled_by_a_notification_of_a_stranger(served: Served) -> None:
    params = called("async_sleep", seconds=0.6, tag="stranger")
    async with Wire.open(served.port) as wire:
        await wire.send(
            framed(served.port, in_modern.body("tools/call", params, 1), modern_headers("tools/call", params))
        )
        await until(lambda: "started stranger" in served.traced(), "the call")
        body = notification("notifications/cancelled", {"requestId": 1, "_meta": META})
        await http(served.port, body, modern_headers("notifications/cancelled", {}))
        assert (await wire.reply()).text() == "slept stranger"


async def test_the_second_of_two_calls_with_one_id_is_refused_and_the_first_answered(served: Served) -> None:
    headers = await session(served.port)
    async with Wire.open(served.port) as wire:
        params = called("async_sleep", seconds=0.6, tag="first")
        await wire.send(framed(served.port, message("tools/call", params, 51), headers))
        await until(lambda: "started first" in served.traced(), "the call")
        second = await http(served.port, message("tools/call", called("add", a=671, b=1), 51), headers)
        assert second.error()["code"] == -32600
        first = await wire.reply()
    assert first.text() == "slept first"
    assert first.json()["id"] == 51
    assert "add 671 1" not in served.traced()


@pytest.mark.parametrize("era", ["modern", "two sessions", "one session, two types"])
async def test_ids_that_only_look_the_same_are_both_answered(served: Served, era: str) -> None:
    one = await session(served.port)
    two = one if "types" in era else await session(served.port)
    tag = f"same-{era.split()[-1]}"
    params = called("async_sleep", seconds=0.4, tag=tag)
    bodies: list[tuple[bytes, dict[str, str | None]]]
    if era == "modern":
        bodies = [(in_modern.body("tools/call", params, 1), modern_headers("tools/call", params))] * 2
    else:
        bodies = [
            (message("tools/call", params, 1), one),
            (message("tools/call", params, "1" if "types" in era else 1), two),
        ]
    replies = await asyncio.gather(*(http(served.port, body, headers) for body, headers in bodies))
    assert [reply.text() for reply in replies] == [f"slept {tag}"] * 2


@both_eras
async def test_60_sleeping_threads_hold_up_no_other_call(served: Served, era: Era) -> None:
    headers = await era.headers(served.port, "tools/call", called("plain_sleep"))
    finished: list[int] = []

    async def sleep(number: int) -> None:
        params = called("plain_sleep", seconds=0.1, tag=f"thread-{era.name}-{number}")
        reply = await http(served.port, era.body("tools/call", params), headers)
        assert reply.text() == f"slept thread-{era.name}-{number}"
        finished.append(number)

    tasks = [asyncio.create_task(sleep(number)) for number in range(60)]
    await until(lambda: sum(f"started thread-{era.name}" in line for line in served.traced()) >= 8, "the pool")
    for _ in range(3):
        assert (await era.call(served.port, "add", a=1, b=2)).text() == "3"
    assert len(finished) < 30, "add did not wait for the sleepers"
    await asyncio.gather(*tasks)


async def test_a_crowd_of_one_client_leaves_room_for_the_plain_function_of_another(served: Served) -> None:
    crowd, other = await session(served.port), await session(served.port)
    finished: list[int] = []

    async def sleep(number: int) -> None:
        params = called("plain_sleep", seconds=0.1, tag=f"crowd-{number}")
        await http(served.port, message("tools/call", params), crowd)
        finished.append(number)

    tasks = [asyncio.create_task(sleep(number)) for number in range(60)]
    await until(lambda: sum("started crowd" in line for line in served.traced()) >= 8, "the pool")
    reply = await http(served.port, message("tools/call", called("plain_sleep", seconds=0, tag="alone")), other)
    assert reply.text() == "slept alone"
    assert len(finished) < 40, "it did not queue behind all of them"
    await asyncio.gather(*tasks)


async def test_a_thread_nobody_waits_for_any_more_gives_its_place_back(served: Served) -> None:
    for number in range(40):
        async with Wire.open(served.port) as wire:
            params = called("plain_sleep", seconds=0.2, tag=f"left-{number}")
            await wire.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
    assert (await in_modern.call(served.port, "plain_sleep", seconds=0, tag="after")).text() == "slept after"


async def test_a_tool_that_blocks_the_loop_is_named_in_the_log(served: Served) -> None:
    assert (await in_modern.call(served.port, "block_loop", seconds=0.6)).text() == "blocked"
    await until(lambda: "block_loop" in served.logged(), "the watchdog's word")
    await still_serves(served.port)


@both_eras
@pytest.mark.parametrize("tool", ["late", "plain_late"])
async def test_a_tool_beyond_its_timeout_is_stopped_and_the_model_told(served: Served, era: Era, tool: str) -> None:
    reply = await era.call(served.port, tool)
    assert reply.status == 200
    assert reply.result()["isError"]
    assert tool in reply.text()


RAISERS = ["raise_async", "raise_async_later", "raise_plain"]
EXCEPTIONS = [
    "secret",
    "chained",
    "group",
    "unprintable",
    "exit",
    "interrupt",
    "alien",
    "cancelled",
    "generator_exit",
    "stop",
    "stop_async",
    "recursion",
    "memory",
    "timeout",
]


@both_eras
@pytest.mark.parametrize("kind", EXCEPTIONS)
@pytest.mark.parametrize("tool", RAISERS)
async def test_whatever_a_tool_raises_the_model_is_told_and_the_log_knows_more(
    served: Served, era: Era, tool: str, kind: str
) -> None:
    async with asyncio.timeout(3):
        reply = await era.call(served.port, tool, kind=kind)
    assert reply.status == 200
    assert reply.result()["isError"]
    text = reply.text()
    assert SECRET.encode() not in reply.body
    assert tool in text
    error_id = text.split("(error ")[1].split(")")[0]
    assert error_id in served.logged()
    assert (await in_modern.call(served.port, "add", a=2, b=2)).text() == "4"


@both_eras
@pytest.mark.parametrize("tool", RAISERS)
async def test_what_a_tool_says_to_the_model_is_sent_as_it_stands(served: Served, era: Era, tool: str) -> None:
    reply = await era.call(served.port, tool, kind="told")
    assert (reply.result()["isError"], reply.text()) == (True, "the disk is full")


@both_eras
async def test_what_a_tool_says_to_the_model_reaches_it_even_with_a_lone_surrogate(served: Served, era: Era) -> None:
    reply = await era.call(served.port, "raise_async", kind="told_surrogate")
    assert reply.result()["isError"]


@both_eras
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "fault://secret"}),
        ("resources/read", {"uri": "fault://exit"}),
        ("resources/read", {"uri": "fault://surrogate"}),
        ("prompts/get", {"name": "secret_prompt"}),
        ("prompts/get", {"name": "exit_prompt"}),
        ("prompts/get", {"name": "surrogate_prompt"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "x"}},
        ),
    ],
)
async def test_other_functions_that_fail_are_internal_errors_without_their_text(
    served: Served, era: Era, method: str, params: dict[str, Any]
) -> None:
    reply = await era.ask(served.port, method, params)
    assert (reply.status, reply.error()["code"]) == (200, -32603)
    assert SECRET.encode() not in reply.body
    await still_serves(served.port)


UNSENDABLE = {
    "nan": "finite",
    "infinity": "ratio",
    "surrogate": "surrogate",
    "surrogate_inside": "surrogate",
    "surrogate_key": "surrogate",
    "loop": "",
    "deep": "",
    "object": "object",
    "object_inside": "object",
    "tuple_key": "tuple",
    "function": "function",
    "generator": "generator",
    "big_integer": "",
    "bytes": "bytes",
    "content_surrogate": "surrogate",
    "result_surrogate": "surrogate",
    "result_nan": "ratio",
    "mix": "object",
}


@both_eras
@pytest.mark.parametrize("kind", UNSENDABLE)
async def test_what_cannot_be_sent_is_a_failure_that_names_it(served: Served, era: Era, kind: str) -> None:
    for tool in ("give", "give_plain"):
        reply = await era.call(served.port, tool, kind=kind)
        assert reply.status == 200
        assert reply.result()["isError"], reply
        assert tool in reply.text()
        assert UNSENDABLE[kind] in reply.text()
        assert "structuredContent" not in reply.result()


@both_eras
async def test_a_model_that_holds_no_number_names_the_field(served: Served, era: Era) -> None:
    reply = await era.call(served.port, "give_model")
    assert reply.result()["isError"]
    assert "ratio" in reply.text()
    wrong = await era.call(served.port, "give_wrong_type")
    assert wrong.result()["isError"]


@both_eras
async def test_5_mb_of_text_arrive_whole(served: Served, era: Era) -> None:
    reply = await era.call(served.port, "give", kind="big")
    assert reply.text() == "x" * 5_000_000


# Streams that wait


async def listen(wire: Wire, port: int, id_: Any = "listen") -> None:
    params = {"notifications": {"toolsListChanged": True}}
    await wire.send(
        framed(port, in_modern.body("subscriptions/listen", params, id_), modern_headers("subscriptions/listen", {}))
    )
    status, headers = await wire.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    first = await wire.event()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["_meta"][SUBSCRIPTION] == id_


async def watch(wire: Wire, port: int, headers: dict[str, str | None]) -> None:
    await wire.send(framed(port, None, {**headers, "Accept": "text/event-stream"}, "GET"))
    status, found = await wire.head()
    assert (status, found["content-type"]) == (200, "text/event-stream")


async def test_hundreds_of_idle_streams_cost_little_and_leave_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        await still_serves(served.port)
        idle, before = served.sockets(), served.memory()
        count = 200
        async with contextlib.AsyncExitStack() as stack:
            streams = []
            for number in range(count):
                wire = await stack.enter_async_context(Wire.open(served.port, 60))
                await listen(wire, served.port, number)
                streams.append(wire)
            for _ in range(count):
                wire = await stack.enter_async_context(Wire.open(served.port, 60))
                await watch(wire, served.port, await session(served.port))
                streams.append(wire)
            assert served.memory() - before < count * 2 * 100_000
            await in_modern.call(served.port, "announce")
            for number, wire in enumerate(streams):
                told = await wire.event()
                assert told["method"] == "notifications/tools/list_changed"
                if number < count:
                    assert told["params"]["_meta"][SUBSCRIPTION] == number
        await until(lambda: served.sockets() <= idle + 1, "the end of the connections")
        async with Wire.open(served.port) as wire:
            await listen(wire, served.port)
            await in_modern.call(served.port, "announce")
            assert (await wire.event())["method"] == "notifications/tools/list_changed"
        assert "Traceback" not in served.logged()


async def test_a_listener_that_reads_nothing_is_not_kept_for_ever(tmp_path: Path) -> None:
    with serving(tmp_path, unsent_bytes=50_000) as served:
        await still_serves(served.port)
        before = served.memory()
        async with Wire.open(served.port, 60) as deaf, Wire.open(served.port, 60) as caller:
            await listen(deaf, served.port)
            params = called("announce")
            request = framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            for _ in range(400):
                await caller.send(request * 10)
                for _ in range(10):
                    assert (await caller.reply()).status == 200
            assert served.memory() - before < SLACK
        await still_serves(served.port)


@both_eras
async def test_a_tool_that_talks_to_a_client_that_does_not_read_fills_no_memory(served: Served, era: Era) -> None:
    """100 MB of progress: the tool waits, or its stream is dropped."""
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()
    params = {**called("chatty", count=50_000, size=2_000, tag="deaf"), "_meta": {"progressToken": 1}}
    async with Wire.open(served.port) as wire:
        headers = await era.headers(served.port, "tools/call", params)
        await wire.send(framed(served.port, era.body("tools/call", params), headers))
        assert (await wire.head())[1]["content-type"] == "text/event-stream"
        for _ in range(3):
            await asyncio.sleep(0.2)
            assert served.peak() - before < SLACK
            await still_serves(served.port)
    if not era.modern:
        assert (await http(served.port, None, headers, "DELETE")).status in {200, 202, 204}


async def test_beyond_the_calls_it_takes_the_server_is_busy_and_then_not(tmp_path: Path) -> None:
    with serving(tmp_path, calls=4, sessions=3) as served:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(4):
                wire = await stack.enter_async_context(Wire.open(served.port))
                params = called("never", tag=str(number))
                await wire.send(
                    framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
                )
            await until(lambda: len(served.traced()) == 4, "the calls")
            for _ in range(2):
                busy = await in_modern.call(served.port, "add", a=1, b=2)
                assert (busy.status, busy.error()["code"]) == (503, -32603)
        await until(lambda: sum("ended" in line for line in served.traced()) == 4, "their end")
        assert (await in_modern.call(served.port, "add", a=1, b=2)).text() == "3"

        sessions = [await session(served.port) for _ in range(3)]
        assert (await http(served.port, message("ping", {}), sessions[0])).status == 200
        sessions.append(await session(served.port))
        statuses = [(await http(served.port, message("ping", {}), headers)).status for headers in sessions]
        assert statuses == [200, 404, 200, 200], "the one idle the longest goes"


async def test_a_session_nobody_uses_is_forgotten_and_one_in_use_is_not(tmp_path: Path) -> None:
    with serving(tmp_path, session_idle_seconds=0.5) as served:
        unused, streaming, calling = [await session(served.port) for _ in range(3)]
        async with Wire.open(served.port) as stream, Wire.open(served.port) as call:
            await watch(stream, served.port, streaming)
            params = called("async_sleep", seconds=1.2, tag="x")
            await call.send(framed(served.port, message("tools/call", params), calling))
            await asyncio.sleep(1)
            await session(served.port)
            assert (await http(served.port, message("ping", {}), unused)).status == 404
            assert (await http(served.port, message("ping", {}), streaming)).status == 200
            assert (await call.reply()).text() == "slept x"
            assert (await http(served.port, message("ping", {}), calling)).status == 200


# The end


async def gone(served: Served) -> int:
    await until(lambda: served.process.poll() is not None, f"the end of the process: {served.logged()[-2_000:]}")
    return served.process.wait()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_finishes_its_calls_and_ends_its_streams(tmp_path: Path, stop: signal.Signals) -> None:
    with serving(tmp_path, drain_seconds=5) as served:
        port = served.port
        headers = await session(port)
        async with contextlib.AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(Wire.open(port)) for _ in range(7)]
            modern, handshake, plain, modern_stream, handshake_stream, listening, watching = wires
            await listen(listening, port, "last words")
            await watch(watching, port, headers)
            slow: list[tuple[Wire, dict[str, Any], bool]] = [
                (modern, called("async_sleep", seconds=1, tag="modern"), True),
                (handshake, called("async_sleep", seconds=1, tag="handshake"), False),
                (plain, called("plain_sleep", seconds=1, tag="plain"), True),
                (modern_stream, {**called("speak", seconds=1, tag="ms"), "_meta": {"progressToken": 1}}, True),
                (handshake_stream, {**called("speak", seconds=1, tag="hs"), "_meta": {"progressToken": 1}}, False),
            ]
            for wire, params, is_modern in slow:
                era = in_modern if is_modern else in_handshake
                request_headers = modern_headers("tools/call", params) if is_modern else headers
                await wire.send(framed(port, era.body("tools/call", params), request_headers))
            await until(lambda: len(served.traced()) >= 5, "the calls")
            served.process.send_signal(stop)
            replies = [(await wire.reply()).text() for wire, _, _ in slow]
            last = await listening.event()
            assert await listening.event() is None, "the stream ends as a stream should"
            assert await watching.event() is None, "the stream ends as a stream should"
        assert replies == ["slept modern", "slept handshake", "slept plain", "spoke ms", "spoke hs"]
        assert last["id"] == "last words"
        assert last["result"]["resultType"] == "complete"
        assert last["result"]["_meta"][SUBSCRIPTION] == "last words"
        code = await gone(served)
        assert code == 0 or stop is not signal.SIGTERM
        assert "Traceback" not in served.logged()


async def test_told_to_stop_while_only_streams_are_open_it_goes(tmp_path: Path) -> None:
    with serving(tmp_path, drain_seconds=60) as served:
        headers = await session(served.port)
        async with Wire.open(served.port) as listening, Wire.open(served.port) as watching, Wire.open(served.port):
            await listen(listening, served.port, 1)
            await watch(watching, served.port, headers)
            served.process.terminate()
            assert (await listening.event())["result"]["_meta"][SUBSCRIPTION] == 1
            assert await listening.event() is None
            assert await watching.event() is None
            await gone(served)


async def test_told_to_stop_it_takes_no_new_connection_and_still_answers(tmp_path: Path) -> None:
    with serving(tmp_path, drain_seconds=5) as served:
        async with Wire.open(served.port) as wire:
            params = called("async_sleep", seconds=1, tag="x")
            await wire.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await until(lambda: "started x" in served.traced(), "the call")
            served.process.terminate()

            async def refused() -> bool:
                try:
                    reply = await in_modern.call(served.port, "add", a=1, b=2)
                except ConnectionError:
                    return True
                return reply.status == 503

            while not await refused():
                assert "finished x" not in served.traced()
            assert (await wire.reply()).text() == "slept x"
        await gone(served)


@pytest.mark.parametrize("tool", ["never", "stubborn"])
async def test_a_call_that_does_not_end_is_failed_after_the_grace(tmp_path: Path, tool: str) -> None:
    with serving(tmp_path, drain_seconds=0.5) as served:
        async with Wire.open(served.port) as modern, Wire.open(served.port) as handshake:
            params = called(tool)
            await modern.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await handshake.send(framed(served.port, message("tools/call", params), await session(served.port)))
            await until(lambda: len(served.traced()) == 2, "the calls")
            served.process.terminate()
            for wire in (modern, handshake):
                reply = await wire.reply()
                found = reply.json()
                assert "error" in found or found["result"].get("isError") or tool == "stubborn", found
        await gone(served)


async def test_a_thread_that_does_not_end_holds_up_the_end_no_longer_than_the_grace(tmp_path: Path) -> None:
    with serving(tmp_path, drain_seconds=0.5) as served:
        async with Wire.open(served.port) as wire:
            params = called("plain_sleep", seconds=120, tag="x")
            await wire.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await until(lambda: "started x" in served.traced(), "the call")
            served.process.terminate()
            found = (await wire.reply()).json()
            assert "error" in found or found["result"].get("isError"), found
            await gone(served)


async def test_slow_clients_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, drain_seconds=0.5, header_seconds=60, body_seconds=60) as served:
        async with contextlib.AsyncExitStack() as stack:
            for opening, rest in SLOW.values():
                wire = await stack.enter_async_context(Wire.open(served.port))
                await wire.send(opening + rest[:1])
            deaf = await stack.enter_async_context(Wire.open(served.port))
            params = called("give", kind="big")
            await deaf.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await still_serves(served.port)
            served.process.terminate()
            await gone(served)


async def test_told_twice_it_goes_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, drain_seconds=120) as served:
        async with Wire.open(served.port) as wire:
            params = called("never")
            await wire.send(
                framed(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await until(lambda: len(served.traced()) == 1, "the call")
            served.process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.3)
            served.process.send_signal(signal.SIGINT)
            await gone(served)


# After all of it


async def test_nothing_of_this_left_the_server_with_calls_in_flight(served: Served) -> None:
    await still_serves(served.port)
    await until(lambda: served.sockets() <= 12, "the end of the connections")
    started = {line.split(" ", 1)[1] for line in served.traced() if line.startswith("started")}
    ended = {line.split(" ", 1)[1] for line in served.traced() if line.split()[0] in {"finished", "cancelled", "ended"}}
    await until(lambda: not {tag for tag in started - ended if tag not in {"block"}}, f"the end of {started - ended}")
