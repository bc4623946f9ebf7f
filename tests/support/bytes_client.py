"""Clients of Delta-MCP and of its extension that give back the bytes of every answer."""

import abc
import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from deltamcp import DeltaServer
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PYTHON, ROOT
from tests.support.raw_link import RawLink, raw_link

EXTENSION = "io.github.delta-mcp/progressive-disclosure"
DELTA_VERSION = "delta-mcp/0.2.0"
BASELINE = "2025-11-25"
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"

ANSWER = (
    b'{"protocolVersion":"delta-mcp/0.2.0","baselineVersion":"2025-11-25",'
    b'"serverInfo":{"name":"demo","version":"1.2"},'
    b'"capabilities":{"tools":{"progressiveDisclosure":true,"lazyLoading":true},"encoding":{"compactJson":true}},'
    b'"encoding":{"format":"json"}}'
)
ANSWER_OVER_HTTP = ANSWER.replace(b'"compactJson":true', b'"compactJson":true,"cbor":true')


class BytesClient(abc.ABC):
    """A client that sends what it is told and gives back the bytes of the answer."""

    answer = ANSWER
    """What it is owed for a delta `initialize` that offers no encodings."""

    def __init__(self) -> None:
        self._ids = 0
        self.heard: list[dict[str, Any]] = []

    @abc.abstractmethod
    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes: ...

    @abc.abstractmethod
    async def note(self, method: str, **params: Any) -> None: ...

    async def raw(self, method: str, params: Any = None, **headers: str) -> bytes:
        """The whole answer; `params` are left out where they are None."""
        self._ids += 1
        body = {"jsonrpc": "2.0", "id": self._ids, "method": method}
        if params is not None:
            body["params"] = params
        return await self._exchange(json.dumps(body).encode(), headers)

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.raw(method, params), object_pairs_hook=unique_keys)
        return answer

    async def result(self, method: str, params: Any = None) -> bytes:
        """The bytes of `result` alone."""
        raw = await self.raw(method, params)
        found = re.fullmatch(rb'\{"jsonrpc":"2\.0","id":%d,"result":(\{.*\})\}' % self._ids, raw, re.DOTALL)
        assert found, raw
        return found[1]

    async def error(self, method: str, params: Any = None) -> bytes:
        """The bytes of `error` alone."""
        raw = await self.raw(method, params)
        found = re.fullmatch(rb'\{"jsonrpc":"2\.0","id":%d,"error":(\{.*\})\}' % self._ids, raw, re.DOTALL)
        assert found, raw
        return found[1]

    async def initialize(self, version: str, capabilities: Any = None) -> bytes:
        result = await self.result(
            "initialize",
            {
                "protocolVersion": version,
                "clientInfo": {"name": "delta-mcp-client", "version": "0.2.0"},
                "capabilities": capabilities or {},
            },
        )
        await self.note("notifications/initialized")
        return result

    async def delta(self, version: str = DELTA_VERSION, progressive: Any = True) -> bytes:
        tools = {"progressiveDisclosure": progressive, "lazyLoading": True}
        return await self.initialize(version, {"tools": tools})

    async def standard(self, version: str = BASELINE) -> bytes:
        return await self.initialize(version)

    async def declaring(self, version: str = BASELINE) -> bytes:
        """A plain client of the handshake era that knows the extension."""
        return await self.initialize(version, {"experimental": {EXTENSION: {}}})


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key is there twice: {[key for key, _ in pairs]}"
    return found


class MemoryBytesClient(BytesClient):
    def __init__(self, link: RawLink) -> None:
        super().__init__()
        self._link = link

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        self._link.send(body)
        while True:
            async with asyncio.timeout(HANG_SECONDS):
                raw = await self._link.receive()
            if "method" not in (message := json.loads(raw)):
                return raw
            self.heard.append(message)

    async def note(self, method: str, **params: Any) -> None:
        self._link.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())


class StdioBytesClient(BytesClient):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        self._in.write(body + b"\n")
        while True:
            async with asyncio.timeout(HANG_SECONDS):
                raw = await self._out.readline()
            assert raw.endswith(b"\n"), "the server went away"
            if "method" not in (message := json.loads(raw)):
                return raw.rstrip(b"\r\n")
            self.heard.append(message)

    async def note(self, method: str, **params: Any) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")


class HttpBytesClient(BytesClient):
    answer = ANSWER_OVER_HTTP

    def __init__(self, http: httpx2.AsyncClient) -> None:
        super().__init__()
        self.http = http
        self.headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    async def post(self, body: bytes, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post("/mcp", content=body, headers={**self.headers, **named})

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        message = json.loads(body)
        if MODERN in json.dumps(message.get("params", {}).get("_meta", {})):
            headers = {"mcp_protocol_version": MODERN, "mcp_method": message["method"], **headers}
            if message["method"] in ("tools/call", "resources/read", "prompts/get"):
                headers["mcp_name"] = message["params"]["name"]
        answer = await self.post(body, **headers)
        assert answer.headers["content-type"] == "application/json"
        if message["method"] == "initialize":
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            self.headers["mcp-protocol-version"] = BASELINE
        return answer.content

    async def note(self, method: str, **params: Any) -> None:
        answer = await self.post(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())
        assert (answer.status_code, answer.content) == (202, b"")


@contextlib.asynccontextmanager
async def memory_client(server: DeltaServer) -> AsyncIterator[MemoryBytesClient]:
    async with raw_link(server.engine) as link:
        yield MemoryBytesClient(link)


@contextlib.asynccontextmanager
async def stdio_client(script: str) -> AsyncIterator[StdioBytesClient]:
    process = await asyncio.create_subprocess_exec(
        str(FORKED_PYTHON), "-c", script, stdin=-1, stdout=-1, cwd=ROOT, limit=2**24
    )
    try:
        yield StdioBytesClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(HANG_SECONDS):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
    assert code == 0


@contextlib.asynccontextmanager
async def http_clients(server: DeltaServer, **options: Any) -> AsyncIterator[Callable[[], HttpBytesClient]]:
    """Peers of one server, as many as are asked for; `options` are those of `asgi`."""
    async with server.engine.lifespan.running():
        transport = httpx2.ASGITransport(app=server.asgi(**options))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield lambda: HttpBytesClient(http)


def modern_params(declared: bool = True, **params: Any) -> dict[str, Any]:
    """Params of a request of the modern era, with the extension or without."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}} if declared else {},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    }
    return {**params, "_meta": meta}


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
