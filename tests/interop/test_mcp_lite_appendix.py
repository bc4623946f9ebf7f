"""Appendix A of MCP-lite's draft, sent as it is printed over HTTP and gRPC: our replies have the keys that it shows."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import grpc
import httpx2
import pytest
from pydantic import Field

from deltamcp import Context, DeltaServer
from deltamcp.transports.options import McpLiteOptions
from tests.interop.mcp_lite_draft import Draft, SseEvent, as_json
from tests.support.conditions import HANG_SECONDS
from tests.support.http_server import serve_http

BASE = "/mcp-lite/v1"
CALL = f"{BASE}/calltools"


@pytest.fixture(scope="module")
def draft(shared: Path) -> Draft:
    found = sorted((shared / "seeds").glob("002*.txt"))
    if not found:
        pytest.skip(f"MCP-lite's draft is not in {shared}; set DELTA_MCP_SHARED")
    return Draft(found[0].read_text())


class LongWork:
    """What `analyze_dataset` does: it tells that it has come halfway, and goes on when it is let."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._let = asyncio.Event()

    async def run(self, ctx: Context) -> None:
        await ctx.report_progress(1, 2)
        self._begun.set()
        await self._let.wait()

    async def has_begun(self) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await self._begun.wait()

    def finish(self) -> None:
        self._let.set()


@pytest.fixture
def work() -> LongWork:
    return LongWork()


@pytest.fixture
def server(draft: Draft, work: LongWork) -> DeltaServer:
    """A server with the tools of the appendix, which return what it shows."""
    server = DeltaServer("appendix", "1")

    @server.tool(type="query", annotations={"readOnlyHint": True})
    async def search_documents(
        query: Annotated[str, Field(description="What to look for")],
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
    ) -> list[dict[str, Any]]:
        """Find documents."""
        assert query and limit
        return list(draft.http("A.2", "HTTP Response").json["result"]["content"])

    @server.tool(promise="always")
    async def analyze_dataset(dataset_id: str, analysis_type: str, ctx: Context) -> dict[str, str]:
        """Analyze a dataset."""
        await work.run(ctx)
        return {"dataset": dataset_id, "analysis": analysis_type}

    @server.tool(annotations={"readOnlyHint": True})
    async def generate_report(topic: str) -> AsyncIterator[str]:
        """Write a report."""
        assert topic
        for event in draft.events("A.4", "HTTP SSE Response"):
            if event.name == "message":
                yield event.data["partial"]

    return server


@pytest.fixture
async def http(server: DeltaServer) -> AsyncIterator["HttpPeer"]:
    """A client of the server, which has the draft's paths at the root, too, and plain objects in `content`."""
    options: McpLiteOptions = {"root_aliases": True, "content_style": "raw"}
    async with serve_http(server, mcp_lite=options) as url:
        async with httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=HANG_SECONDS) as client:
            yield HttpPeer(client)


@pytest.fixture
async def rpc(draft: Draft, server: DeltaServer) -> AsyncIterator["GrpcPeer"]:
    served = server.grpc(port=0, mcp_lite={"content_style": "raw"})
    await served.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            yield GrpcPeer(draft, channel)
    finally:
        await served.stop(0)


def assert_has_keys(actual: Any, documented: Any, place: str = "") -> None:
    """
    Raises:
        AssertionError: a key that the draft documents is not there, or its value is of another type.
    """
    assert type(actual) is type(documented), place
    if isinstance(documented, dict):
        missing = documented.keys() - actual.keys()
        assert not missing, f"{place} has no {sorted(missing)}: {actual}"
        for key, value in documented.items():
            assert_has_keys(actual[key], value, f"{place}/{key}")
    elif isinstance(documented, list):
        for number, (one, other) in enumerate(zip(actual, documented, strict=False)):
            assert_has_keys(one, other, f"{place}/{number}")


class HttpPeer:
    """A client that sends the printed messages over HTTP."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def post(self, path: str, body: str, **headers: str) -> httpx2.Response:
        return await self._client.post(path, content=body, headers={"Content-Type": "application/json", **headers})

    async def call(self, body: str) -> dict[str, Any]:
        response = await self.post(CALL, body)
        assert response.status_code == 200, response.text
        return dict(response.json())


async def test_a_1_tools_over_http(draft, http):
    request, documented = draft.http("A.1", "HTTP Request"), draft.http("A.1", "HTTP Response").json
    response = await http.post(request.path, request.body, **request.headers)
    assert response.status_code == 200
    listed = {tool["name"]: tool for tool in response.json()["tools"]}
    assert next(iter(listed)) == documented["tools"][0]["name"]
    for tool in documented["tools"]:
        assert_has_keys(listed[tool["name"]], tool, tool["name"])
        assert listed[tool["name"]]["@type"] == tool["@type"]
        assert listed[tool["name"]]["inputSchema"]["required"] == tool["inputSchema"]["required"]
        given = listed[tool["name"]]["inputSchema"]["properties"]
        for name, schema in tool["inputSchema"]["properties"].items():
            assert {key: given[name][key] for key in schema if key != "description"} == {
                key: value for key, value in schema.items() if key != "description"
            }


async def test_a_2_call_over_http(draft, http):
    request, documented = draft.http("A.2", "HTTP Request"), draft.http("A.2", "HTTP Response").json
    reply = await http.call(request.body)
    assert (reply["jsonrpc"], reply["id"]) == (documented["jsonrpc"], documented["id"])
    assert reply["result"]["content"] == documented["result"]["content"]
    assert_has_keys(reply, documented)
    assert reply["result"]["_meta"]["response_type"] == documented["result"]["_meta"]["response_type"]


async def test_a_3_promise_over_http(draft, http, work):
    documented = draft.http("A.3", "HTTP Promise Response").json
    reply = await http.call(draft.http("A.3", "HTTP Initial Request").body)
    assert reply["id"] == documented["id"]
    meta = reply["result"]["_meta"]
    assert meta["response_type"] == documented["result"]["_meta"]["response_type"]
    printed, token = documented["result"]["_meta"]["promise_token"], meta["promise_token"]
    redeem = draft.http("A.3", "HTTP Redeem Request").body
    unknown = await http.call(redeem)
    assert (unknown["error"]["code"], unknown["error"]["data"]["reason"]) == (-32602, "PROMISE_UNKNOWN")
    redeem = redeem.replace(printed, token)
    await work.has_begun()
    going_on = await http.call(redeem)
    assert_has_keys(going_on["result"], documented["result"])
    assert going_on["result"]["_meta"]["promise_token"] == token
    work.finish()
    reply = await http.call(redeem.replace('"promise":', '"wait_ms": 30000, "promise":'))
    assert reply["result"]["_meta"]["response_type"] == "answer"
    assert reply["id"] == json.loads(redeem)["id"]


async def test_a_4_stream_over_http(draft, http):
    request, documented = draft.http("A.4", "HTTP with SSE"), draft.events("A.4", "HTTP SSE Response")
    response = await http.post(request.path, request.body, **request.headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [event for event in read_events(response.text) if event.name != "heartbeat"]
    assert [event.name for event in events] == [event.name for event in documented]
    for event, shown in zip(events, documented, strict=True):
        assert_has_keys(event.data, shown.data, event.name)
        assert event.data.get("partial") == shown.data.get("partial")
    assert events[-1].data["_meta"]["response_type"] == documented[-1].data["_meta"]["response_type"]


async def test_a_5_error_over_http(draft, http):
    documented = draft.http("A.5", "HTTP Error Response").json
    error = documented["error"]
    call = {"name": error["data"]["requested_tool"], "arguments": {}}
    body = {"jsonrpc": "2.0", "id": documented["id"], "method": "tools/call", "params": call}
    reply = await http.call(json.dumps(body))
    # The draft's suggestion is not near the name that was asked for; ours is left out where none is near.
    del error["data"]["suggestion"]
    assert_has_keys(reply, documented)
    assert (reply["id"], reply["error"]["code"], reply["error"]["message"]) == (
        documented["id"],
        error["code"],
        error["message"],
    )
    assert reply["error"]["data"]["requested_tool"] == error["data"]["requested_tool"]
    assert set(reply["error"]["data"]["available_tools"]) >= set(error["data"]["available_tools"])


def read_events(text: str) -> list[SseEvent]:
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        found.append(SseEvent(lines["event"], json.loads(lines["data"])))
    return found


# gRPC, with messages of the draft's own proto file


class GrpcPeer:
    def __init__(self, draft: Draft, channel: grpc.aio.Channel) -> None:
        kinds = draft.classes

        def method(form: Any, name: str, asked: str, answered: str) -> Any:
            return form(
                f"/mcplite.MCPLite/{name}",
                request_serializer=kinds[asked].SerializeToString,
                response_deserializer=kinds[answered].FromString,
            )

        self.get_tools = method(channel.unary_unary, "GetTools", "Empty", "ToolsList")
        self.call_tool = method(channel.unary_unary, "CallTool", "ToolRequest", "ToolResponse")
        self.call_tool_stream = method(channel.unary_stream, "CallToolStream", "ToolRequest", "ToolResponse")
        self.kinds = kinds


async def test_a_1_tools_over_grpc(draft, rpc):
    [documented] = draft.messages("A.1", "gRPC Response")
    listed = {tool.name: tool for tool in (await rpc.get_tools(rpc.kinds["Empty"]())).tools}
    for tool in documented.tools:
        assert listed[tool.name].type == tool.type
        assert_has_keys(as_json(listed[tool.name]), as_json(tool), tool.name)


async def test_a_2_call_over_grpc(draft, rpc):
    [request], [documented] = draft.messages("A.2", "gRPC Request"), draft.messages("A.2", "gRPC Response")
    response = await rpc.call_tool(request)
    assert set(documented.result.fields) <= set(response.result.fields)
    assert response.meta.response_type == documented.meta.response_type
    assert response.meta.timestamp > documented.meta.timestamp
    assert response.meta.processing_time_ms >= 0
    assert as_json(response.result)["content"] == draft.http("A.2", "HTTP Response").json["result"]["content"]


async def test_a_3_promise_over_grpc(draft, rpc, work):
    [request], [documented] = (
        draft.messages("A.3", "gRPC Initial Request"),
        draft.messages("A.3", "gRPC Promise Response"),
    )
    response = await rpc.call_tool(request)
    assert response.meta.response_type == documented.meta.response_type
    assert as_json(response.result) == as_json(documented.result) == {}
    [redeem] = draft.messages("A.3", "gRPC Redeem Request")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc.call_tool(redeem)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    redeem.arguments["promise"] = response.meta.promise_token
    assert (await rpc.call_tool(redeem)).meta.promise_token == response.meta.promise_token
    work.finish()
    redeem.arguments["wait_ms"] = 30_000
    assert (await rpc.call_tool(redeem)).meta.response_type == 0


async def test_a_4_stream_over_grpc(draft, rpc):
    [request], documented = (
        draft.messages("A.4", "gRPC Streaming Request"),
        draft.messages("A.4", "gRPC Stream Response"),
    )
    responses = [response async for response in rpc.call_tool_stream(request)]
    assert [as_json(one.result) for one in responses[:-1]] == [as_json(one.result) for one in documented[:-1]]
    assert [one.HasField("meta") for one in responses] == [one.HasField("meta") for one in documented]
    assert responses[-1].meta.response_type == documented[-1].meta.response_type
    assert responses[-1].meta.timestamp > documented[-1].meta.timestamp


async def test_a_5_error_over_grpc(draft, rpc):
    documented = draft.status("A.5", "gRPC Error")
    name = documented["message"].rpartition(" ")[2]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc.call_tool(rpc.kinds["ToolRequest"](name=name))
    assert (raised.value.code().name, raised.value.details()) == (documented["code"], documented["message"])
    details = dict(raised.value.trailing_metadata() or ())
    assert b"google.rpc.ErrorInfo" in details["grpc-status-details-bin"]
