"""A gateway offers what its upstreams list, as they list it but for names, and follows their changes."""

import json
import threading

import pytest

from deltamcp import connect
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.upstream_items import UpstreamItems
from tests.support.conditions import wait_until
from tests.support.listing_upstream import ListingUpstream, gateway, tool

ODD_TOOL = {
    "description": "caf\u00e9 \ud83d\ude00",
    "zebra": {"b": 1, "a": [None, 1.5, True]},
    "name": "odd",
    "outputSchema": {"type": "object", "$defs": {"x": {"id": "#x"}}, "properties": {"a": {"$ref": "#/$defs/x"}}},
    "_meta": {"vendor/key": {"z": 1, "a": 2}},
    "icons": [{"src": "https://example.org/i.png", "sizes": ["48x48"]}],
    "annotations": {"title": "Odd", "readOnlyHint": True, "unknownHint": "x"},
    "inputSchema": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "minimum": 3},
}


async def test_definitions_pass_as_they_are_but_for_the_name(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[ODD_TOOL])
    for options, name in (({}, "odd"), ({"prefix": True}, "one_odd")):
        async with connect(gateway(tmp_path, upstream.config(), **options).server, progressive=False) as client:
            (listed,) = (await client.request("tools/list"))["tools"]
            assert json.dumps(listed) == json.dumps(ODD_TOOL | {"name": name})


async def test_globs_renames_read_only_and_pins(tmp_path):
    upstream = ListingUpstream(
        tmp_path,
        "one",
        tools=[
            tool("get_a"),
            tool("get_b", annotations={"readOnlyHint": True}),
            tool("set_a", annotations={"readOnlyHint": True, "destructiveHint": True}),
        ],
    )

    async def names(surface="full", **options):
        async with connect(
            gateway(tmp_path, upstream.config(**options), disclosure=surface).server, progressive=False
        ) as client:
            return [one["name"] for one in (await client.request("tools/list"))["tools"]]

    assert await names(allow=("get_*",)) == ["get_a", "get_b"]
    assert await names(deny=("*_a",)) == ["get_b"]
    assert await names(read_only=True) == ["get_b"]
    assert await names(rename={"get_a": "fetch"}, deny=("set_*",)) == ["fetch", "get_b"]
    assert "get_b" in await names("meta", pinned=("*_b",)) and "get_a" not in await names("meta", pinned=("*_b",))


async def test_a_renamed_tool_is_called_by_its_own_name(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("get a"), tool("query")])
    config = upstream.config(rename={"get a": "fetch"})
    async with connect(gateway(tmp_path, config, disclosure="meta").server, progressive=False) as client:
        reply = await client.call_tool("execute", {"operation": "one.fetch", "params": {"x": 1}})
        sent = json.loads(reply.text)
        assert (sent["name"], sent["arguments"]) == ("get a", {"x": 1})
        reply = await client.call_tool("execute", {"operation": "one.query"})
        assert json.loads(reply.text)["name"] == "query"


async def test_two_upstreams_with_the_same_tools_and_uris(tmp_path, caplog):
    lists = {
        "tools": [tool("search")],
        "resources": [{"uri": "notes://all", "name": "all"}],
        "prompts": [{"name": "ask"}],
    }
    first, second = ListingUpstream(tmp_path, "one", **lists), ListingUpstream(tmp_path, "two", **lists)
    async with connect(gateway(tmp_path, first.config(), second.config()).server, progressive=False) as client:
        assert [one.name for one in await client.tools()] == ["one_search", "two_search"]
        assert [one["uri"] for one in await client.list_resources()] == ["notes://all", "notes://two/all"]
        assert [one["name"] for one in await client.list_prompts()] == ["one_ask", "two_ask"]
        (contents,) = await client.read_resource("notes://two/all")
        assert json.loads(contents["text"])["uri"] == "notes://all"
    assert "notes://two/all" in caplog.text


def test_two_upstreams_with_one_name_are_refused(tmp_path):
    config = ListingUpstream(tmp_path, "one").config()
    with pytest.raises(ConfigurationError, match="same name"):
        gateway(tmp_path, config, config)


async def test_what_was_seen_once_is_offered_before_the_upstream_has_started(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    async with connect(gateway(tmp_path, upstream.config()).server):
        pass
    again = gateway(tmp_path, upstream.config())
    async with connect(again.server, progressive=False) as client:
        assert [one.name for one in await client.tools()] == ["a"]
        assert again.upstreams["one"].connection.state.starts == 0


async def test_an_upstream_that_never_answers_is_waited_for_once(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    missing = ListingUpstream(tmp_path, "two").config()
    missing.entry["args"] = [str(tmp_path / "no such file.py")]
    hanging = ListingUpstream(tmp_path, "three").config()
    hanging.entry["args"] = ["-c", "import sys; sys.stdin.read()"]
    configs = (upstream.config(), missing, hanging)
    async with connect(gateway(tmp_path, *configs, wait_seconds=0.2).server, progressive=False) as client:
        await wait_until(lambda: (tmp_path / "catalogs").exists())
        assert {one.name for one in await client.tools()} <= {"one_a"}
    # Nobody would wait that long.
    async with connect(gateway(tmp_path, *configs, wait_seconds=1e6).server, progressive=False) as client:
        assert {one.name for one in await client.tools()} <= {"one_a"}


async def test_a_changed_list_is_announced_once_and_nothing_is_missing_meanwhile(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("announce"), tool("a")])
    changes: list[str] = []
    server = gateway(tmp_path, upstream.config(on_new="announce")).server
    async with connect(server, on_change=changes.append) as client:
        assert [one.name for one in await client.tools()] == ["announce", "a"]
        upstream.write(tools=[tool("announce"), tool("b"), tool("a")], prompts=[{"name": "ask"}])
        await client.call_tool("announce", {})
        await wait_until(lambda: "tools" in changes and "prompts" in changes)
        assert [one.name for one in await client.tools()] == ["announce", "b", "a"]
        assert changes.count("tools") == 1


async def test_an_upstream_that_is_down_stays_listed_and_a_call_says_to_try_again(tmp_path):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    config = upstream.config()
    async with connect(gateway(tmp_path, config).server):
        pass
    (tmp_path / "one.json").unlink()
    async with connect(gateway(tmp_path, config).server, progressive=False) as client:
        assert [one.name for one in await client.tools()] == ["a"]
        reply = await client.call_tool("a", {})
        assert reply.is_error and "try again" in reply.text


async def test_a_second_start_needs_no_review_of_what_was_reviewed(tmp_path, monkeypatch):
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    async with connect(gateway(tmp_path, upstream.config()).server):
        await wait_until(lambda: any((tmp_path / "catalogs").glob("*.catalog")))
    again = gateway(tmp_path, upstream.config())
    monkeypatch.setattr(again._quarantine, "_review", lambda *_: None)
    async with connect(again.server) as client:
        assert [one.name for one in await client.tools()] == ["a"]


async def test_what_servers_list_is_made_into_items_beside_the_event_loop(tmp_path, monkeypatch):
    threads, update = set(), UpstreamItems.update

    def note_thread(self, offers):
        threads.add(threading.current_thread())
        return update(self, offers)

    monkeypatch.setattr(UpstreamItems, "update", note_thread)
    upstream = ListingUpstream(tmp_path, "one", tools=[tool("a")])
    async with connect(gateway(tmp_path, upstream.config()).server) as client:
        assert [one.name for one in await client.tools()] == ["a"]
    assert threads and threading.current_thread() not in threads
