"""MCP-lite and programs that are not ours: the official SDK's messages, and HTTP/2 through a proxy."""

import asyncio
import json
import shutil

import pytest
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, JSONRPCRequest, ListToolsResult

from tests.support.http2_proxy import http2_proxy
from tests.support.http_server import serve_http
from tests.support.lite_client import lite_client, lite_server


async def test_ml_121_the_sdks_call_is_accepted_verbatim_and_reads_the_result():
    request = CallToolRequest(params=CallToolRequestParams(name="add", arguments={"a": 1}))
    fields = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    body = JSONRPCRequest(jsonrpc="2.0", id=7, **fields).model_dump_json(by_alias=True, exclude_none=True)
    async with lite_client(lite_server()) as client:
        reply = await client.send("rpc", body.encode())
        result = CallToolResult.model_validate(reply.result())
        assert (result.content[0].type, result.is_error) == ("text", False)
        assert json.loads(reply.body)["id"] == 7
        failed = await client.call("fails")
        assert CallToolResult.model_validate(failed.result()).is_error is True
        listed = ListToolsResult.model_validate((await client.rpc("tools/list")).result())
        assert [tool.name for tool in listed.tools] == ["search_documents", "add", "fails", "no_docstring"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_ml_70_a_call_comes_by_either_version_of_http(version, tmp_path):
    async with serve_http(lite_server()) as address:
        direct = address.removesuffix("/mcp")
        with http2_proxy(int(direct.rpartition(":")[2]), tmp_path) as proxied:
            base, option = (direct, "--http1.1") if version == "1.1" else (proxied, "--http2-prior-knowledge")
            body = (
                '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}'
            )
            command = ["curl", "-s", option, "-w", "\n%{http_version}", f"{base}/mcp-lite/v1/calltools", "-d", body]
            ran = await asyncio.create_subprocess_exec(
                *command, "-H", "Content-Type: application/json", stdout=asyncio.subprocess.PIPE
            )
            printed = (await ran.communicate())[0].decode()
        response, _, spoken = printed.rpartition("\n")
        assert spoken == version
        assert json.loads(response)["result"]["content"][0]["text"] == "3"
