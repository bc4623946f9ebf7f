"""MCP-lite and programs that are not ours: the official SDK's messages, and HTTP/2 through a proxy."""

import json

from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, JSONRPCRequest, ListToolsResult

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
