"""`enable` and `disable`: what is hidden is neither listed nor called, for all or for one principal."""

from typing import Any

import pytest

from deltamcp import ConfigurationError, Context, DeltaServer, Kind, connect
from deltamcp.runtime.change_hub import LIST_CHANGED
from deltamcp.values import Principal
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS, era_client, first_text
from tests.support.scope_client import ScopeClient, serve_scopes


def office(**options: Any) -> DeltaServer:
    server = DeltaServer("office", **options)

    @server.tool
    def read(name: str) -> str:
        """Read a file."""
        return f"read {name}"

    @server.tool(tags=["admin", "files"])
    def wipe(name: str) -> str:
        """Wipe a file."""
        return f"wiped {name}"

    @server.tool(tags=["files"])
    def copy(name: str) -> str:
        """Copy a file."""
        return f"copied {name}"

    @server.resource("file://rota", tags=["admin"])
    def rota() -> str:
        return "rota"

    @server.resource("file://{name}")
    def file(name: str) -> str:
        return f"file {name}"

    @server.prompt(tags=["admin"])
    def audit() -> str:
        return "Audit all."

    @server.completion(template="file://{name}", argument="name")
    def names(value: str) -> list[str]:
        return ["rota"]

    return server


async def names_of(server: DeltaServer) -> set[str]:
    async with connect(server) as client:
        return {tool.name for tool in await client.tools()}


async def test_hidden_items_are_neither_listed_nor_called():
    server = office()
    server.disable(tags=["admin"])
    async with era_client(server) as peer:
        assert {*await peer.tools()} == {"read", "copy"}
        assert (await peer.ask("tools/call", name="wipe", arguments={"name": "x"}))["error"]["code"] == -32602
        assert (await peer.ask("resources/list"))["result"]["resources"] == []
        assert "error" in await peer.ask("resources/read", uri="file://rota")
        assert (await peer.ask("prompts/list"))["result"]["prompts"] == []
        assert "error" in await peer.ask("prompts/get", name="audit")
        assert await peer.read("file://other") == "file other"


async def test_the_last_word_counts_also_for_what_is_registered_later():
    server = office()
    server.disable(tags={"files"})
    server.enable(names={"wipe"})

    @server.tool(tags=["files"])
    def move(name: str) -> str:
        return name

    assert await names_of(server) == {"read", "wipe"}
    server.disable(tags={"admin"}, names={"wipe", "copy"})
    assert await names_of(server) == {"read"}
    server.enable()
    assert await names_of(server) == {"read", "wipe", "copy", "move"}
    server.enable(tags=["admin"], only=True)
    assert await names_of(server) == {"wipe"}
    async with connect(server) as client:
        assert [one["uri"] for one in await client.list_resources()] == ["file://rota"]
        assert await client.list_resource_templates() == []


async def test_resources_are_named_by_name_or_uri():
    server = office()
    server.disable(names=["rota", "file://{name}"])
    async with connect(server) as client:
        assert await client.list_resources() == [] and await client.list_resource_templates() == []


async def test_meta_tools_do_not_find_what_is_hidden():
    server = office(disclosure="meta")
    async with era_client(server) as peer:
        assert "wipe(" in first_text(await peer.result_of("discover", query="admin"))
        server.disable(tags=["admin"])
        assert "wipe" not in first_text(await peer.result_of("discover"))
        assert "wipe(" not in first_text(await peer.result_of("discover", query="wipe a file"))
        await peer.refusal_of("get_schema", operation="wipe")
        assert "wipe" in await peer.refusal_of("execute", operation="wipe", params={"name": "x"})
        uris = [one["uri"] for one in (await peer.ask("resources/list"))["result"]["resources"]]
        assert not any(uri.endswith(("/wipe", "rota")) for uri in uris)


async def log_in(client: ScopeClient, user: str) -> None:
    client.use_scopes("", sub=user)
    client._client.headers.pop("mcp-session-id", None)
    await client.begin()


@pytest.mark.parametrize("era", ERAS)
async def test_a_principals_own_rules_are_its_own(era):
    server = office()

    @server.tool
    def promote(ctx: Context) -> str:
        server.enable(tags=["admin"], principal=ctx.principal)
        return "done"

    server.disable(tags=["admin"])
    async with serve_scopes(era, server, "") as client:
        _, _, before = await client.ask("tools/list")
        await log_in(client, "bob")
        await client.call("promote")
        _, _, listed = await client.ask("tools/list")
        assert await client.listed() == {"read", "copy", "promote", "wipe"}
        _, _, called = await client.call("wipe", name="x")
        assert called["result"]["content"][0]["text"] == "wiped x"
        await log_in(client, "ada")
        assert await client.listed() == {"read", "copy", "promote"}
        assert "error" in (await client.call("wipe", name="x"))[2]
        if era == "modern":  # from now on caches must not share lists
            assert before["result"]["cacheScope"] == "public"
            assert listed["result"]["cacheScope"] == "private"
            assert (await client.ask("tools/list"))[2]["result"]["cacheScope"] == "private"


class Listener:
    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.heard: list[str] = []

    def wants(self, change: Kind | str) -> bool:
        return isinstance(change, Kind)

    def notify(self, method: str, params: dict[str, Any], position: Any = None) -> None:
        self.heard.append(method)

    def watched_uris(self) -> list[str]:
        return []


async def test_only_those_are_notified_whose_lists_have_changed():
    server = office()
    ada, bob = Listener(Principal("ada")), Listener(Principal("bob"))
    outer = DeltaServer("outer")
    outer.mount(server, "office")
    async with outer.lifespan(), server.lifespan():
        for hub in (outer.engine.hub, server.engine.hub):
            hub.subscribe(ada)
            hub.subscribe(bob)
        server.disable(names=["copy"], principal=ada.principal)
        await wait_until(lambda: len(ada.heard) == 2)
        assert ada.heard == [LIST_CHANGED[Kind.TOOLS]] * 2 and bob.heard == []
        server.disable(tags=["nowhere"])
        server.disable(tags=["admin"])
        await wait_until(lambda: len(bob.heard) == 6)
        assert {*bob.heard} == {LIST_CHANGED[Kind.TOOLS], LIST_CHANGED[Kind.RESOURCES], LIST_CHANGED[Kind.PROMPTS]}


async def test_clients_in_memory_hear_of_it():
    server = office()
    async with era_client(server, "handshake") as peer:
        await peer.ask("ping")
        server.disable(tags=["files"])
        assert (await peer.raw.next_heard())["method"] == "notifications/tools/list_changed"


async def test_a_mounted_server_hides_its_own_wherever_it_is():
    inner, middle, outer = office(), DeltaServer("middle"), DeltaServer("outer")
    inner.disable(tags=["admin"])
    middle.mount(inner, "office")
    outer.mount(middle, "town")
    assert await names_of(outer) == {"town_office_read", "town_office_copy"}
    outer.disable(names=["town_office_read"])
    inner.enable(names=["wipe"])
    assert await names_of(outer) == {"town_office_wipe", "town_office_copy"}
    assert await names_of(inner) == {"read", "wipe", "copy"}
    outer.enable(tags=["admin"], only=True)
    assert await names_of(outer) == {"town_office_wipe"}
    assert await names_of(middle) == {"office_read", "office_wipe", "office_copy"}


async def test_tags_are_in_the_definitions_meta():
    async with connect(office()) as client:
        [wipe] = await client.describe("wipe")
        assert wipe["_meta"]["io.github.delta-mcp/tags"] == ["admin", "files"]
        [prompt] = await client.list_prompts()
        assert prompt["_meta"]["io.github.delta-mcp/tags"] == ["admin"]
        [resource] = await client.list_resources()
        assert resource["_meta"]["io.github.delta-mcp/tags"] == ["admin"]


def test_mistakes_are_told():
    server = office()
    with pytest.raises(ConfigurationError, match=r"tags=\['admin'\]"):
        server.disable(tags="admin")
    with pytest.raises(ConfigurationError, match="pass at least one"):
        server.disable()
    with pytest.raises(ConfigurationError, match="would hide everything"):
        server.enable(only=True)
    with pytest.raises(ConfigurationError, match="tags must be a list"):
        server.tool(lambda: "x", name="x", tags="admin")
