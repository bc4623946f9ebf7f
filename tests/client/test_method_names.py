"""The client has the methods that other clients have, and for now the names of 0.1."""

from typing import Any

import pytest

from deltamcp import DeltaServer, connect
from deltamcp.client.client import GatewayClient

ERAS = ("modern", "handshake")
_GATEWAY_NAMES = sorted(name for name in vars(GatewayClient) if not name.startswith("_"))


@pytest.fixture
def server() -> DeltaServer:
    server = DeltaServer("notes")

    @server.tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.resource("note://milk")
    def milk() -> str:
        return "Buy milk."

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_reads_and_gets_what_a_server_has(server, era):
    async with connect(server, speak=era) as client:
        await client.ping()
        assert [tool["inputSchema"]["required"] for tool in await client.list_tools()] == [["a", "b"]]
        assert [one["uri"] for one in await client.list_resources()] == ["note://milk"]
        assert [one["uriTemplate"] for one in await client.list_resource_templates()] == ["note://{name}"]
        assert [one["name"] for one in await client.list_prompts()] == ["greet"]
        assert (await client.read_resource("note://milk"))[0]["text"] == "Buy milk."
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        assert prompt["messages"][0]["content"]["text"] == "Greet Ada."


async def test_the_names_of_0_1_still_work_and_warn(server):
    async with connect(server) as client:
        for old, new, arguments in (
            ("resources", "list_resources", ()),
            ("templates", "list_resource_templates", ()),
            ("prompts", "list_prompts", ()),
            ("read", "read_resource", ("note://milk",)),
        ):
            with pytest.warns(DeprecationWarning, match=f"called {new}"):
                assert await getattr(client, old)(*arguments) == await getattr(client, new)(*arguments)
        with pytest.warns(DeprecationWarning, match="called get_prompt"):
            assert await client.prompt("greet", name="Ada") == await client.get_prompt("greet", {"name": "Ada"})


async def test_what_only_gateways_use_is_no_method_of_clients_but_still_works(server):
    client: Any
    async with connect(server) as client:
        assert not set(_GATEWAY_NAMES) & set(dir(client))
        with pytest.warns(DeprecationWarning, match="for gateways only"):
            assert client.is_connected
        with pytest.warns(DeprecationWarning, match="for gateways only"):
            result = await client.forward("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert b"3" in result.encoded
        with pytest.raises(AttributeError, match="no attribute 'is_conected'"):
            getattr(client, "is_conected")  # noqa: B009 - as a program spells it


@pytest.mark.parametrize("name", _GATEWAY_NAMES)
async def test_each_method_of_gateways_is_still_found_at_a_client(server, name):
    client: Any
    async with connect(server) as client:
        with pytest.warns(DeprecationWarning, match="for gateways only"):
            getattr(client, name)
