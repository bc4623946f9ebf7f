"""A call leaves nothing to the garbage collector, whose pauses every caller would feel."""

import asyncio
import collections
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from deltamcp import Context, DeltaServer
from deltamcp.runtime.threads import Threads
from tests.support.http_server import serve_http
from tests.support.raw_client import META, raw_client

CALLS = 20


def make_server() -> DeltaServer:
    server = DeltaServer("cycles")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def subtract(a: int, b: int) -> int:
        return a - b

    @server.tool
    async def count(upto: int, context: Context) -> int:
        await context.report_progress(1, upto)
        await asyncio.sleep(0)
        return upto

    @server.tool
    async def fail() -> None:
        raise RuntimeError("no")

    @server.tool(timeout=0.01)
    async def sleep() -> None:
        await asyncio.sleep(3600)

    @server.tool
    async def rows() -> list[dict[str, int]]:
        return [{"id": number, "square": number * number} for number in range(20_000)]

    return server


TOOLS: dict[str, dict[str, Any]] = {
    "add": {"a": 1, "b": 2},
    "subtract": {"a": 1, "b": 2},
    "count": {"upto": 3},
    "fail": {},
    "sleep": {},
    "rows": {},
}


class Garbage:
    types: collections.Counter[str]


@contextlib.contextmanager
def collected_garbage() -> Iterator[Garbage]:
    """The types of the objects that only the garbage collector can free after the `with` block."""
    found = Garbage()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.types = collections.Counter(type(one).__name__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def garbage_of_calls(call: Callable[[], Awaitable[Any]]) -> "collections.Counter[str]":
    """The types of what `CALLS` calls leave, in the best of three attempts.

    A thread of an earlier test may end meanwhile and leave that test's server.
    """
    for _ in range(3):
        with collected_garbage() as garbage:
            for _ in range(CALLS):
                await call()
        if garbage.types.total() < CALLS:
            break
    return garbage.types


class HttpConnection:
    """One connection over which a client sends requests in turn."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.session = b""

    async def post(self, message: dict[str, Any], accept: bytes, *headers: bytes) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode()
        lines = [
            b"POST /mcp HTTP/1.1",
            b"host: 127.0.0.1",
            b"content-type: application/json",
            b"accept: " + accept,
            b"content-length: %d" % len(body),
            *headers,
        ]
        self._writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        if b"mcp-session-id: " in head:
            self.session = head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0]
        if b"content-length: " in head:
            return await self._reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        whole = b""
        while size := int(await self._reader.readline(), 16):
            whole += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
        return whole

    async def open_session(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await self.post({"method": "initialize", "params": params}, b"application/json, text/event-stream")

    async def call(self, tool: str, accept: bytes) -> bytes:
        params = {"name": tool, "arguments": TOOLS[tool]}
        if self.session:
            version = (b"mcp-session-id: " + self.session, b"mcp-protocol-version: 2025-11-25")
            return await self.post({"method": "tools/call", "params": params}, accept, *version)
        named = (b"mcp-protocol-version: 2026-07-28", b"mcp-method: tools/call", b"mcp-name: " + tool.encode())
        return await self.post({"method": "tools/call", "params": {**params, "_meta": META}}, accept, *named)


@contextlib.asynccontextmanager
async def http_connection() -> AsyncIterator[HttpConnection]:
    async with serve_http(make_server()) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        try:
            yield HttpConnection(reader, writer)
        finally:
            writer.close()


@pytest.mark.parametrize("accept", [b"application/json, text/event-stream", b"text/event-stream"])
@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("tool", TOOLS)
async def test_http(tool: str, era: str, accept: bytes) -> None:
    async with http_connection() as connection:
        if era == "handshake":
            await connection.open_session()
        for _ in range(3):
            await connection.call(tool, accept)
        left = await garbage_of_calls(lambda: connection.call(tool, accept))
    assert left.total() < CALLS, left


@pytest.mark.parametrize("tool", TOOLS)
async def test_one_connection(tool: str) -> None:
    async with raw_client(make_server()) as client:
        for _ in range(3):
            await client.modern("tools/call", name=tool, arguments=TOOLS[tool])
        left = await garbage_of_calls(lambda: client.modern("tools/call", name=tool, arguments=TOOLS[tool]))
    assert left.total() < CALLS, left


async def test_errors_in_threads() -> None:
    def fail() -> None:
        raise ValueError("no")

    threads = Threads(1)

    async def call() -> None:
        with contextlib.suppress(ValueError):
            await threads.run("ann", fail, {})

    left = await garbage_of_calls(call)
    assert left.total() < CALLS, left
