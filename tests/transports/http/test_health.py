"""`/healthz` and `/readyz`."""

import asyncio
import contextlib
import json
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from deltamcp import DeltaServer, Limits
from deltamcp.stores.store import DEFAULT_QUOTAS, MemoryStore, StoreUnreachableError


def client(app: Any, base: str = "http://evil.example") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=base)


class BrokenStore(MemoryStore):
    """A store that answers, refuses or hangs."""

    mood = "answers"
    asked = 0

    async def get(self, owner: str, name: str) -> bytes | None:
        self.asked += 1
        if self.mood == "refuses":
            raise StoreUnreachableError("redis://:password@10.0.0.7 is down")
        if self.mood == "fails":
            raise RuntimeError("password")
        if self.mood == "hangs":
            await asyncio.Event().wait()
        return None


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr("deltamcp.transports.http.pages._CHECK_SECONDS", 0.0)
    return BrokenStore(DEFAULT_QUOTAS)


async def test_both_pages_answer_by_any_name_and_without_credentials():
    async with client(DeltaServer("x").asgi()) as http:
        for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
            response = await http.get(path)
            assert (response.status_code, response.json()) == (200, {"status": status})
            assert response.headers["cache-control"] == "no-store"
            assert (await http.head(path)).status_code == 200
            assert (await http.post(path)).status_code == 405


@pytest.mark.parametrize("mood", ["refuses", "fails", "hangs"])
async def test_a_server_whose_store_does_not_answer_lives_but_is_not_ready(store, mood):
    server = DeltaServer("x", store=store, limits=Limits(store_seconds=0.01))
    async with client(server.asgi()) as http:
        assert (await http.get("/readyz")).status_code == 200
        store.mood = mood
        response = await http.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"status": "store unavailable"})
        assert (await http.get("/healthz")).status_code == 200


async def test_the_store_is_asked_once_however_many_ask():
    store = BrokenStore(DEFAULT_QUOTAS)
    async with client(DeltaServer("x", store=store).asgi()) as http:
        await asyncio.gather(*(http.get("/readyz") for _ in range(20)))
    assert store.asked == 1


async def test_a_server_that_drains_is_not_ready():
    app = DeltaServer("x").asgi()
    async with client(app) as http:
        app.drain()
        response = await http.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"status": "draining"})
        assert (await http.get("/healthz")).status_code == 200


async def test_a_server_whose_lifespan_fails_is_not_ready_and_says_nothing_else(caplog):
    @contextlib.asynccontextmanager
    async def lifespan(_: DeltaServer):
        raise RuntimeError("password")
        yield

    async with client(DeltaServer("x", lifespan=lifespan).asgi()) as http:
        assert (await http.get("/healthz")).status_code == 200
        response = await http.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"status": "not started"})
    assert "its lifespan fails" in caplog.text


async def test_the_pages_are_routes_of_another_application_too():
    server = DeltaServer("x")
    app = Starlette(lifespan=server.lifespan, routes=server.routes("/tools/mcp"))
    async with client(app) as http, server.lifespan():
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        assert (await http.get("/tools/mcp")).status_code == 421


async def test_the_pages_reveal_one_word(store):
    store.mood = "refuses"
    async with client(DeltaServer("x", store=store).asgi()) as http:
        assert list(json.loads((await http.get("/readyz")).content)) == ["status"]
