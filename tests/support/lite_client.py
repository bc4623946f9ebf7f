"""A server with the tools of MCP-lite's examples, and a client of its HTTP paths that reads JSON-RPC by hand."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2

from deltamcp import DeltaServer, ToolError

PREFIX = "/mcp-lite/v1"
SEARCH_SCHEMA = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "description": "Search query"},
        "limit": {"type": "integer", "default": 10, "minimum": 1, "maximum": 100},
    },
}


def lite_server(**options: Any) -> DeltaServer:
    """Tools of each kind; `server.seen` has the arguments of the searches."""
    server = DeltaServer("lite", "1.2", **options)
    seen: list[dict[str, Any]] = []
    server.seen = seen  # type: ignore[attr-defined]

    @server.tool(type="query", input_schema=SEARCH_SCHEMA, description="Search through available documents")
    async def search_documents(arguments: dict[str, Any]) -> list[dict[str, str]]:
        seen.append(arguments)
        return [{"document_id": "doc_123", "title": "MCP Protocol Overview"}]

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(type="broken")
    async def fails() -> str:
        """Fail and say so."""
        raise ToolError("the disk is full")

    @server.tool
    async def no_docstring() -> str:
        return "x"

    return server


class LiteReply(NamedTuple):
    status: int
    headers: httpx2.Headers
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", (self.status, self.body[:200])
        return json.loads(self.body)

    def result(self) -> dict[str, Any]:
        message = self.json()
        assert set(message) == {"jsonrpc", "id", "result"} and message["jsonrpc"] == "2.0", message
        found = message["result"]
        assert isinstance(found, dict)
        return found

    def error(self) -> dict[str, Any]:
        """The error, of a body that is nothing but a JSON-RPC error."""
        message = self.json()
        assert set(message) == {"jsonrpc", "id", "error"} and message["jsonrpc"] == "2.0", message
        found = message["error"]
        assert {"reason", "retryable"} <= found["data"].keys()
        assert isinstance(found, dict)
        return found


class LiteClient:
    def __init__(self, http: httpx2.AsyncClient, prefix: str = PREFIX) -> None:
        self._http = http
        self._prefix = prefix

    async def send(
        self, path: str, body: Any = b"", method: str = "POST", headers: dict[str, str] | None = None
    ) -> LiteReply:
        """One request; a body that is no bytes is sent as JSON, and a header that is empty is left out."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        response = await self._http.request(
            method,
            f"{self._prefix}/{path}",
            content=content,
            headers={name: value for name, value in sent.items() if value},
        )
        return LiteReply(response.status_code, response.headers, response.content)

    async def rpc(self, method: str, params: Any = None, id_: Any = 1, **headers: str) -> LiteReply:
        body = {"jsonrpc": "2.0", "id": id_, "method": method} | ({} if params is None else {"params": params})
        return await self.send("rpc", body, headers=headers)

    async def call(self, name: str, arguments: Any = None, **params: Any) -> LiteReply:
        given = {} if arguments is None else {"arguments": arguments}
        return await self.rpc("tools/call", {"name": name, **given, **params})


@contextlib.asynccontextmanager
async def lite_client(
    server: DeltaServer, prefix: str = PREFIX, mcp_lite: Any = True, **options: Any
) -> AsyncIterator[LiteClient]:
    """A client of the server's application, in this process; `options` are those of `asgi`."""
    app: Any = server.asgi(mcp_lite=mcp_lite, **options)
    transport = httpx2.ASGITransport(app)
    async with (
        server.engine.lifespan.running(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost:8000") as http,
    ):
        yield LiteClient(http, prefix)
