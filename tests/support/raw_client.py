"""A client that sends exactly what it is told and hides nothing."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from deltamcp import DeltaServer
from tests.support.conditions import HANG_SECONDS
from tests.support.raw_link import RawLink, raw_link

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


class RawClient:
    """One in-process connection. What is not an answer to `call` is kept in `heard`."""

    def __init__(self, link: RawLink) -> None:
        self._link = link
        self._ids = 0
        self.heard: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self._link.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(HANG_SECONDS):
            found: dict[str, Any] = json.loads(await self._link.receive())
        return found

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole response to a request."""
        self._ids += 1
        self.send(id=self._ids, method=method, params=params)
        while True:
            message = await self.receive()
            if message.get("id") == self._ids and "method" not in message:
                return message
            self.heard.append(message)

    async def modern(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.call(method, _meta=META, **params)

    async def handshake(self, version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        answer = await self.call(
            "initialize",
            protocolVersion=version,
            capabilities=capabilities,
            clientInfo={"name": "raw", "version": "1"},
        )
        self.send(method="notifications/initialized")
        return answer

    async def next_heard(self) -> dict[str, Any]:
        return self.heard.pop(0) if self.heard else await self.receive()


@contextlib.asynccontextmanager
async def raw_client(server: DeltaServer) -> AsyncIterator[RawClient]:
    async with raw_link(server.engine) as link:
        yield RawClient(link)


def answer_text(answer: dict[str, Any]) -> str:
    """The text of a tool's result."""
    found: str = answer["result"]["content"][0]["text"]
    return found
