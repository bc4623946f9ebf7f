"""One promise over every protocol of a server: MCP-lite over HTTP and gRPC, and MCP's tasks in both wire forms."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from deltamcp import Context, DeltaServer
from tests.support.conditions import HANG_SECONDS
from tests.support.http_server import serve_http

pytest.importorskip("docket")
pytest.importorskip("grpc")

from tests.support.grpc_peer import as_dict, serve_grpc

OLD, NEW = "2025-11-25", "2026-07-28"
ACCEPT = {"accept": "application/json, text/event-stream"}
RELATED = "io.modelcontextprotocol/related-task"


@dataclass
class Analysis:
    dataset: str
    rows: int


async def post(http: httpx2.AsyncClient, url: str, method: str, params: dict[str, Any], **headers: str) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await http.post(url, json=body, headers={**ACCEPT, **headers})
    assert response.status_code == 200, response.text
    return response.json()["result"]


async def modern(http: httpx2.AsyncClient, url: str, method: str, token: str) -> Any:
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    headers = {"mcp-protocol-version": NEW, "mcp-method": method, "mcp-name": token}
    return await post(http, url, method, {"taskId": token, "_meta": meta}, **headers)


async def open_session(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    opened = await http.post(url, json=body, headers=ACCEPT)
    return {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": OLD}


async def test_ml_120_a_promise_of_http_is_polled_over_grpc_and_finished_by_the_tasks_of_mcp():
    server = DeltaServer("lab", "1.0")
    may_end = asyncio.Event()

    @server.tool(promise="always")
    async def analyze(ctx: Context, dataset: str) -> Analysis:
        await ctx.report_progress(1, 4, "Reading")
        await may_end.wait()
        return Analysis(dataset, 2**53 - 1)

    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_http(server, mcp_lite=True) as url,
        serve_grpc(server) as grpc_peer,
        httpx2.AsyncClient() as http,
    ):
        lite_url = url.replace("/mcp", "/mcp-lite/v1/calltools")
        promised = await post(http, lite_url, "tools/call", {"name": "analyze", "arguments": {"dataset": "d1"}})
        assert promised["_meta"]["response_type"] == "promise"
        token = promised["_meta"]["promise_token"]

        polled = await grpc_peer.call("redeem", {"promise": token})
        assert polled.meta.promise_token == token
        session = await open_session(http, url)
        for task in (
            await modern(http, url, "tasks/get", token),
            await post(http, url, "tasks/get", {"taskId": token}, **session),
        ):
            assert (task["taskId"], task["status"]) == (token, "working")

        may_end.set()
        waited = await post(http, url, "tasks/result", {"taskId": token}, **session)
        assert waited.pop("_meta")[RELATED] == {"taskId": token}
        ended = await modern(http, url, "tasks/get", token)
        assert ended["status"] == "completed"
        redeemed = await post(http, lite_url, "tools/call", {"name": "redeem", "arguments": {"promise": token}})
        over_grpc = as_dict((await grpc_peer.call("redeem", {"promise": token})).result)
        expected = {"dataset": "d1", "rows": 2**53 - 1}
        for answer in (waited, ended["result"], redeemed, over_grpc):
            assert (answer["content"], answer["structuredContent"]) == (waited["content"], expected)
