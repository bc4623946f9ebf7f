"""CS-13: sessions over HTTP stand side by side."""

from tests.support.compat_client import STANDARD_OFFER, CompatClient
from tests.support.six_tool_server import SIX_TOOLS


async def test_cs_13_01_initialize_names_a_session(http: CompatClient) -> None:
    assert (await http.open_session(STANDARD_OFFER))["mcp-session-id"]


async def test_cs_13_02_a_plain_client_does_not_disturb_a_delta_session(http: CompatClient) -> None:
    session = await http.open_session()
    await http.open_session(STANDARD_OFFER)
    tools = await http.tools(session)
    assert len(tools) == len(SIX_TOOLS) and not any("inputSchema" in tool for tool in tools)


async def test_cs_13_03_a_plain_session_has_full_schemas_meanwhile(http: CompatClient) -> None:
    await http.open_session()
    tools = await http.tools(await http.open_session(STANDARD_OFFER))
    assert {tool["name"] for tool in tools} >= set(SIX_TOOLS) and all("inputSchema" in tool for tool in tools)


async def test_cs_13_04_without_a_session_there_are_full_schemas(http: CompatClient) -> None:
    await http.open_session()
    tools = await http.tools()
    assert len(tools) == len(SIX_TOOLS) and all("inputSchema" in tool for tool in tools)
