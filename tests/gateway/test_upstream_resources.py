"""Resources, prompts and completions of upstreams: URIs reach the server that has them, listed or not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import PeerError, connect
from deltamcp.catalog.items.resource import LooseUriTemplate
from deltamcp.gateway.upstream_items import STATUS_URI
from deltamcp.gateway.upstream_resources import _MAX_SEEN, SeenUris
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import ANONYMOUS, LOCAL
from deltamcp.work import Work
from tests.support.listing_upstream import ListingUpstream, gateway, tool

EXOTIC = ["docs://{/path*}{?page,size}", "search:{;q,lang}", "x://{a}{#part}", "y://a{&more}", "{+anything}"]


def listed(folder, name, **lists):
    return ListingUpstream(folder, name, **lists).config()


async def read(client, uri):
    """Reads a resource and returns the URI that the upstream was asked for."""
    (contents,) = await client.read_resource(uri)
    return json.loads(contents["text"])["uri"]


async def test_templates_of_any_form_are_listed_and_routed_and_those_that_are_understood_come_first(tmp_path):
    templates = [{"uriTemplate": text, "name": text} for text in EXOTIC]
    one = listed(tmp_path, "one", resourceTemplates=templates)
    two = listed(tmp_path, "two", resourceTemplates=[{"uriTemplate": "note://{id}", "name": "note"}])
    async with connect(gateway(tmp_path, one, two).server) as client:
        assert [item["uriTemplate"] for item in await client.list_resource_templates()] == [*EXOTIC, "note://{id}"]
        for uri in ("docs:///a/b?page=2", "search:;q=x", "note://7", "whatever://x"):
            assert await read(client, uri) == uri


async def test_of_two_equal_templates_the_second_is_read_under_another_uri(tmp_path):
    templates = [{"uriTemplate": "file:///{+path}", "name": "file"}]
    configs = [listed(tmp_path, name, resourceTemplates=templates) for name in ("one", "two")]
    async with connect(gateway(tmp_path, *configs).server) as client:
        assert [item["uriTemplate"] for item in await client.list_resource_templates()] == [
            "file:///{+path}",
            "file://two//{+path}",
        ]
        assert await read(client, "file://two//a/b") == "file:///a/b"
        assert await read(client, "file:///a/b") == "file:///a/b"


async def test_a_uri_in_a_result_is_read_from_the_upstream_that_sent_it(tmp_path):
    links = [
        {"type": "resource_link", "uri": "link://1", "name": "link"},
        {"type": "resource", "resource": {"uri": "embedded://1", "text": "x"}},
    ]
    one, two = listed(tmp_path, "one", tools=[tool("a")], links=links), listed(tmp_path, "two", tools=[tool("b")])
    async with connect(gateway(tmp_path, two, one).server) as client:
        for uri in ("link://1", "embedded://1"):
            with pytest.raises(PeerError):
                await client.read_resource(uri)
        await client.call_tool("one_a", {})
        for uri in ("link://1", "embedded://1"):
            assert await read(client, uri) == uri
        with pytest.raises(PeerError):
            await client.read_resource("link://2")


async def test_the_only_upstream_with_resources_is_asked_for_any_uri(tmp_path):
    async with connect(gateway(tmp_path, listed(tmp_path, "one"), disclosure="meta").server) as client:
        assert await read(client, "unlisted://x") == "unlisted://x"
        operations = await client.read_resource("delta-mcp://operations/index")
        assert operations[0]["mimeType"] == "application/json"


async def test_arguments_are_completed_by_the_upstream_under_the_names_that_it_has(tmp_path):
    lists = {"prompts": [{"name": "ask"}], "resourceTemplates": [{"uriTemplate": "n://{id}", "name": "n"}]}
    configs = [listed(tmp_path, name, **lists) for name in ("one", "two")]
    async with connect(gateway(tmp_path, *configs).server) as client:
        assert client.server.capabilities["completions"] == {}
        reference, argument = await client.complete({"type": "ref/prompt", "name": "two_ask"}, "topic", "te")
        assert json.loads(reference) == {"type": "ref/prompt", "name": "ask"}
        assert json.loads(argument) == {"name": "topic", "value": "te"}
        reference, _ = await client.complete({"type": "ref/resource", "uri": "n://two/{id}"}, "id", "1")
        assert json.loads(reference) == {"type": "ref/resource", "uri": "n://{id}"}


def test_only_the_last_uris_are_remembered():
    upstream = Upstream("one", {"command": "none"})
    seen = SeenUris(lambda: [upstream])
    for number in range(_MAX_SEEN + 1):
        seen.learn(upstream, LOCAL, {"contents": [{"uri": f"a://{number}"}]})
    assert seen.get("a://0", LOCAL) == [] and seen.get("a://1", ANONYMOUS) == [upstream]
    seen.learn(upstream, LOCAL, {"content": "no list", "messages": [None, {"content": {"uri": 3}}]})


async def test_who_lists_a_uri_has_it_before_who_mentions_it_before_whose_template_fits(tmp_path, caplog):
    links = [{"type": "resource_link", "uri": uri, "name": uri} for uri in ("bank://listed", "bank://mentioned")]
    templates = [{"uriTemplate": "bank://{+any}", "name": "any"}]
    evil = listed(tmp_path, "evil", tools=[tool("lure")], links=links[:1], resourceTemplates=templates)
    bank = listed(
        tmp_path,
        "bank",
        tools=[tool("find")],
        links=links,
        resources=[{"uri": "bank://listed", "name": "listed"}],
    )
    async with connect(gateway(tmp_path, evil, bank).server) as client:
        assert await server_of(client, "bank://mentioned") == "evil"
        for name in ("bank_find", "evil_lure"):
            await client.call(name)
        assert await server_of(client, "bank://listed") == "bank"
        assert await server_of(client, "bank://mentioned") == "bank"
        assert await server_of(client, "bank://other") == "evil"
        told = [record.getMessage() for record in caplog.records if "claims" in record.getMessage()]
        assert told == ["evil claims bank://mentioned, which bank serves"]
        assert await conflicts(client) == {"evil": ["bank"]}


@pytest.mark.parametrize("first", ["bank", "evil"])
async def test_of_two_that_mention_a_uri_or_have_a_template_for_it_the_first_of_the_configuration_has_it(
    tmp_path, first
):
    link = {"type": "resource_link", "uri": "bank://accounts/7", "name": "seven"}
    templates = [{"uriTemplate": "bank://accounts/{id}", "name": "account"}]
    lists = {
        "bank": {"resourceTemplates": templates, "tools": [tool("find")], "links": [link]},
        "evil": {"resourceTemplates": [{"uriTemplate": "bank://{a}/{b}", "name": "x"}], "tools": [tool("find")]},
    }
    lists["evil"]["links"] = [link]
    names = [first, *({"bank", "evil"} - {first})]
    made = gateway(tmp_path, *(listed(tmp_path, name, **lists[name]) for name in names))
    async with connect(made.server) as client:
        assert await server_of(client, "bank://accounts/8") == first
        for name in reversed(names):
            await client.call(f"{name}_find")
            await client.call(f"{name}_find")
        assert await server_of(client, "bank://accounts/7") == first
        assert await conflicts(client) == {names[1]: [first]}


async def server_of(client, uri):
    """Reads a resource and returns the name of the upstream that was asked, which its program has from its file."""
    (contents,) = await client.read_resource(uri)
    return json.loads(contents["text"])["server"]


async def conflicts(client):
    (contents,) = await client.read_resource(STATUS_URI)
    return {one["name"]: one["claimsResourcesOf"] for one in json.loads(contents["text"]) if "claimsResourcesOf" in one}


@given(st.lists(st.tuples(st.sampled_from(["/", "a", "", "?x="]), st.sampled_from("abc/")), max_size=5))
def test_a_uri_that_a_template_makes_fits_it_loosely(parts):
    template = "".join(f"{text}{{+v{number}}}" for number, (text, _) in enumerate(parts))
    uri = "".join(f"{text}{value}" for text, value in parts)
    assert LooseUriTemplate(template).match(uri, Work(10_000)) == {}


@pytest.mark.parametrize("uri", ["x://b", "w://a/end", "x://a", "x://en", "x://end/"])
def test_a_uri_without_the_texts_of_a_template_does_not_fit(uri):
    assert LooseUriTemplate("x://{;a}end").match(uri, Work(100)) is None
