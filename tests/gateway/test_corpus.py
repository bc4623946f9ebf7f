"""Every tool of the corpus is listed, found and described behind one gateway, and costs next to nothing up front."""

import json
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.gateway.config import DEFAULT_RESULTS, UpstreamConfig
from deltamcp.gateway.upstream_items import UpstreamItems, UpstreamOffer
from deltamcp.gateway.upstream_resources import ResourceClaims
from deltamcp.server import DeltaServer
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.upstream import Upstream
from tests.interop.servers import SERVERS

ODD_SCHEMAS: dict[str, dict[str, Any]] = {
    "no schema": {},
    "true": {"inputSchema": True},
    "false": {"inputSchema": False},
    "null": {"inputSchema": None, "description": None, "annotations": None},
    "reference": {"inputSchema": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}},
    "loop": {"inputSchema": {"type": "object", "properties": {"a": {"$ref": "#"}}}},
    "draft-04": {"inputSchema": {"$schema": "http://json-schema.org/draft-04/schema#", "id": "#x", "type": "object"}},
    "no object": {"inputSchema": {"type": "string"}},
    "wrong": {"inputSchema": {"type": 7, "properties": [], "required": "a"}, "annotations": [], "_meta": 3},
    "odd output": {"outputSchema": True},
    "a/b c": {},
    "é": {},
    "x" * 300: {},
    "query": {},
}


@pytest.fixture(scope="module")
def listings(shared):
    found = {}
    for file in sorted((shared / "corpus" / "mcp_tools").glob("*.json")):
        found[file.stem] = json.loads(file.read_text())["tools"]
    found["odd"] = [{"name": name, **members} for name, members in ODD_SCHEMAS.items()]
    return found


def offered_server(listings, surface, query=True):
    offers = []
    for name, tools in listings.items():
        config = UpstreamConfig(name=name, entry={"command": "none"}, promise="never")
        offers.append(UpstreamOffer(config, Upstream(name, config.entry), UpstreamListing({}, "2025-11-25", tools)))
    results = DEFAULT_RESULTS if surface == "meta" else None
    server = DeltaServer("gateway", disclosure=Disclosure(surface, query=query), results=results)
    upstream_items = UpstreamItems(frozenset({"query"}), ResourceClaims(list, server.engine.catalog.view))
    upstream_items.configure(True, None)
    items = upstream_items.update(offers)
    server.items.replace_items([], list(items.values()))
    return server, items


async def test_every_tool_is_listed_as_it_is_but_for_its_name(listings):
    server, items = offered_server(listings, "full")
    assert len(items) == sum(map(len, listings.values()))
    async with connect(server, progressive=False) as client:
        listed = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
    for key, item in items.items():
        original = next(tool for tool in listings[key.upstream] if tool["name"] == key.name)
        shown = dict(original)
        shown.pop("execution", None)
        if not isinstance(shown.get("inputSchema"), dict):
            shown["inputSchema"] = {"type": "object"}
        assert json.dumps(listed[item.name]) == json.dumps(shown | {"name": item.name})


async def test_every_tool_is_found_and_described(listings):
    server, items = offered_server(listings, "meta")
    ids = [item.id for item in items.values()]
    async with connect(server) as client:
        for start in range(0, len(ids), 10):
            reply = await client.call_tool("get_schema", {"operation": ids[start : start + 10]})
            assert not reply.is_error, reply.text
        for category in {id_.partition(".")[0] for id_ in ids}:
            reply = await client.call_tool("discover", {"category": category, "detail": "names"})
            assert not reply.is_error, reply.text


QUERY_AND_MOST = [(False, 320), (True, 375)]


@pytest.mark.parametrize(("query", "most"), QUERY_AND_MOST)
@pytest.mark.parametrize("count", [25, 57])
def test_the_cost_up_front_is_bounded(listings, query, most, count):
    chosen = dict(list(listings.items())[:count])
    server, _ = offered_server(chosen, "meta", query)
    assert server.costs.meta <= most


@pytest.mark.parametrize(("query", "most"), QUERY_AND_MOST)
def test_the_cost_up_front_of_the_published_servers_is_bounded(query, most):
    """The definitions have names of servers and numbers of tools, and nothing else that depends on the servers."""
    listings = {name: [{"name": f"tool{at}"} for at in range(server.tools)] for name, server in SERVERS.items()}
    server, _ = offered_server(listings, "meta", query)
    assert len(listings) >= 38 and server.costs.meta <= most
