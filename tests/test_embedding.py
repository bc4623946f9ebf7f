"""A server inside another ASGI application: it joins the application's lifespan, and its routes stand beside others."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from deltamcp import Context, DeltaServer, Store, StoreError, connect
from deltamcp.stores.store import MemoryStore
from tests.support.raw_client import META

HEADERS = {
    "accept": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "state",
}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "state", "arguments": {}, "_meta": META}}


def embedded(events: list[str], failing: bool = False) -> tuple[DeltaServer, Starlette]:
    @contextlib.asynccontextmanager
    async def lifespan(server: DeltaServer) -> AsyncIterator[str]:
        if failing:
            raise RuntimeError("no database")
        events.append("open")
        yield "a database"
        events.append("closed")

    server = DeltaServer("inner", lifespan=lifespan)

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.lifespan)

    async def home(request: Any) -> PlainTextResponse:
        return PlainTextResponse("the host's own page")

    return server, Starlette(routes=[Route("/", home), *server.routes("/mcp")], lifespan=server.lifespan)


@contextlib.asynccontextmanager
async def browser(app: Starlette) -> AsyncIterator[httpx2.AsyncClient]:
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


async def test_the_server_is_open_before_the_first_request_and_closed_at_the_end():
    events: list[str] = []
    _, app = embedded(events)
    async with browser(app) as client:
        assert events == ["open"]
        assert (await client.get("/")).text == "the host's own page"
        answer = await client.post("/mcp", json=CALL, headers=HEADERS)
        assert answer.json()["result"]["content"][0]["text"] == "a database"
        assert (await client.get("/elsewhere")).status_code == 404
    assert events == ["open", "closed"]


async def test_a_start_that_fails_fails_the_application():
    _, app = embedded([], failing=True)
    with pytest.raises(RuntimeError, match="no database"):
        async with browser(app):
            pass


async def test_a_client_in_process_shares_the_lifespan_that_is_open():
    events: list[str] = []
    server, app = embedded(events)
    async with browser(app):
        async with connect(server) as client:
            assert await client.call("state") == "a database"
        assert events == ["open"]


class CountingStore(MemoryStore):
    """A store of an author's own."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    async def add(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> bool:
        self.names.append(name)
        return await super().add(owner, name, data, idle_seconds, max_seconds, account)


async def test_a_store_can_be_an_instance():
    from deltamcp import ResultPolicy

    store = CountingStore()
    promised: Store = store
    server = DeltaServer("x", results=ResultPolicy(max_tokens=100), store=promised)

    @server.tool
    async def rows() -> list[dict[str, Any]]:
        return [{"id": number, "title": f"Row {number}"} for number in range(200)]

    async with connect(server) as client:
        assert len(await client.call("rows")) == 200
    assert len(store.names) == 1
    assert issubclass(StoreError, Exception)
