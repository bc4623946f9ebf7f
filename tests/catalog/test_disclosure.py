"""Which tools a server lists: meta-tools, pinned tools or all of them; and which options it refuses."""

import json
import re
from typing import Any

import pytest

from deltamcp import ConfigurationError, DeltaServer, Disclosure
from deltamcp.tokens import count
from tests.support.meta_tools import META_TOOLS, community_server, definition_tokens, large_server, meta_tool_client

# The surface


async def test_the_list_holds_the_meta_tools_and_what_is_pinned(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert await peer.names() == [*META_TOOLS, "search_members"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, META_TOOLS),
        ({"query": True}, ["discover", "get_schema", "execute", "query", "continue"]),
        ({"prefix": "circle"}, [f"circle_{name}" for name in META_TOOLS]),
        ({"prefix": "a", "query": True}, ["a_discover", "a_get_schema", "a_execute", "a_query", "a_continue"]),
    ],
)
async def test_the_meta_tools_are_named_as_told(options, names, era):
    async with meta_tool_client(large_server(4, disclosure=Disclosure("meta", **options)), era) as peer:
        assert sorted(await peer.names()) == sorted(names)
        before = f"{options['prefix']}_" if "prefix" in options else ""
        assert "posts" in await peer.text_of(f"{before}discover")
        told = await peer.text_of(f"{before}get_schema", operation="posts.list")
        assert told.startswith("posts.list(")
        assert await peer.text_of(f"{before}execute", operation="posts.list", params={"space_id": 3}) == "3"
        assert f"{before}discover()" in await peer.text_of(f"{before}discover", query="xyzzy")


@pytest.mark.parametrize("name", META_TOOLS)
def test_a_tool_may_not_have_the_name_of_a_meta_tool(name):
    server = DeltaServer("x", disclosure="meta")
    with pytest.raises(ConfigurationError, match=name):
        server.tool(name=name)(lambda: None)


def test_names_are_taken_only_where_a_meta_tool_has_them():
    prefixed = DeltaServer("x", disclosure=Disclosure("meta", prefix="circle"))
    prefixed.tool(name="discover")(lambda: None)
    with pytest.raises(ConfigurationError):
        prefixed.tool(name="circle_discover")(lambda: None)
    DeltaServer("x", disclosure="meta").tool(name="query")(lambda: None)
    with pytest.raises(ConfigurationError):
        DeltaServer("x", disclosure=Disclosure("meta", query=True)).tool(name="query")(lambda: None)
    DeltaServer("x").tool(name="discover")(lambda: None)


@pytest.mark.parametrize("operations", [10, 84, 500, 2500])
async def test_the_meta_tools_cost_the_same_however_much_there_is(operations):
    async with meta_tool_client(large_server(operations, 40 if operations > 100 else 12)) as peer:
        assert definition_tokens(await peer.tools()) <= 350


@pytest.mark.parametrize("prefix", ["", "a_rather_long_prefix"])
async def test_long_category_names_do_not_burst_the_budget(prefix):
    server = DeltaServer("x", disclosure=Disclosure("meta", prefix=prefix))
    for number in range(50):
        category = f"{number}-" + "Zq9_xK" * 10
        server.tool(name=f"t{number}", category=category, action="go")(lambda: None)
    async with meta_tool_client(server) as peer:
        assert definition_tokens(await peer.tools()) <= 350 + 4 * count(prefix)


async def test_annotations_tell_the_truth_and_hosts_are_asked_to_load_the_tools(era):
    async with meta_tool_client(community_server(query=True), era) as peer:
        tools = {tool["name"]: tool for tool in await peer.tools()}
    for name in ("discover", "get_schema", "continue", "query"):
        assert tools[name]["annotations"]["readOnlyHint"] is True
        assert tools[name]["annotations"].get("destructiveHint") is not True
    assert tools["execute"]["annotations"]["destructiveHint"] is True
    assert tools["execute"]["annotations"].get("readOnlyHint") is not True
    for name in (*META_TOOLS, "query"):
        assert tools[name]["_meta"]["anthropic/alwaysLoad"] is True
        assert tools[name]["inputSchema"]["type"] == "object"
    for category in ("posts", "batch", "members"):
        assert category in tools["discover"]["description"]


async def test_hidden_tools_are_callable_by_their_flat_name(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert json.loads(await peer.text_of("list_posts", space_id=2)) == {"space": 2, "page": 1, "per_page": 10}
        assert await peer.text_of("uptime") == "long"


async def test_an_unknown_tool_is_an_error_of_the_protocol(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert (await peer.ask("tools/call", name="create_pots", arguments={}))["error"]["code"] == -32602


async def test_calling_an_operations_id_as_a_tool_points_to_execute():
    """A model that has read `posts.list` in an index will try this."""
    async with meta_tool_client(community_server()) as peer:
        answer = await peer.ask("tools/call", name="posts.list", arguments={"space_id": 1})
        assert "execute" in str(answer) or "list_posts" in str(answer) or '"space":1' in str(answer)


async def test_full_disclosure_shows_every_tool_and_no_meta_tool(era):
    async with meta_tool_client(large_server(20, disclosure="full"), era) as peer:
        assert len(await peer.names()) == 20
        assert "error" in await peer.ask("tools/call", name="discover", arguments={})


# Configuration that cannot be meant


@pytest.mark.parametrize(
    "options",
    [
        {"category": "posts", "action": "a b"},
        {"category": "posts", "action": "a\u200db"},
        {"category": "posts", "action": "\u0308a"},
        {"category": "posts", "action": "\u3164"},
        {"category": "posts.\u202eä", "action": "x"},
        {"category": "ä" * 65, "action": "x"},
        {"category": "posts", "action": "a%2Fb"},
        {"category": "a..b", "action": "x"},
        {"category": "a b", "action": "x"},
        {"category": "..", "action": "x"},
        {"category": "x" * 65, "action": "x"},
        {"category": "index", "action": "x"},
        {"name": "index"},
        {"policy": "deny"},
        {"policy": "Confirm"},
        {"scopes": "admin"},
    ],
    ids=str,
)
def test_options_that_cannot_be_meant_are_refused(options):
    server = DeltaServer("x", disclosure="meta")
    with pytest.raises(ConfigurationError):
        server.tool(**{"name": "f", **options})(lambda: None)


@pytest.mark.parametrize("option", ["prefix", "scheme"])
@pytest.mark.parametrize("value", ["my_app", "1st", "_", "A.B", "x-y", "a b", "é"])
async def test_every_prefix_makes_a_scheme_by_the_rules(option, value):
    """The server refuses the others."""
    try:
        server = large_server(3, disclosure=Disclosure("meta", **{option: value}))
    except ConfigurationError:
        return
    async with meta_tool_client(server) as peer:
        uri = (await peer.ask("resources/list"))["result"]["resources"][0]["uri"]
        assert re.match(r"[A-Za-z][A-Za-z0-9+.-]*://operations/index$", uri)
        await peer.read(uri)


CLASHES: dict[str, list[dict[str, Any]]] = {
    "the same id twice": [
        {"name": "f1", "category": "a", "action": "x"},
        {"name": "f2", "category": "a", "action": "x"},
    ],
    "a name that is another's id": [{"name": "a.x"}, {"name": "f2", "category": "a", "action": "x"}],
    "an operation that is a category": [
        {"name": "f1", "category": "a", "action": "x"},
        {"name": "f2", "category": "a.x", "action": "y"},
    ],
    "a category that is an operation": [
        {"name": "f1", "category": "a.x", "action": "y"},
        {"name": "f2", "category": "a", "action": "x"},
    ],
}


@pytest.mark.parametrize("clash", CLASHES)
async def test_two_operations_never_share_an_id(clash):
    """The server refuses the second one, or a client can call both; one never silently replaces the other."""
    server = DeltaServer("x", disclosure="meta")
    try:
        for number, options in enumerate(CLASHES[clash]):

            async def run(number: int = number) -> int:
                return number

            server.tool(**options)(run)
    except ConfigurationError:
        return
    async with meta_tool_client(server) as peer:
        names = (await peer.text_of("discover", detail="names")).split()
        assert len(set(names)) == len(names) == len(CLASHES[clash])
        assert {await peer.text_of("execute", operation=name) for name in names} == {"0", "1"}
        uris = [item["uri"] for item in (await peer.ask("resources/list"))["result"]["resources"]]
        assert len(set(uris)) == len(uris)


# auto


@pytest.mark.parametrize("operations", [0, 1, 2, 3, 4, 5, 6, 8, 12, 30, 100, 600])
async def test_auto_shows_what_costs_less(operations):
    server = large_server(operations, disclosure="auto")
    costs = server.costs
    async with meta_tool_client(server) as peer:
        meta = "discover" in await peer.names()
        full = definition_tokens([{"description": "", **tool} for tool in await peer.tools()]) if not meta else 0
    assert meta == (str(getattr(costs.cheaper, "value", costs.cheaper)) == "meta")
    if operations <= 2:
        assert not meta
    if operations >= 30:
        assert meta and costs.meta < costs.full and costs.break_even > 0
    if not meta and operations:
        assert abs(full - costs.full) <= 0.3 * full + 20
    assert costs.overview <= 300


async def test_costs_are_what_is_measured():
    server = large_server(84)
    async with meta_tool_client(server) as peer:
        assert abs(server.costs.meta - definition_tokens(await peer.tools())) <= 5
        assert abs(server.costs.overview - count(await peer.text_of("discover"))) <= 5
    shown = large_server(84, disclosure="full")
    async with meta_tool_client(shown) as peer:
        tools = [{"description": "", **tool} for tool in await peer.tools()]
        assert abs(server.costs.full - definition_tokens(tools)) <= 0.1 * definition_tokens(tools)


async def test_auto_changes_over_as_the_catalog_grows(era):
    server = large_server(2, disclosure="auto")
    async with meta_tool_client(server, era) as peer:
        assert "discover" not in await peer.names()
        for number in range(60):
            server.tool(name=f"more{number}", category="more", action=f"more{number}")(lambda: "more")
        assert await peer.names() == META_TOOLS
        assert await peer.text_of("execute", operation="more.more3") == "more"
        for number in range(60):
            server.remove_tool(f"more{number}")
        assert len(await peer.names()) == 2


async def test_under_auto_a_tool_never_takes_a_meta_tools_name():
    server = DeltaServer("x", disclosure="auto")
    with pytest.raises(ConfigurationError):
        server.tool(name="execute")(lambda: None)
