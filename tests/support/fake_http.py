"""An HTTP server on bare sockets that answers rightly until it is told to do something else.

    async with serve_fake(Fake(handshake=False)) as fake:
        fake.once("tools/call", closed)
        async with connect(fake.url) as client: ...

A fault is `async def fault(asked, wire)`: it answers a request by itself, or leaves it to `fake.answer`.
"""

import asyncio
import base64
import contextlib
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from deltamcp.wire.codecs import JSON_CODEC, Codec, codec_for_accept, codec_for_content_type

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ANY: dict[str, Any] = {"type": "object"}
TOOLS: list[Any] = [
    {"name": "echo", "description": "Gives back its arguments.", "inputSchema": ANY},
    {"name": "buy", "description": "Does something every time.", "inputSchema": ANY},
    {"name": "look", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "put", "inputSchema": ANY, "annotations": {"idempotentHint": True, "readOnlyHint": False}},
]
REASONS = {200: "OK", 202: "Accepted", 401: "Unauthorized", 404: "Not Found", 503: "Service Unavailable"}


async def read_head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    """The method, target and headers of the next request, before its body."""
    top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = top.rstrip("\r\n").split("\r\n")
    verb, target, _ = first.split(" ")
    return verb, target, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


class FakeRequest:
    """One request."""

    def __init__(self, verb: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.verb = verb
        self.path = path
        self.headers = headers
        self.body = body
        self.codec: Codec = codec_for_content_type(headers.get("content-type", ""))
        read: Any = self.codec.decode(body) if body else {}
        self.message: dict[str, Any] = read

    @property
    def method(self) -> str:
        """Of JSON-RPC; the HTTP method where there is no message."""
        return self.message.get("method", "response") if self.message else self.verb

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params") or {}

    @property
    def id(self) -> Any:
        return self.message.get("id")


class FakeConnection:
    """The way back to one client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.is_open = True

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def bytewise(self, data: bytes) -> None:
        """One byte at a time, each of them a piece of its own on the wire."""
        for at in range(len(data)):
            await self.raw(data[at : at + 1])
            await asyncio.sleep(0)

    def close(self) -> None:
        self.is_open = False
        self.writer.close()

    def abort(self) -> None:
        """By a reset, not an end."""
        self.is_open = False
        transport: Any = self.writer.transport
        transport.abort()

    async def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        await self.raw(head(status, **headers, content_length=str(len(body))) + body)

    async def json(self, value: Any, status: int = 200, codec: Codec = JSON_CODEC, **headers: str) -> None:
        await self.answer(status, codec.encode(value), **{"content_type": codec.content_type, **headers})

    async def events(self, **headers: str) -> None:
        """Begins a stream."""
        await self.raw(head(200, content_type="text/event-stream", transfer_encoding="chunked", **headers))

    async def event(self, message: Any, id: str | None = None, retry: int | None = None) -> None:
        lines = [f"id: {id}"] if id is not None else []
        lines += [f"retry: {retry}"] if retry is not None else []
        lines.append("data: " + (json.dumps(message) if message is not None else ""))
        await self.chunk(("\n".join(lines) + "\n\n").encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")


Fault: TypeAlias = Callable[[FakeRequest, FakeConnection], Awaitable[None]]


def head(status: int, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Something')}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Fake:
    """The protocol, and a record of everything that was asked."""

    def __init__(
        self,
        *,
        modern: bool = True,
        handshake: bool = True,
        sessions: bool = False,
        tools: list[Any] | None = None,
        streams: bool = False,
        ttl: int = 60_000,
        **capabilities: Any,
    ) -> None:
        self.modern = modern
        self.handshake = handshake
        self.has_sessions = sessions
        self.sessions: set[str] = set()
        self.tools = TOOLS if tools is None else tools
        self.streams = streams
        """Whether every answer is a stream of events."""
        self.ttl = ttl
        self.capabilities = capabilities or {"tools": {"listChanged": True}}
        self.asked: list[FakeRequest] = []
        self.ran: list[tuple[str, Any]] = []
        self.connections = 0
        self.before_body: set[str] = set()
        """Requests with these `Mcp-Method`s are hung up on before their body is read, once."""
        self.url = ""
        self._once: dict[str, list[Fault]] = defaultdict(list)
        self._always: dict[str, Fault] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.ending = asyncio.Event()

    # Being told what to do

    def once(self, method: str, *faults: Fault) -> None:
        self._once[method] += faults

    def always(self, method: str, fault: Fault) -> None:
        self._always[method] = fault

    def of(self, method: str) -> list[FakeRequest]:
        return [asked for asked in self.asked if asked.method == method]

    def runs(self, name: str) -> int:
        return sum(tool == name for tool, _ in self.ran)

    # HTTP

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        wire = FakeConnection(writer)
        try:
            while wire.is_open and (asked := await self._read(reader, wire)):
                await self._serve(asked, wire)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the end of a connection is never a mistake here
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, wire: FakeConnection) -> FakeRequest | None:
        try:
            verb, path, headers = await read_head(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        if headers.get("mcp-method") in self.before_body:
            self.before_body.discard(headers["mcp-method"])
            wire.abort()
            return None
        asked = FakeRequest(verb, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
        self.asked.append(asked)
        return asked

    async def _serve(self, asked: FakeRequest, wire: FakeConnection) -> None:
        once = self._once[asked.method]
        fault = once.pop(0) if once else self._always.get(asked.method)
        await (fault or self.answer)(asked, wire)

    async def close(self) -> None:
        self.ending.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # MCP

    async def answer(self, asked: FakeRequest, wire: FakeConnection) -> None:
        """What a server does that is right."""
        if asked.verb == "GET":
            await wire.answer(405, allow="POST")
            return
        if asked.verb == "DELETE":
            self.sessions.discard(asked.headers.get("mcp-session-id", ""))
            await wire.answer(200)
            return
        is_modern = META + "protocolVersion" in asked.params.get("_meta", {})
        if is_modern and not self.modern:
            await wire.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "No session."}}, 400)
            return
        if not is_modern and not self.handshake and asked.method != "response" and asked.id is not None:
            error = {"code": -32022, "message": "Too old.", "data": {"supported": [MODERN], "requested": "older"}}
            await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": error}, 400)
            return
        stateful = not is_modern and self.has_sessions and asked.method != "initialize"
        if stateful and asked.headers.get("mcp-session-id") not in self.sessions:
            await wire.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Gone."}}, 404)
            return
        if asked.id is None or asked.method == "response":
            await wire.answer(202)
            return
        if asked.method == "subscriptions/listen":
            await self._listen(asked, wire)
            return
        more = {}
        if asked.method == "initialize" and self.has_sessions:
            session = f"session-{len(self.of('initialize'))}"
            self.sessions.add(session)
            more["mcp_session_id"] = session
        reply = {"jsonrpc": "2.0", "id": asked.id, **self.result(asked)}
        if self.streams:
            await wire.events(**more)
            await wire.event(reply)
            await wire.end()
        else:
            status = 404 if reply.get("error", {}).get("code") == -32601 and is_modern else 200
            codec = codec_for_accept(asked.headers.get("accept", ""), asked.codec)
            await wire.json(reply, status, codec, **more)

    async def _listen(self, asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        meta = {META + "subscriptionId": asked.id}
        notifications = asked.params.get("notifications", {})
        told = {"_meta": meta, "notifications": notifications}
        await wire.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": told})
        await self.ending.wait()

    def result(self, asked: FakeRequest) -> dict[str, Any]:
        who = {"name": "fake", "version": "1"}
        about: dict[str, Any] = {"resultType": "complete", "capabilities": self.capabilities}
        hints = {"ttlMs": self.ttl, "cacheScope": "private"}
        match asked.method:
            case "server/discover":
                meta = {META + "serverInfo": who}
                return {"result": {**about, **hints, "supportedVersions": [MODERN], "_meta": meta}}
            case "initialize":
                return {"result": {**about, "protocolVersion": "2025-11-25", "serverInfo": who}}
            case "tools/list":
                return {"result": {"resultType": "complete", "tools": self.tools, **hints}}
            case "tools/call":
                name = asked.params["name"]
                self.ran.append((name, asked.params.get("arguments")))
                return {"result": result({"given": asked.params.get("arguments"), "ran": self.runs(name)})}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    def run(self, asked: FakeRequest) -> dict[str, Any]:
        """The tool is run, its answer not sent yet."""
        return {"jsonrpc": "2.0", "id": asked.id, **self.result(asked)}


def result(value: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": json.dumps(value)}]
    return {"resultType": "complete", "content": content, "structuredContent": value}


def header_value(text: str) -> str:
    """What a header of MCP says, decoded (2026-07-28, "Value Encoding")."""
    if text.startswith("=?base64?") and text.endswith("?="):
        return base64.b64decode(text[9:-2]).decode()
    return text


F = TypeVar("F", bound=Fake)


@contextlib.asynccontextmanager
async def serve_fake(fake: F, tls: ssl.SSLContext | None = None) -> AsyncIterator[F]:
    server = await asyncio.start_server(fake.connected, "127.0.0.1", 0, limit=1 << 22, ssl=tls)
    fake.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield fake
    finally:
        server.close()
        await fake.close()
        await server.wait_closed()
