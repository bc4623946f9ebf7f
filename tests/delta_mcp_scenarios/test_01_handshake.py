"""CS-01: the handshake."""

from deltamcp import DeltaClient
from tests.support.bytes_client import DELTA_VERSION
from tests.support.six_tool_server import SIX_TOOLS


async def test_cs_01_01_the_version_is_delta_mcp_s(client: DeltaClient) -> None:
    assert client.server.protocol == DELTA_VERSION


async def test_cs_01_02_the_server_has_a_name_and_a_version(client: DeltaClient) -> None:
    assert (client.server.name, client.server.version) == ("six-tools", "0.2.1")


async def test_cs_01_03_progressive_disclosure_is_declared(client: DeltaClient) -> None:
    assert client.server.capabilities["tools"]["progressiveDisclosure"] is True


async def test_cs_01_04_compact_json_is_declared_and_hashes_are_not(client: DeltaClient) -> None:
    assert client.server.capabilities["encoding"] == {"compactJson": True}


async def test_cs_01_05_the_session_is_in_compact_json_and_works(client: DeltaClient) -> None:
    assert client.server.encoding == "compact-json"
    assert [tool.name for tool in await client.tools()] == SIX_TOOLS
