"""Operations as resources: their tree, their URIs, and changes while a server runs."""

from typing import Any

import pytest

from deltamcp import Disclosure
from tests.support.meta_tools import (
    COMMUNITY_IDS,
    NOUNS,
    VERSIONS,
    community_server,
    large_server,
    meta_tool_client,
)

# Resources


async def test_the_resources_are_the_tree(era):
    async with meta_tool_client(community_server(), era) as peer:
        listed = (await peer.ask("resources/list"))["result"]["resources"]
        uris = [item["uri"] for item in listed]
        assert uris[0] == "circle://operations/index"
        categories = {f"circle://operations/{path}" for path in ("posts", "batch", "batch/posts", "members")}
        assert set(uris[1:]) == categories | {f"circle://operations/{name.replace('.', '/')}" for name in COMMUNITY_IDS}
        assert len(uris) == len(set(uris))
        for item in listed:
            assert item["name"] and item["description"] and item["mimeType"] == "application/json"
            await peer.read(item["uri"])
        index = await peer.read("circle://operations/index")
        assert set(index["operations"]) == {"posts", "batch", "members", "uptime"}
        assert index["operations"]["posts"]["create"] == {"name": "create_post", "description": "Create a new post"}
        posts = await peer.read("circle://operations/posts")
        assert posts["operations"] == index["operations"]["posts"]


async def test_reading_says_how_long_it_may_be_kept():
    async with meta_tool_client(community_server()) as peer:
        for method, params in (("resources/list", {}), ("resources/read", {"uri": "circle://operations/index"})):
            result = (await peer.ask(method, **params))["result"]
            assert result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private")


@pytest.mark.parametrize("operations", [150, 500])
async def test_the_list_of_resources_has_pages_of_at_most_100(operations, era):
    async with meta_tool_client(large_server(operations), era) as peer:
        seen: list[str] = []
        params: dict[str, Any] = {}
        while True:
            result = (await peer.ask("resources/list", **params))["result"]
            assert len(result["resources"]) <= 100
            seen += [item["uri"] for item in result["resources"]]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert len(seen) == len(set(seen)) == operations + 12 + 1
        refused = await peer.ask("resources/list", cursor="never given")
        assert refused["error"]["code"] == -32602


async def test_beyond_500_operations_there_are_categories_and_a_template(era):
    async with meta_tool_client(large_server(501), era) as peer:
        listed = (await peer.ask("resources/list"))["result"]["resources"]
        assert {item["uri"] for item in listed} == {
            "big://operations/index",
            *(f"big://operations/{noun}" for noun in NOUNS),
        }
        templates = (await peer.ask("resources/templates/list"))["result"]["resourceTemplates"]
        assert "big://operations/{+path}" in [item["uriTemplate"] for item in templates]
        assert (await peer.read("big://operations/posts/list"))["id"] == "posts.list"
        assert len((await peer.read("big://operations/index"))["operations"]) == 12


@pytest.mark.parametrize("path", ["posts/lst", "pots/list", "Posts", "posts/list/more"])
@pytest.mark.parametrize("version", [*VERSIONS, "2026-07-28"])
async def test_an_unknown_address_has_the_code_of_its_revision_and_suggestions(path, version):
    modern = version == "2026-07-28"
    async with meta_tool_client(community_server(), "modern" if modern else "handshake", version) as peer:
        error = (await peer.ask("resources/read", uri=f"circle://operations/{path}"))["error"]
    assert error["code"] == (-32602 if modern else -32002)
    assert "posts" in error["message"].partition("Did you mean")[2]


async def test_suggestions_for_an_address_are_addresses():
    """A client cannot read a resource at the id `posts.list`."""
    async with meta_tool_client(community_server()) as peer:
        error = (await peer.ask("resources/read", uri="circle://operations/posts.list"))["error"]
    assert "circle://operations/posts/list" in error["message"]


@pytest.mark.parametrize(
    "path",
    [
        *("../operations/index", "posts/../posts", "%2e%2e/posts", "posts/%2E./list", "posts%2Flist", "posts%2flist"),
        *("./posts", "posts/./list", "posts%252Flist", "posts%5Clist", "posts/list%00", "posts?x=1", "posts#list", "%"),
        "",
    ],
)
async def test_crooked_addresses_are_refused(path, era):
    async with meta_tool_client(community_server(), era) as peer:
        answer = await peer.ask("resources/read", uri=f"circle://operations/{path}")
    assert answer["error"]["code"] in (-32602, -32002)


async def test_percent_signs_are_decoded(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert (await peer.read("circle://operations/p%6Fsts/list"))["id"] == "posts.list"


@pytest.mark.parametrize(
    ("options", "scheme"),
    [
        ({"prefix": "my_app"}, "my-app"),
        ({"prefix": "circle"}, "circle"),
        ({"prefix": "a", "scheme": "b"}, "b"),
        ({}, "big"),
    ],
)
async def test_the_scheme_follows_the_prefix(options, scheme, era):
    async with meta_tool_client(large_server(3, disclosure=Disclosure("meta", **options)), era) as peer:
        assert set((await peer.read(f"{scheme}://operations/index"))["operations"]) == {"posts", "members", "events"}


async def test_the_servers_own_resources_stay_beside_the_operations(era):
    server = community_server()

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    @server.resource("note://one")
    async def one() -> str:
        return "1"

    async with meta_tool_client(server, era) as peer:
        uris = [item["uri"] for item in (await peer.ask("resources/list"))["result"]["resources"]]
        assert {"note://one", "circle://operations/index"} <= set(uris)
        read = await peer.ask("resources/read", uri="note://two")
        assert read["result"]["contents"][0]["text"] == "two"
        assert (await peer.read("circle://operations/posts/list"))["id"] == "posts.list"


# Changes


async def test_a_tool_added_while_running_is_found_and_announced(era):
    server = community_server()
    async with meta_tool_client(server, "handshake") as peer:
        await peer.ask("ping")

        @server.tool(category="polls", action="open", pinned=True)
        async def open_poll() -> str:
            """Open a poll"""
            return "opened"

        assert (await peer.raw.next_heard())["method"].endswith("list_changed")
        assert "polls: open" in await peer.text_of("discover")
        assert (await peer.text_of("discover", query="open a poll")).startswith("polls.open(")
        assert "open_poll" in await peer.names()
        assert "polls" in (await peer.tools())[0]["description"]
        assert (await peer.read("circle://operations/polls/open"))["name"] == "open_poll"
        server.remove_tool("open_poll")
        assert "polls" not in await peer.text_of("discover")
        assert "polls" not in await peer.text_of("discover", query="open a poll")
        await peer.refusal_of("execute", operation="polls.open")
