"""CS-10: versions of the future, notifications, and what is not declared."""

import json

from deltamcp import DeltaClient
from tests.support.bytes_client import BASELINE, BytesClient
from tests.support.compat_client import CompatClient
from tests.support.six_tool_server import SIX_TOOLS


async def test_cs_10_01_a_client_of_an_unknown_major_version_gets_mcp(new_wire: BytesClient) -> None:
    capabilities = {"tools": {"progressiveDisclosure": True}, "encoding": {"compactJson": True}}
    result = json.loads(await new_wire.initialize("delta-mcp/9.0.0", capabilities))
    assert result["protocolVersion"] == BASELINE
    assert "progressiveDisclosure" not in result["capabilities"]["tools"]
    assert "encoding" not in result
    tools = json.loads(await new_wire.result("tools/list"))["tools"]
    assert {tool["name"] for tool in tools} >= set(SIX_TOOLS) and all("inputSchema" in tool for tool in tools)


async def test_cs_10_02_notifications_are_not_answered(wire: BytesClient) -> None:
    await wire.note("bogus/method")
    await wire.note("tools/list")
    assert len(json.loads(await wire.result("tools/list"))["tools"]) == len(SIX_TOOLS)
    assert wire.heard == []


async def test_cs_10_03_references_by_hash_are_not_declared(client: DeltaClient) -> None:
    assert "schemaHashReferencing" not in client.server.capabilities["encoding"]


async def test_cs_10_04_execution_of_code_is_not_declared(client: DeltaClient) -> None:
    assert "codeExecution" not in client.server.capabilities


async def test_cs_10_05_a_notification_over_http_is_accepted_without_a_body(http: CompatClient) -> None:
    answer = await http.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (answer.status_code, answer.content) == (202, b"")
