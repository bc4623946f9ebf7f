"""Results pass to the byte where the operator wants no budget: for one server or for all, by whatever tool."""

import json

from deltamcp import connect
from deltamcp.results.policy import ResultPolicy
from tests.support.listing_upstream import ListingUpstream, gateway, tool

LONG = {"rows": [{"id": number, "name": f"row {number}"} for number in range(3000)]}


async def call(client, operation, **arguments):
    reply = await client.request(
        "tools/call", {"name": "execute", "arguments": {"operation": operation, "params": LONG, **arguments}}
    )
    return reply["content"][0]["text"]


async def test_one_server_without_a_budget_beside_one_with_it(tmp_path):
    whole = ListingUpstream(tmp_path, "whole", tools=[tool("a")]).config(results=False)
    cut = ListingUpstream(tmp_path, "cut", tools=[tool("a")]).config()
    made = gateway(tmp_path, whole, cut, disclosure="meta", results=ResultPolicy(max_tokens=500))
    async with connect(made.server, progressive=False) as client:
        text = await call(client, "whole.a")
        assert text == json.dumps({"name": "a", "arguments": LONG}), "as its server wrote it"
        assert len(await call(client, "cut.a")) < len(text) / 10
        assert len(await call(client, "whole.a", fields=["name"])) < 100, "who asks for a part gets it"


async def test_a_gateway_without_a_budget_passes_on_all_also_behind_meta_tools(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    async with connect(gateway(tmp_path, upstream.config(), disclosure="meta").server, progressive=False) as client:
        assert await call(client, "one.a") == json.dumps({"name": "a", "arguments": LONG})
