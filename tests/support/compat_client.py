"""A client of `asgi(compat=True)` that sends whatever a test wants and gives back the whole response."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from deltamcp import DeltaServer
from tests.support.bytes_client import BASELINE, DELTA_VERSION

PRM_PATH = "/.well-known/oauth-protected-resource"
DELTA_OFFER = {
    "protocolVersion": DELTA_VERSION,
    "clientInfo": {"name": "delta-mcp-client", "version": "0.2.0"},
    "capabilities": {
        "tools": {"progressiveDisclosure": True, "lazyLoading": True},
        "encoding": {"compactJson": True},
    },
}
STANDARD_OFFER: dict[str, Any] = {"protocolVersion": BASELINE, "capabilities": {}}


class CompatClient:
    """Posts to the server with the headers of the original's client."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def post(self, body: Any, headers: dict[str, str] | None = None, path: str = "/") -> httpx2.Response:
        """Posts bytes as they are, and anything else as JSON."""
        sent = {"content-type": "application/json", "mcp-protocol-version": BASELINE, **(headers or {})}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(path, content=content, headers={k: v for k, v in sent.items() if v})

    async def request(
        self, method: str, params: Any = None, headers: dict[str, str] | None = None, id_: int = 1
    ) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": id_, "method": method}
        return await self.post(body if params is None else {**body, "params": params}, headers)

    async def open_session(self, offer: Any = DELTA_OFFER) -> dict[str, str]:
        """The header that names a new session."""
        answer = await self.request("initialize", offer)
        assert answer.status_code == 200
        return {"mcp-session-id": answer.headers["mcp-session-id"]}

    async def tools(self, session: dict[str, str] | None = None) -> list[dict[str, Any]]:
        answer = await self.request("tools/list", headers=session)
        assert answer.status_code == 200
        tools: list[dict[str, Any]] = answer.json()["result"]["tools"]
        return tools


@contextlib.asynccontextmanager
async def compat_client(server: DeltaServer, **options: Any) -> AsyncIterator[CompatClient]:
    async with server.engine.lifespan.running():
        transport = httpx2.ASGITransport(app=server.asgi(compat=True, **options))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield CompatClient(http)
