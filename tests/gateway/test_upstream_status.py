"""What the servers behind a gateway are doing can be seen while it runs."""

import json

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deltamcp import connect
from deltamcp.transports.http.server import make_server
from tests.support.http_server import serve_uvicorn
from tests.support.listing_upstream import ListingUpstream, gateway, tool

URI = "delta-mcp://gateway/upstreams"


def broken(tmp_path):
    config = ListingUpstream(tmp_path, "two").config()
    config.entry["args"] = [str(tmp_path / "no such file.py")]
    return config


@pytest.mark.parametrize("disclosure", ["meta", "full"])
async def test_a_resource_tells_the_states_and_starts_nothing(tmp_path, disclosure):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    made = gateway(tmp_path, upstream.config(), broken(tmp_path), disclosure=disclosure)
    async with connect(made.server, progressive=False) as client:
        (contents,) = await client.read_resource(URI)
        ready, failed = json.loads(contents["text"])
        assert (ready["name"], ready["state"], ready["restarts"], ready["openCalls"]) == ("one", "ready", 0, 0)
        assert (failed["name"], failed["state"]) == ("two", "backing off")
        assert failed["retryAt"] > "2026" and failed["lastError"]
        listed = [one["uri"] for one in await client.list_resources()]
        assert (URI in listed) == (disclosure != "full"), "a flat list is that of the upstreams"
    again = gateway(tmp_path, upstream.config(), disclosure=disclosure)
    async with connect(again.server, progressive=False) as client:
        (contents,) = await client.read_resource(URI)
        assert [one["state"] for one in json.loads(contents["text"])] == ["stopped"]


async def test_an_upstream_that_lists_the_same_uri_has_another_here(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", resources=[{"uri": URI, "name": "states"}])
    async with connect(gateway(tmp_path, upstream.config(), disclosure="meta").server, progressive=False) as client:
        assert "delta-mcp://one/gateway/upstreams" in [one["uri"] for one in await client.list_resources()]
        (own,) = await client.read_resource(URI)
        (there,) = await client.read_resource("delta-mcp://one/gateway/upstreams")
        assert json.loads(own["text"])[0]["name"] == "one" and json.loads(there["text"])["uri"] == URI


async def test_the_page_of_metrics_has_the_upstreams(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    made = gateway(tmp_path, upstream.config(), broken(tmp_path))
    async with (
        serve_uvicorn(make_server(made.server.engine, port=0, metrics=True)) as address,
        httpx2.AsyncClient() as web,
    ):
        page = (await web.get(f"{address}/metrics")).text
    found = {
        (sample.name, sample.labels["upstream"], sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "upstream" in sample.name
    }
    assert found["delta_mcp_upstream_state", "one", "ready"] == 1
    assert found["delta_mcp_upstream_state", "one", "stopped"] == 0
    assert found["delta_mcp_upstream_state", "two", "backing off"] == 1
    assert found["delta_mcp_upstream_restarts_total", "one", None] == 0
    assert found["delta_mcp_upstream_open_calls", "one", None] == 0


async def test_names_that_are_too_long_are_not_offered_but_counted_and_told_once(tmp_path, caplog):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a"), tool("b" * 20_000)], prompts=[{"name": "c" * 129}])
    for _ in range(2):  # from the server, then from what is kept on disk
        caplog.clear()
        async with connect(gateway(tmp_path, upstream.config()).server, progressive=False) as client:
            assert [one["name"] for one in await client.describe()] == ["a"] and await client.list_prompts() == []
            (contents,) = await client.read_resource(URI)
            assert json.loads(contents["text"])[0]["leftOut"] == {"tools": 1, "prompts": 1}
        assert caplog.text.count("one: 1 of its tools are left out: names that are too long") == 1
