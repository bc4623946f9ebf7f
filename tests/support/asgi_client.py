"""A client of an ASGI application that reads each response as it comes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from deltamcp import DeltaServer
from deltamcp.transports.http.app import ServerApp
from tests.support.conditions import HANG_SECONDS

ACCEPT_BOTH = "application/json, text/event-stream"
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "x", "version": "1"},
}


class AsgiExchange:
    """One HTTP request against an ASGI application, its response read as it comes."""

    def __init__(
        self,
        app: Any,
        method: str,
        headers: dict[str, str],
        body: bytes = b"",
        address: str = "127.0.0.1",
        path: str = "/mcp",
    ) -> None:
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._left = asyncio.Event()
        self._body: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        raw = [(name.lower().encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw, "client": (address, 1)}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return self._body.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Any) -> None:
        if not self._left.is_set():
            self._sent.put_nowait(event)

    def leave(self) -> None:
        self._left.set()

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(HANG_SECONDS):
            return await self._sent.get()

    async def start(self) -> tuple[int, dict[str, str]]:
        event = await self.next()
        return event["status"], {name.decode(): value.decode() for name, value in event["headers"]}

    async def event(self) -> dict[str, str]:
        """The next server-sent event by field; empty at the end of the stream."""
        event = await self.next()
        lines = event.get("body", b"").decode().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines if line)}

    async def json(self) -> Any:
        return json.loads((await self.next())["body"])


class AsgiClient:
    def __init__(self, app: ServerApp) -> None:
        self._app = app
        self.headers = {"content-type": "application/json", "accept": ACCEPT_BOTH}
        self.address = "127.0.0.1"

    def post(self, body: Any, **headers: str) -> AsgiExchange:
        return AsgiExchange(self._app, "POST", {**self.headers, **headers}, json.dumps(body).encode(), self.address)

    def request(self, id_: int | str, method: str, **params: Any) -> AsgiExchange:
        return self.post({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})

    def get(self, **headers: str) -> AsgiExchange:
        return AsgiExchange(self._app, "GET", {**self.headers, "accept": "text/event-stream", **headers})

    async def initialize(self, version: str = "2025-11-25") -> None:
        exchange = self.request(0, "initialize", **{**INITIALIZE, "protocolVersion": version})
        status, headers = await exchange.start()
        assert status == 200
        self.headers["mcp-session-id"] = headers["mcp-session-id"]
        note = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await note.start())[0] == 202


@contextlib.asynccontextmanager
async def asgi_client(server: DeltaServer) -> AsyncIterator[AsgiClient]:
    async with server.engine.lifespan.running():
        yield AsgiClient(server.asgi())
