"""Clients that know nothing of this library: stubs from the specification's own file, and `buf curl`."""

import asyncio
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from deltamcp import Context, DeltaServer, NeedsResource, ToolFailure
from tests.support.grpc_peer import as_dict, refusal, serve_grpc
from tests.support.lite_client import lite_server
from tests.support.promise_queue import queue_for


def make_server() -> DeltaServer:
    server = lite_server()

    @server.tool(promise="always")
    async def analyze_dataset(dataset_id: str, ctx: Context) -> str:
        """Analyze a dataset."""
        await ctx.report_progress(1, 2, "half")
        return f"{dataset_id} is fine."

    @server.tool
    async def generate_report(topic: str) -> Any:
        """Generate a report."""
        yield f"Report on {topic}. "
        yield "All is well."

    @server.tool
    async def buy() -> str:
        """Buy something."""
        raise ToolFailure("CARD_DECLINED", "Card was declined")

    @server.tool
    async def summarise() -> str:
        """Needs tokens."""
        raise NeedsResource("Needs more tokens", kind="tokens", required=10)

    @server.tool
    async def travel(ctx: Context) -> str:
        """Ask where to."""
        answer = await ctx.elicit("Where to?", {"type": "object", "properties": {"city": {"type": "string"}}})
        return f"Going to {answer.content['city']}."

    queue_for(server)
    return server


# Stubs from the specification's file


def specification_proto() -> str:
    """The definitions as the document has them; it leaves out the import that they need."""
    shared = Path(os.environ.get("DELTA_MCP_SHARED", "../shared"))
    found = sorted((shared / "seeds").glob("002*.txt"))
    if not found:
        pytest.skip(f"the specification is not in {shared}; set DELTA_MCP_SHARED")
    text = found[0].read_text()
    service = text[text.index('syntax = "proto3";') : text.index("5.2 Message Definitions")]
    messages = text[text.index("message Empty {}") : text.index("5.3 Promise Handling")]
    package = "package mcplite;"
    assert service.count(package) == 1
    return service.replace(package, f'{package}\nimport "google/protobuf/struct.proto";') + messages


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The modules that protoc makes from the specification's file."""
    folder = tmp_path_factory.mktemp("specification")
    (folder / "specification.proto").write_text(specification_proto())
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}"]
    subprocess.run([*command, f"--grpc_python_out={folder}", "specification.proto"], check=True, cwd=folder)
    sys.path.insert(0, str(folder))
    try:
        yield SimpleNamespace(
            **vars(importlib.import_module("specification_pb2")),
            Stub=importlib.import_module("specification_pb2_grpc").MCPLiteStub,
        )
    finally:
        sys.path.remove(str(folder))


def request_of(stubs: Any, name: str, arguments: dict[str, Any]) -> Any:
    request = stubs.ToolRequest(name=name)
    request.arguments.update(arguments)
    return request


async def test_ml_102_stubs_from_the_specification_list_and_call(stubs):
    async with serve_grpc(make_server()) as peer:
        client = stubs.Stub(peer.channel)
        tools = {tool.name: tool for tool in (await client.GetTools(stubs.Empty())).tools}
        response = await client.CallTool(request_of(stubs, "search_documents", {"query": "MCP", "limit": 5}))
        failed = await client.CallTool(request_of(stubs, "buy", {}))
    assert tools["redeem"].type == "system" and tools["search_documents"].type == "query"
    assert as_dict(tools["redeem"].input_schema)["required"] == ["promise"]
    assert "doc_123" in as_dict(response.result)["content"][0]["text"]
    assert response.meta.response_type == stubs.ANSWER and response.meta.timestamp > 0
    assert failed.meta.response_type == stubs.FAILURE


async def test_stubs_from_the_specification_redeem_a_promise(stubs):
    async with serve_grpc(make_server()) as peer:
        client = stubs.Stub(peer.channel)
        promise = await client.CallTool(request_of(stubs, "analyze_dataset", {"dataset_id": "large"}))
        assert promise.meta.response_type == stubs.PROMISE and as_dict(promise.result) == {}
        redeem = request_of(stubs, "redeem", {"promise": promise.meta.promise_token, "wait_ms": 30_000})
        response = await client.CallTool(redeem)
    assert response.meta.response_type == stubs.ANSWER
    assert as_dict(response.result)["content"][0]["text"] == "large is fine."


async def test_stubs_from_the_specification_read_streams(stubs):
    async with serve_grpc(make_server()) as peer:
        client = stubs.Stub(peer.channel)
        responses = [one async for one in client.CallToolStream(request_of(stubs, "generate_report", {"topic": "Q4"}))]
        *_, last = [
            one async for one in client.CallToolStream(request_of(stubs, "analyze_dataset", {"dataset_id": "x"}))
        ]
    assert [one.HasField("meta") for one in responses] == [False, False, True]
    assert responses[0].result["partial"] == "Report on Q4. "
    assert as_dict(responses[-1].result)["content"][0]["text"] == "Report on Q4. All is well."
    assert last.meta.response_type == stubs.ANSWER


async def test_stubs_from_the_specification_answer_questions_and_read_errors(stubs):
    async with serve_grpc(make_server()) as peer:
        client = stubs.Stub(peer.channel)
        asked = await client.CallTool(request_of(stubs, "travel", {}))
        assert asked.meta.response_type == stubs.ELICITATION
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.CallTool(request_of(stubs, "nonexistent_tool", {}))
        strict = await client.CallTool(request_of(stubs, "summarise", {}), metadata=(("mcplite-strict", "1"),))
        plain = await client.CallTool(request_of(stubs, "summarise", {}))
    assert refusal(caught.value).text == "Tool not found: nonexistent_tool"
    assert strict.meta.response_type == stubs.ELICITATION
    assert plain.meta.response_type == 4  # proto3 enums are open


# buf curl


@pytest.fixture
def buf(tmp_path, monkeypatch):
    """Runs `buf curl` on a method or with an option."""
    program = Path(sys.executable).with_name("buf")
    found = str(program) if program.exists() else shutil.which("buf")
    if found is None:
        pytest.skip("there is no buf; pip install buf-bin")
    environment = {**os.environ, "BUF_CACHE_DIR": str(tmp_path)}

    async def run(url: str, *words: str) -> tuple[str, str]:
        process = await asyncio.create_subprocess_exec(
            *(found, "curl", "--http2-prior-knowledge", "--protocol", "grpc", *words, url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        out, error = await process.communicate()
        return out.decode(), error.decode()

    return run


def messages(text: str) -> list[Any]:
    """The JSON documents that a text has one after the other."""
    found, decoder, place = [], json.JSONDecoder(), 0
    while match := re.compile(r"\s*(?=\S)").match(text, place):
        value, place = decoder.raw_decode(text, match.end())
        found.append(value)
    return found


async def test_ml_100_buf_lists_the_services_and_methods(buf):
    async with serve_grpc(make_server()) as peer:
        url = f"http://127.0.0.1:{peer.server.port}"
        services, _ = await buf(url, "--list-services")
        methods, _ = await buf(url, "--list-methods")
    assert services.split() == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "mcplite.MCPLite",
    ]
    assert {f"mcplite.MCPLite/{name}" for name in ("GetTools", "CallTool", "CallToolStream")} <= set(methods.split())


async def test_buf_calls_streams_and_reads_errors_and_health(buf):
    async with serve_grpc(make_server()) as peer:
        url = f"http://127.0.0.1:{peer.server.port}"
        tools, _ = await buf(f"{url}/mcplite.MCPLite/GetTools")
        called, _ = await buf(
            f"{url}/mcplite.MCPLite/CallTool", "-d", json.dumps({"name": "add", "arguments": {"a": 40}})
        )
        streamed, _ = await buf(
            f"{url}/mcplite.MCPLite/CallToolStream",
            *("-d", json.dumps({"name": "generate_report", "arguments": {"topic": "Q4"}})),
        )
        _, refused = await buf(f"{url}/mcplite.MCPLite/CallTool", "-d", '{"name": "nonexistent_tool"}')
        health, _ = await buf(f"{url}/grpc.health.v1.Health/Check", "-d", '{"service": "mcplite.MCPLite"}')
    assert "add" in [tool["name"] for tool in json.loads(tools)["tools"]]
    assert json.loads(called)["result"]["content"] == [{"type": "text", "text": "42"}]
    first, second, last = messages(streamed)
    assert (first, second) == (
        {"result": {"partial": "Report on Q4. "}},
        {"result": {"partial": "All is well."}},
    )
    assert "timestamp" in last["meta"]
    error = json.loads(refused)
    assert (error["code"], error["message"]) == ("not_found", "Tool not found: nonexistent_tool")
    assert [one["type"] for one in error["details"]] == ["google.rpc.ErrorInfo", "google.rpc.ResourceInfo"]
    assert json.loads(health) == {"status": "SERVING"}
