"""CS-11: limits, deadlines, origins and versions over HTTP."""

import asyncio
from typing import Any

import pytest

from deltamcp import DeltaServer, Limits, Rate, RateLimits
from tests.support.compat_client import CompatClient, compat_client
from tests.support.six_tool_server import six_tool_server

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
APP = "https://app.example.com"


async def test_cs_11_01_a_body_that_is_too_large_is_refused() -> None:
    async with compat_client(six_tool_server(limits=Limits(message_bytes=1024))) as client:
        assert (await client.post({**LIST, "params": {"pad": "x" * 2048}})).status_code == 413


async def test_cs_11_02_a_body_within_the_limit_is_served() -> None:
    async with compat_client(six_tool_server(limits=Limits(message_bytes=1024))) as client:
        assert (await client.post(LIST)).status_code == 200


async def test_cs_11_03_requests_of_an_address_are_limited() -> None:
    limits = RateLimits(per_address=Rate(3, 60))
    async with compat_client(six_tool_server(rate_limits=limits)) as client:
        assert [(await client.post(LIST)).status_code for _ in range(3)] == [200, 200, 200]
        answer = await client.post(LIST)
        assert (answer.status_code, answer.content) == (429, b"")
        assert 1 <= int(answer.headers["retry-after"]) <= 60


async def test_cs_11_04_a_request_that_takes_too_long_is_504() -> None:
    server = DeltaServer("x", limits=Limits(handler_seconds=0.05))
    server.tool(asyncio.Event().wait, name="hang", description="Wait for ever.")
    async with compat_client(server) as client:
        assert (await client.request("tools/call", {"name": "hang"})).status_code == 504


async def test_cs_11_05_requests_are_served_by_the_defaults(http: CompatClient) -> None:
    assert (await http.post(LIST)).status_code == 200


async def test_cs_11_06_what_raises_inside_is_500(monkeypatch: pytest.MonkeyPatch) -> None:
    server = six_tool_server()

    def fail(*arguments: Any) -> None:
        raise RuntimeError("a mistake of the library")

    monkeypatch.setattr(server.engine, "perform", fail)
    async with compat_client(server) as client:
        answer = await client.post(LIST)
        assert (answer.status_code, answer.content) == (500, b"")


async def test_cs_11_07_an_origin_that_is_not_named_is_refused() -> None:
    async with compat_client(six_tool_server(), allowed_origins=[APP]) as client:
        assert (await client.post(LIST, {"origin": "https://evil.example.com"})).status_code == 403


async def test_cs_11_08_an_origin_that_is_named_may_read_the_response() -> None:
    async with compat_client(six_tool_server(), allowed_origins=[APP]) as client:
        answer = await client.post(LIST, {"origin": APP})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, APP)


async def test_cs_11_09_a_request_without_an_origin_is_served() -> None:
    async with compat_client(six_tool_server(), allowed_origins=[APP]) as client:
        assert (await client.post(LIST)).status_code == 200


async def test_cs_11_10_without_named_origins_every_origin_is_refused(http: CompatClient) -> None:
    for origin in ("http://localhost:5173", "http://localhost", "null"):
        assert (await http.post(LIST, {"origin": origin})).status_code == 403


async def test_cs_11_11_browsers_may_ask_first() -> None:
    async with compat_client(six_tool_server(), allowed_origins=[APP]) as client:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "mcp-protocol-version"}
        answer = await client.http.options("/", headers={"origin": APP, **asked})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, APP)
        assert "POST" in answer.headers["access-control-allow-methods"]
        named = {name.strip() for name in answer.headers["access-control-allow-headers"].lower().split(",")}
        assert named >= {"content-type", "mcp-protocol-version", "mcp-session-id", "authorization"}


async def test_cs_11_12_other_origins_may_not() -> None:
    async with compat_client(six_tool_server(), allowed_origins=[APP]) as client:
        asked = {"origin": "https://evil.example.com", "access-control-request-method": "POST"}
        assert (await client.http.options("/", headers=asked)).status_code == 403


@pytest.mark.parametrize("body", [b"42", b'"hello"', b"[1,2,3]", b"null"])
async def test_cs_11_13_what_is_no_request_is_refused(http: CompatClient, body: bytes) -> None:
    answer = await http.post(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)


async def test_cs_11_14_a_version_that_does_not_exist_is_refused(http: CompatClient) -> None:
    answer = await http.post(LIST, {"mcp-protocol-version": "not-a-version"})
    assert (answer.status_code, answer.json()) == (400, {"error": "Unsupported MCP-Protocol-Version: not-a-version"})


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"])
async def test_cs_11_15_earlier_versions_of_mcp_are_accepted(http: CompatClient, version: str) -> None:
    assert (await http.post(LIST, {"mcp-protocol-version": version})).status_code == 200
