"""Rate limits: per address and principal over HTTP, per tool everywhere; in the store, else in the process."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import ConfigurationError, DeltaServer, HostAuth, Limits, Principal, Rate, RateLimits
from deltamcp.cli import main
from deltamcp.stores.store import DEFAULT_QUOTAS, MemoryStore, StoreUnreachableError, TokenBuckets
from tests.support.asgi_client import INITIALIZE, AsgiClient
from tests.support.conditions import HANG_SECONDS
from tests.support.processes import free_port
from tests.support.raw_client import META, raw_client
from tests.support.redis_server import redis_server

SELDOM = 3600.0
"""Seconds in which no bucket is refilled while a test runs."""


def make_server(**options: Any) -> DeltaServer:
    server = DeltaServer("x", **options)

    @server.tool
    async def add(a: int = 1, b: int = 1) -> int:
        return a + b

    @server.tool
    async def subtract(a: int = 1, b: int = 1) -> int:
        return a - b

    return server


def client(app: Any, address: str = "10.0.0.1") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, client=(address, 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


async def call(http: httpx2.AsyncClient, tool: str = "add", token: str = "", **arguments: Any) -> httpx2.Response:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    headers |= {"accept": "application/json", "authorization": token}
    return await http.post(
        "/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    )


def find_principal(scope: Mapping[str, Any]) -> Principal | None:
    token = dict(scope["headers"]).get(b"authorization", b"").decode()
    return Principal(token) if token else None


async def test_an_address_that_asks_too_often_gets_429_before_anything_else():
    server = make_server(rate_limits=RateLimits(per_address=Rate(2, SELDOM)))
    app = server.asgi(auth=HostAuth(find_principal), allowed_origins=["https://app.example"])
    async with client(app) as http, client(app, "10.0.0.2") as other:
        assert [(await call(http)).status_code for _ in range(3)] == [401, 401, 429]
        refused = await http.get("/nowhere", headers={"host": "evil.example"})
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert error["code"] == -32603 and error["data"] == {"limit": "per_address"}
        assert error["message"] == "Too many requests of this address: 2 in 3600 s are allowed; try again in 1800 s."
        assert refused.headers["retry-after"] == "1800"
        readable = await http.post("/mcp", headers={"origin": "https://app.example"})
        assert readable.status_code == 429 and "access-control-allow-origin" in readable.headers
        assert (await http.get("/healthz")).status_code == (await http.get("/readyz")).status_code == 200
        assert (await call(other, token="ann")).status_code == 200


async def test_a_principal_that_asks_too_often_gets_429_from_every_address():
    server = make_server(rate_limits=RateLimits(per_principal=Rate(2, SELDOM)))
    app = server.asgi(auth=HostAuth(find_principal))
    async with client(app) as http, client(app, "10.0.0.2") as other:
        assert [(await call(one, token="ann")).status_code for one in (http, other, http)] == [200, 200, 429]
        refused = await call(http, token="ann")
        assert refused.json()["error"]["data"] == {"limit": "per_principal"} and "retry-after" in refused.headers
        assert (await call(http, token="bob")).status_code == 200


async def test_callers_without_a_principal_have_no_limit_of_principals():
    app = make_server(rate_limits=RateLimits(per_principal=Rate(1, SELDOM))).asgi(
        auth=HostAuth(lambda _: Principal("anonymous"))
    )
    async with client(app) as http:
        assert [(await call(http)).status_code for _ in range(3)] == [200] * 3


async def test_a_model_that_calls_a_tool_too_often_is_told_what_to_do():
    server = make_server(rate_limits=RateLimits(per_tool={"add": Rate(1, SELDOM)}))
    app = server.asgi(auth=HostAuth(find_principal))
    async with client(app) as http:
        assert not (await call(http, token="ann")).json()["result"].get("isError")
        response = await call(http, token="ann")
        result = response.json()["result"]
        assert response.status_code == 200 and result["isError"]
        assert result["content"][0]["text"] == (
            "add was not called, because it was called too often: 1 in 3600 s are allowed. "
            "Wait 3600 s before you call it again."
        )
        assert not (await call(http, token="bob")).json()["result"].get("isError")
        for _ in range(3):
            assert not (await call(http, "subtract", token="ann")).json()["result"].get("isError")


async def test_a_limit_of_a_tool_that_does_not_exist_is_told(caplog):
    server = make_server(rate_limits=RateLimits(per_tool={"*": Rate(1), "add": Rate(1), "ad": Rate(1)}))
    async with server.lifespan():
        pass
    assert caplog.messages == ["rate_limits names tools that do not exist: ad"]


async def test_calls_through_the_meta_tool_count_too():
    server = make_server(disclosure="meta", rate_limits=RateLimits(per_tool={"*": Rate(2, SELDOM)}))
    async with client(server.asgi()) as http:
        results = [(await call(http, "execute", operation="add", params={})).json()["result"] for _ in range(3)]
        found = (await call(http, "discover")).json()["result"]
    assert [bool(result.get("isError")) for result in results] == [False, False, True]
    assert "was called too often" in results[2]["content"][0]["text"] and not found.get("isError")


async def test_tools_are_limited_over_stdio_and_in_sessions_too():
    server = make_server(rate_limits=RateLimits(per_tool=Rate(1, SELDOM)))
    async with raw_client(server) as raw:
        await raw.handshake()
        results = [(await raw.call("tools/call", name="add"))["result"] for _ in range(2)]
    assert [bool(result.get("isError")) for result in results] == [False, True]


@pytest.mark.parametrize("compat", [False, True])
async def test_another_session_of_an_address_has_no_other_limit(compat):
    server = make_server(rate_limits=RateLimits(per_tool=Rate(2, SELDOM)))
    app = server.asgi(compat=compat)
    texts = []
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"):
        session = AsgiClient(app)
        session.address, session.headers["mcp-protocol-version"] = address, "2025-11-25"
        _, headers = await session.request(0, "initialize", **INITIALIZE).start()
        session.headers["mcp-session-id"] = headers["mcp-session-id"]
        called = session.request(1, "tools/call", name="add", arguments={})
        assert (await called.start())[0] == 200
        texts.append((await called.json())["result"]["content"][0]["text"])
    assert ["called too often" in text for text in texts] == [False, False, True, False]


class LostStore(MemoryStore):
    """A store that nobody reaches."""

    async def take_token(self, bucket: str, rate: float, burst: int) -> float:
        raise StoreUnreachableError("gone")


async def test_rates_are_counted_in_the_process_while_the_store_is_lost():
    rates = RateLimits(per_address=Rate(2, SELDOM))
    server = make_server(rate_limits=rates, store=LostStore(DEFAULT_QUOTAS), limits=Limits(store_seconds=0.05))
    async with client(server.asgi()) as http:
        assert [(await call(http)).status_code for _ in range(3)] == [200, 200, 429]


async def test_servers_with_one_store_share_their_buckets():
    store = MemoryStore(DEFAULT_QUOTAS)
    apps = [make_server(rate_limits=RateLimits(per_address=Rate(3, SELDOM)), store=store).asgi() for _ in range(2)]
    async with client(apps[0]) as http, client(apps[1]) as other:
        statuses = [(await call(one)).status_code for one in (http, other, http, other)]
    assert statuses == [200, 200, 200, 429]


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_replicas_answer_429_together(kind, tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path}/store.db"
        if kind == "redis":
            stack.enter_context(redis_server(port := free_port(), tmp_path))
            url = f"redis://127.0.0.1:{port}/0"
        https = []
        for _ in range(2):
            limits = Limits(store_seconds=HANG_SECONDS)  # a replica counts for itself while the store is slow
            replica = make_server(rate_limits=RateLimits(per_address=Rate(10, SELDOM)), store=url, limits=limits)
            await stack.enter_async_context(replica.engine.lifespan.running())
            https.append(await stack.enter_async_context(client(replica.asgi())))
        answers = await asyncio.gather(*(call(http) for http in https for _ in range(12)))
    assert Counter(answer.status_code for answer in answers) == {200: 10, 429: 14}


async def test_the_store_learns_neither_addresses_nor_names():
    asked = []

    class Store(MemoryStore):
        async def take_token(self, bucket: str, rate: float, burst: int) -> float:
            asked.append((bucket, rate, burst))
            return 0.0

    limits = RateLimits(per_address=Rate(2, 4), per_principal=Rate(4, 8, burst=9), per_tool=Rate(1, 1))
    server = make_server(rate_limits=limits, store=Store(DEFAULT_QUOTAS))
    async with client(server.asgi(auth=HostAuth(find_principal))) as http:
        await call(http, token="ann")
    assert [(rate, burst) for _, rate, burst in asked] == [(0.5, 2), (0.5, 9), (1.0, 1)]
    assert all(len(bucket) == 64 and int(bucket, 16) for bucket, _, _ in asked)


@given(st.lists(st.integers(0, 50), max_size=200))
def test_a_process_keeps_a_bounded_number_of_buckets(names):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltamcp.stores.store.MAX_BUCKETS", 10)
        buckets = TokenBuckets(lambda: 0.0)
        for name in names:
            buckets.take(str(name), 1e-9, 1)
            assert len(buckets) <= 10


@pytest.mark.parametrize("rate", [(0, 1), (1, 0), (-1, 1), (1, float("inf")), (1, 1, 0), (float("nan"), 1), ("1", 1)])
def test_a_rate_has_numbers_above_0(rate):
    with pytest.raises(ConfigurationError, match="must have a count, seconds and a burst above 0"):
        Rate(*rate)


@pytest.mark.parametrize("limits", [{"per_address": 5}, {"per_tool": {"add": 5}}])
def test_limits_are_rates(limits):
    with pytest.raises(ConfigurationError, match="RateLimits takes Rate"):
        RateLimits(**limits)


@pytest.mark.parametrize("text", ["100", "100/", "/60", "x/60", "0/60", "100/0", "1.5/60"])
def test_an_option_that_is_no_rate_is_told(text, capsys):
    with pytest.raises(SystemExit) as error:
        main.main(["serve", "server.py", "--rate-address", text])
    assert error.value.code == 2
    assert (
        f"--rate-address takes COUNT/SECONDS above 0, such as 100/60 for 100 in a minute, not {text!r}."
        in capsys.readouterr().err
    )


def test_an_operator_replaces_the_limits_that_the_command_line_names():
    before = RateLimits(per_address=Rate(1, 1), per_tool=Rate(2, 2))
    after = before.replace(RateLimits(per_address=Rate(3, 3), per_principal=Rate(4, 4)))
    assert after == RateLimits(per_address=Rate(3, 3), per_principal=Rate(4, 4), per_tool=Rate(2, 2))


async def test_of_concurrent_requests_no_more_pass_than_the_bucket_has():
    server = make_server(rate_limits=RateLimits(per_address=Rate(5, SELDOM)))
    async with client(server.asgi()) as http:
        responses = await asyncio.gather(*(call(http) for _ in range(12)))
    assert sorted(response.status_code for response in responses) == [200] * 5 + [429] * 7
    assert all(json.loads(response.content) for response in responses)
