"""Plain tools under a policy take `fields` and `grep`, where their functions cannot get arguments of these names."""

import json
from typing import Any

import pytest

from deltamcp import DeltaServer, ResultPolicy, connect, count_tokens
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.dialects import progressive_disclosure
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.upstream_items import UpstreamItems, UpstreamOffer
from deltamcp.gateway.upstream_resources import ResourceClaims
from deltamcp.results.policy import QUERY_KEY
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.upstream import Upstream
from tests.support.era_client import era_client, first_text, texts

ROWS = [{"id": n, "state": ["open", "closed"][n % 3 == 0]} for n in range(127)]
LOG = "\n".join(f"line {n}" for n in range(300))


def shop(policy: ResultPolicy | None, **options: Any) -> DeltaServer:
    server = DeltaServer("shop", results=policy, **options)

    @server.tool
    def rows(state: str = "") -> list[dict[str, Any]]:
        """Rows."""
        return [row for row in ROWS if state in str(row["state"])]

    @server.tool(annotations={"readOnlyHint": True})
    def log() -> str:
        """Log."""
        return LOG

    @server.tool
    def lend() -> str:
        """Changes something, and says so."""
        return "It is lent."

    @server.tool
    def find(grep: str) -> list[str]:
        """Has a parameter of its own."""
        return [grep] * 3

    @server.tool
    def number() -> int:
        """A number."""
        return 7

    @server.tool(output_schema={"type": "object"})
    def typed() -> Any:
        """Promises what it returns."""
        return {"rows": ROWS}

    @server.tool(input_schema={"type": "object", "properties": {}})
    def open_tool(arguments: dict[str, Any]) -> Any:
        """Takes whatever it gets."""
        return [arguments] * 2

    @server.tool(results=ResultPolicy(queries=False))
    def plain() -> list[int]:
        """Wants none."""
        return [1]

    return server


TAKEN = {"rows": ["fields", "grep"], "log": ["grep"], "find": ["fields"]}


async def listed(server: DeltaServer) -> dict[str, dict[str, Any]]:
    async with era_client(server) as peer:
        return await peer.tools()


@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        (ResultPolicy(max_tokens=500), TAKEN),
        (ResultPolicy(queries=True), TAKEN | {"lend": ["grep"]}),
        (ResultPolicy(max_tokens=500, queries=False), {}),
        (ResultPolicy(page_size=20), {}),
        (None, {}),
    ],
)
async def test_the_policy_says_which_tools_take_a_query(policy, taken):
    tools = await listed(shop(policy))
    assert {
        name: tool["_meta"][QUERY_KEY] for name, tool in tools.items() if QUERY_KEY in tool.get("_meta", {})
    } == taken
    for name, names in taken.items():
        assert tools[name]["inputSchema"]["properties"].keys() >= set(names)
        assert not set(names) & set(tools[name]["inputSchema"].get("required", []))


async def test_a_query_costs_few_tokens_in_a_list():
    def cost(tools: dict[str, dict[str, Any]]) -> int:
        shown = [{key: value for key, value in tool.items() if key != "_meta"} for tool in tools.values()]
        return count_tokens(json.dumps(shown, separators=(",", ":")))

    with_queries = cost(await listed(shop(ResultPolicy(max_tokens=500))))
    assert with_queries - cost(await listed(shop(ResultPolicy(max_tokens=500, queries=False)))) <= 10 * len(TAKEN)


async def test_the_function_does_not_see_the_query(era):
    async with era_client(shop(ResultPolicy(max_tokens=500)), era) as peer:
        counted = await peer.result_of("rows", state="open", fields="count_by(@,&state)")
        assert json.loads(first_text(counted)) == {"open": 84}
        assert first_text(await peer.result_of("log", grep="line 7$")) == "1 of 300 lines match:\n8:line 7"
        assert "fields" in await peer.refusal_of("rows", fields="[?")
        assert "grep" in await peer.refusal_of("log", grep="(")
        shape, note = texts(await peer.result_of("rows", fields="nope"))
        assert shape.startswith("Shape: 127 x") and "No field 'nope'" in note
        assert len(json.loads(first_text(await peer.result_of("rows", state="x", fields="", grep=None)))) == 0


async def test_arguments_of_a_function_stay_its_own(era):
    async with era_client(shop(ResultPolicy(max_tokens=500)), era) as peer:
        assert json.loads(first_text(await peer.result_of("find", grep="(", fields="length(@)"))) == 3
        own = await peer.result_of("open_tool", fields="a", grep="b")
        assert json.loads(first_text(own)) == [{"fields": "a", "grep": "b"}] * 2
        assert "Invalid arguments" in await peer.refusal_of("number", fields="a")


async def test_continue_says_what_fields_are_where_execute_does_not():
    tools = await listed(shop(ResultPolicy(max_tokens=500)))
    assert "JMESPath" in tools["continue"]["inputSchema"]["properties"]["fields"]["description"]


async def test_behind_meta_tools_operations_list_no_query():
    server = shop(ResultPolicy(max_tokens=500), disclosure="meta")
    async with connect(server, progressive=False) as client:
        described = (await client.call_tool("get_schema", {"operation": ["rows", "log"]})).text
        assert "grep" not in described and "fields" not in described
        assert (await client.call_tool("execute", {"operation": "rows", "fields": "length(@)"})).value == 127


async def test_a_gateway_offers_the_arguments_of_the_function_alone():
    tools = list((await listed(shop(ResultPolicy(max_tokens=500)))).values())
    about: dict[str, Any] = {"capabilities": {"tools": {}, "extensions": {progressive_disclosure.NAME: {}}}}
    config = UpstreamConfig(name="shop", entry={"command": "none"}, promise="never")
    listing = UpstreamListing(about, "2025-11-25", tools)
    gateway = DeltaServer("gateway", disclosure=Disclosure("full"))
    offer = UpstreamOffer(config, Upstream("shop", config.entry), listing)
    upstream_items = UpstreamItems(frozenset(), ResourceClaims(list, gateway.engine.catalog.view))
    upstream_items.configure(True, None)
    items = upstream_items.update([offer])
    gateway.items.replace_items([], list(items.values()))
    shown = await listed(gateway)
    own = {"rows": {"state"}, "find": {"grep"}, "log": set[str]()}
    for name, names in own.items():
        (tool,) = [tool for full, tool in shown.items() if full.endswith(name)]
        assert tool["inputSchema"].get("properties", {}).keys() == names
