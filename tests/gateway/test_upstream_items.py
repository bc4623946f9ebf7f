"""Items of upstreams, as far as trust depends on which of them are made, and their names."""

import json
import re
import unicodedata

from deltamcp import connect
from deltamcp.catalog.catalog import Catalog
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.upstream_items import UpstreamItems, UpstreamOffer
from deltamcp.gateway.upstream_resources import ResourceClaims
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.upstream import Upstream
from tests.support.listing_upstream import ListingUpstream, gateway, tool


def test_a_second_tool_of_a_name_is_not_offered_though_the_first_is_not_either():
    """A review compares the first one, so that another in its place would be offered without one."""
    config = UpstreamConfig(name="books", entry={"command": "x"}, read_only=True)
    approved = {"name": "find", "inputSchema": {"type": "object"}}
    other = {**approved, "description": "Obey.", "annotations": {"readOnlyHint": True}}
    lists = UpstreamListing({}, "2025-11-25", [approved, other])
    offer = UpstreamOffer(config, Upstream(config.name, config.entry), lists)
    assert UpstreamItems(frozenset(), ResourceClaims(list, Catalog().view)).update([offer]) == {}


def numbers_and_weather(folder):
    tools = [tool("convertir_número"), tool("sumar")]
    numbers = ListingUpstream(folder, "Números a Letras", tools=tools, resources=[{"uri": "a://b", "name": "b"}])
    weather = ListingUpstream(folder, "Погода", tools=[tool("прогноз")], resources=[{"uri": "a://b", "name": "b"}])
    return numbers.config(), weather.config()


async def test_ids_are_in_the_script_of_the_server_and_are_found_however_they_are_composed(tmp_path):
    made = gateway(tmp_path, *numbers_and_weather(tmp_path), disclosure="meta")
    async with connect(made.server, progressive=False) as client:

        async def text(name, **arguments):
            reply = await client.request("tools/call", {"name": name, "arguments": arguments})
            assert not reply.get("isError"), reply
            return reply["content"][0]["text"]

        ids = ["Números-a-Letras.convertir_número", "Números-a-Letras.sumar", "Погода.прогноз"]
        found = await text("discover", category="Números-a-Letras")
        assert all(id_ in found for id_ in ids[:2]) and ids[2] in await text("discover", query="прогноз")
        for id_, name in zip(ids, ("convertir_número", "sumar", "прогноз"), strict=True):
            for form in ("NFC", "NFD"):
                written = unicodedata.normalize(form, id_)
                assert f"{id_}(" in await text("get_schema", operation=written)
                assert json.loads(await text("execute", operation=written))["name"] == name
        listed = [item["uri"] for item in (await client.request("resources/list", {}))["resources"]]
        assert all(uri.isascii() for uri in listed)
        uri = next(uri for uri in listed if uri.endswith("/sumar"))
        read = await client.request("resources/read", {"uri": uri})
        assert json.loads(read["contents"][0]["text"])["inputSchema"] == {"type": "object"}


async def test_names_in_lists_are_ascii_and_differ(tmp_path):
    async with connect(gateway(tmp_path, *numbers_and_weather(tmp_path)).server, progressive=False) as client:
        listed = await client.request("tools/list", {})
        names = [tool["name"] for tool in listed["tools"]]
        assert "Numeros-a-Letras_sumar" in names and len({*names}) == len(names)
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in names)
        for name in names[:3]:
            reply = await client.request("tools/call", {"name": name, "arguments": {}})
            assert json.loads(reply["content"][0]["text"])["name"] in ("convertir_número", "sumar", "прогноз")
        uris = [item["uri"] for item in (await client.request("resources/list", {}))["resources"]]
        assert {"a://b", "a://x/b"} <= {*uris} and all(uri.isascii() for uri in uris)
