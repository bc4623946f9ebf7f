"""The meta-tools as a model meets them: what is listed, found, shown, run, paged, hidden and asked for first."""

import contextlib
import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.client import Client
from pydantic import BaseModel

from deltamcp import ConfigurationError, DeltaServer, Disclosure, Principal, ResultPolicy
from deltamcp.results.encode import decode
from deltamcp.tokens import count
from deltamcp.values import ANONYMOUS, Answer, CallTool, Era, Failure, Kind, ListItems, Page, ReadResource, Terms
from tests.raw import META, Raw, connected
from tests.sdk_bridge import in_process

META_TOOLS = ["discover", "get_schema", "execute", "continue"]
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


# Talking to a server in either era


@dataclass
class Peer:
    raw: Raw
    era: str

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        send = self.raw.call if self.era == "handshake" else self.raw.modern
        return await send(method, **params)

    async def use(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """A tool's result; a JSON-RPC error fails the test."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments or {})
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def said(self, tool: str, **arguments: Any) -> str:
        """The text of a success."""
        result = await self.use(tool, arguments)
        assert not result.get("isError"), result
        return first(result)

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The text of a failure that the model is told of."""
        result = await self.use(tool, arguments)
        assert result.get("isError") is True, result
        return first(result)

    async def tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("tools/list"))["result"]["tools"]
        return found

    async def names(self) -> list[str]:
        return [tool["name"] for tool in await self.tools()]

    async def read(self, uri: str) -> Any:
        answer = await self.ask("resources/read", uri=uri)
        assert "result" in answer, answer
        [content] = answer["result"]["contents"]
        assert content["uri"] == uri and content["mimeType"] == "application/json"
        return json.loads(content["text"])

    async def answered(self, action: str, tool: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """What the user was asked, and the result after such an answer."""
        answer = {"action": action, "content": {}} if action == "accept" else {"action": action}
        if self.era == "handshake":
            self.raw.send(id="asking", method="tools/call", params={"name": tool, "arguments": arguments})
            question = await self.raw.receive()
            assert question["method"] == "elicitation/create", question
            self.raw.send(id=question["id"], result=answer)
            return question["params"]["message"], (await self.raw.receive())["result"]
        round_one = (await self.ask("tools/call", name=tool, arguments=arguments))["result"]
        assert round_one["resultType"] == "input_required", round_one
        [(key, request)] = round_one["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        round_two = await self.ask(
            "tools/call",
            name=tool,
            arguments=arguments,
            inputResponses={key: answer},
            requestState=round_one["requestState"],
        )
        return request["params"]["message"], round_two["result"]


def first(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


@contextlib.asynccontextmanager
async def joined(server: DeltaServer, era: str = "modern", version: str = "2025-11-25") -> AsyncIterator[Peer]:
    async with connected(server) as raw:
        if era == "handshake":
            await raw.handshake(version, elicitation={})
        yield Peer(raw, era)


@pytest.fixture(params=["handshake", "modern"])
def era(request) -> str:
    return str(request.param)


def size(tools: list[dict[str, Any]]) -> int:
    """What the definitions cost a model, in o200k tokens."""
    shown = [{"name": t["name"], "description": t["description"], "input_schema": t["inputSchema"]} for t in tools]
    return count(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


# Servers

VERBS = ["list", "create", "get", "update", "delete", "search", "archive"]
NOUNS = [
    *("posts", "members", "events", "spaces", "comments", "topics"),
    *("tags", "messages", "invites", "courses", "files", "forms"),
]


def circle(**disclosure: Any) -> DeltaServer:
    """A small server of every sort of operation; `ran` of it is what was run."""
    server = DeltaServer("circle", disclosure=Disclosure("meta", **disclosure))
    ran: list[Any] = []
    server.ran = ran  # type: ignore[attr-defined]

    @server.tool(
        category="posts",
        action="list",
        summary="List posts",
        annotations={"readOnlyHint": True},
        examples=[{"space_id": 7}],
    )
    async def list_posts(space_id: int, page: int = 1, per_page: int = 10) -> dict[str, int]:
        """List posts in a space, newest first."""
        ran.append("posts.list")
        return {"space": space_id, "page": page, "per_page": per_page}

    @server.tool(category="posts", action="create")
    async def create_post(space_id: int, name: str, body: str = "", state: Literal["draft", "live"] = "draft") -> str:
        """Create a new post"""
        ran.append("posts.create")
        return json.dumps([space_id, name, body, state])

    @server.tool(category="posts", action="delete", policy="confirm", annotations={"destructiveHint": True})
    async def delete_post(id: int) -> str:
        """Delete a post"""
        ran.append(("posts.delete", id))
        return f"deleted {id}"

    @server.tool(category="batch.posts", action="delete")
    async def delete_posts(ids: list[int]) -> int:
        """Delete many posts"""
        ran.append("batch.posts.delete")
        return len(ids)

    class Member(BaseModel):
        name: str
        age: int = 0

    @server.tool(category="members", action="search", pinned=True)
    async def search_members(q: str) -> Member:
        """Search members by their name"""
        ran.append("members.search")
        return Member(name=q)

    @server.tool(category="members", action="add")
    async def add_member(member: Member, notify: bool = False) -> str:
        """Add a member"""
        ran.append("members.add")
        return json.dumps([member.name, member.age, notify])

    @server.tool
    async def uptime() -> str:
        """How long the service has run"""
        ran.append("uptime")
        return "long"

    return server


CIRCLE = ["posts.list", "posts.create", "posts.delete", "batch.posts.delete", "members.search", "members.add", "uptime"]


def big(operations: int, categories: int = 12, **options: Any) -> DeltaServer:
    """So many operations, evenly in so many categories."""
    options.setdefault("disclosure", "meta")
    server = DeltaServer("big", **options)

    async def run(space_id: int, name: str = "") -> str:
        return f"{space_id}{name}"

    for number in range(operations):
        noun = NOUNS[number % categories % len(NOUNS)]
        series = number % categories // len(NOUNS)
        verb = VERBS[number // categories % len(VERBS)]
        version = number // categories // len(VERBS)
        category, action = f"{noun}{series or ''}", f"{verb}{version or ''}"
        server.tool(name=f"{action}_{category}", category=category, action=action, summary=f"{verb} {noun} of a space")(
            run
        )
    return server


@functools.cache
def ids(operations: int, categories: int = 12) -> set[str]:
    """What `big` registers."""
    catalogue = big(operations, categories).engine.catalog.operations
    return {f"{name.partition('_')[2]}.{name.partition('_')[0]}" for name in catalogue}


# The surface


async def test_the_list_holds_the_meta_tools_and_what_is_pinned(era):
    async with joined(circle(), era) as peer:
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
    async with joined(big(4, disclosure=Disclosure("meta", **options)), era) as peer:
        assert sorted(await peer.names()) == sorted(names)
        before = f"{options['prefix']}_" if "prefix" in options else ""
        assert "posts" in await peer.said(f"{before}discover")
        told = await peer.said(f"{before}get_schema", operation="posts.list")
        assert told.startswith("posts.list(")
        assert await peer.said(f"{before}execute", operation="posts.list", params={"space_id": 3}) == "3"
        assert f"{before}execute" in await peer.said(f"{before}discover", query="posts")


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
    async with joined(big(operations, 40 if operations > 100 else 12)) as peer:
        assert size(await peer.tools()) <= 350


@pytest.mark.parametrize("prefix", ["", "a_rather_long_prefix"])
async def test_long_category_names_do_not_burst_the_budget(prefix):
    server = DeltaServer("x", disclosure=Disclosure("meta", prefix=prefix))
    for number in range(50):
        category = f"{number}-" + "Zq9_xK" * 10
        server.tool(name=f"t{number}", category=category, action="go")(lambda: None)
    async with joined(server) as peer:
        assert size(await peer.tools()) <= 350 + 4 * count(prefix)


async def test_annotations_tell_the_truth_and_hosts_are_asked_to_load_the_tools(era):
    async with joined(circle(query=True), era) as peer:
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
    async with joined(circle(), era) as peer:
        assert json.loads(await peer.said("list_posts", space_id=2)) == {"space": 2, "page": 1, "per_page": 10}
        assert await peer.said("uptime") == "long"


async def test_an_unknown_tool_is_an_error_of_the_protocol(era):
    async with joined(circle(), era) as peer:
        assert (await peer.ask("tools/call", name="create_pots", arguments={}))["error"]["code"] == -32602


async def test_calling_an_operations_id_as_a_tool_points_to_execute():
    """A model that has read `posts.list` in an index will try this."""
    async with joined(circle()) as peer:
        answer = await peer.ask("tools/call", name="posts.list", arguments={"space_id": 1})
        assert "execute" in str(answer) or "list_posts" in str(answer) or '"space":1' in str(answer)


async def test_full_disclosure_shows_every_tool_and_no_meta_tool(era):
    async with joined(big(20, disclosure="full"), era) as peer:
        assert len(await peer.names()) == 20
        assert "error" in await peer.ask("tools/call", name="discover", arguments={})


# Configuration that cannot be meant


@pytest.mark.parametrize(
    "options",
    [
        {"category": "posts", "action": "a b"},
        {"category": "posts", "action": "ä"},
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
    """Or is refused."""
    try:
        server = big(3, disclosure=Disclosure("meta", **{option: value}))
    except ConfigurationError:
        return
    async with joined(server) as peer:
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
    """Refused, or both can be reached; never one silently instead of the other."""
    server = DeltaServer("x", disclosure="meta")
    try:
        for number, options in enumerate(CLASHES[clash]):

            async def run(number: int = number) -> int:
                return number

            server.tool(**options)(run)
    except ConfigurationError:
        return
    async with joined(server) as peer:
        names = (await peer.said("discover", detail="names")).split()
        assert len(set(names)) == len(names) == len(CLASHES[clash])
        assert {await peer.said("execute", operation=name) for name in names} == {"0", "1"}
        uris = [item["uri"] for item in (await peer.ask("resources/list"))["result"]["resources"]]
        assert len(set(uris)) == len(uris)


# discover


async def test_the_overview_has_every_operation_one_line_a_category(era):
    async with joined(circle(), era) as peer:
        told = await peer.said("discover")
    lines = dict(line.split(":") for line in told.splitlines() if ":" in line)
    assert lines["posts"].split() == ["list", "create", "delete"]
    assert lines["batch.posts"].split() == ["delete"]
    assert lines["members"].split() == ["search", "add"]
    assert "uptime" in told.splitlines()


async def test_the_overview_of_84_operations_is_within_200_tokens():
    async with joined(big(84)) as peer:
        told = await peer.said("discover")
    assert count(told) <= 200
    assert len(told.splitlines()) == 12
    assert all(any(line.startswith(f"{noun}:") for line in told.splitlines()) for noun in NOUNS)


async def test_beyond_300_operations_the_overview_has_categories_only():
    async with joined(big(301)) as peer:
        told = await peer.said("discover")
        assert all(noun in told for noun in NOUNS)
        assert not any(verb in re.findall(r"[a-z]+", told) for verb in VERBS)
        assert count(told) <= 300


async def test_an_empty_catalogue_can_be_asked():
    async with joined(DeltaServer("x", disclosure="meta")) as peer:
        for arguments in ({}, {"query": "x"}, {"detail": "full"}, {"detail": "names"}):
            assert not (await peer.use("discover", arguments)).get("isError")
        await peer.refused("execute", operation="x")
        await peer.refused("get_schema", operation="x")
        assert (await peer.read("x://operations/index"))["operations"] == {}


@pytest.mark.parametrize("category", ["posts", "/posts", "posts/", "posts."])
async def test_a_category_lists_its_operations_with_their_summaries(category, era):
    async with joined(circle(), era) as peer:
        told = (await peer.said("discover", category=category)).splitlines()
    assert told == ["posts.list: List posts", "posts.create: Create a new post", "posts.delete: Delete a post"]


@pytest.mark.parametrize("category", ["batch", "batch.posts", "batch/posts"])
async def test_a_nested_category_is_found_by_dots_and_slashes(category):
    async with joined(circle()) as peer:
        assert await peer.said("discover", category=category) == "batch.posts.delete: Delete many posts"


@pytest.mark.parametrize(("asked", "meant"), [("pots", "posts"), ("Posts", "posts"), ("membres", "members")])
async def test_an_unknown_category_is_told_with_suggestions(asked, meant, era):
    async with joined(circle(), era) as peer:
        told = await peer.refused("discover", category=asked)
    assert asked in told and meant in told


@pytest.mark.parametrize("query", ["zzzzqqq", ["zzzzqqq", "xkcdxx"], "zzzzqqq ppplll"])
async def test_nothing_found_is_said_and_no_error(query, era):
    async with joined(circle(), era) as peer:
        told = await peer.said("discover", query=query)
    assert not any(operation in told for operation in CIRCLE)
    assert "othing" in told


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("delete a post", "posts.delete"),
        ("deleting posts", "posts.delete"),
        ("create post", "posts.create"),
        ("find members by name", "members.search"),
        ("how long has the service run", "uptime"),
        ("per_page", "posts.list"),
        ("uptime", "uptime"),
    ],
)
async def test_a_search_finds_what_is_meant_first(query, meant):
    async with joined(circle()) as peer:
        told = (await peer.said("discover", query=query)).splitlines()
    assert told[0].startswith(f"{meant}(")


@pytest.mark.parametrize("form", ["id", "slashed", "name", "action category"])
async def test_a_search_for_an_operations_own_name_finds_it(form):
    async with joined(big(84)) as peer:
        for operation in sorted(ids(84)):
            category, action = operation.split(".")
            query = {
                "id": operation,
                "slashed": f"{category}/{action}",
                "name": f"{action}_{category}",
                "action category": f"{action} {category}",
            }[form]
            assert (await peer.said("discover", query=query)).startswith(f"{operation}("), query


@pytest.mark.parametrize("action", ["s3", "v2", "act3", "oauth2", "thing"])
async def test_a_short_or_odd_word_that_names_an_operation_finds_it(action):
    server = big(30)
    server.tool(name=f"storage_{action}", category="storage", action=action, summary="Keep it")(lambda: None)
    async with joined(server) as peer:
        told = await peer.said("discover", query=action)
    assert f"storage.{action}(" in told


@pytest.mark.parametrize("word", ["thing", "do", "number", "spaces"])
async def test_a_word_of_every_summary_finds_something(word):
    """`Nothing fits` would be untrue."""
    server = DeltaServer("x", disclosure="meta")
    for number in range(40):
        summary = f"Do the thing number {number} spaces"
        server.tool(name=f"t{number}", category=f"c{number % 4}", action=f"a{number}", summary=summary)(lambda: None)
    async with joined(server) as peer:
        assert "(" in (await peer.said("discover", query=word)).splitlines()[0]


async def test_a_list_of_queries_finds_something_for_each():
    async with joined(circle()) as peer:
        told = await peer.said("discover", query=["create post", "uptime", "zzzz"])
    assert "posts.create(" in told and "uptime(" in told


async def test_a_search_is_confined_to_its_category():
    async with joined(circle()) as peer:
        told = await peer.said("discover", query="delete posts", category="batch")
    assert "batch.posts.delete(" in told and "\nposts.delete" not in told and not told.startswith("posts.delete")


async def test_five_hits_cost_no_more_than_200_tokens():
    async with joined(big(84)) as peer:
        for query in ("posts", "delete", "list events", "a space"):
            told = await peer.said("discover", query=query)
            assert count(told) <= 200
            assert 1 <= sum("(" in line and line.split("(")[0] in ids(84) for line in told.splitlines()) <= 5


async def test_the_details_of_discover(era):
    async with joined(circle(), era) as peer:
        assert sorted((await peer.said("discover", detail="names")).split()) == sorted(CIRCLE)
        brief = (await peer.said("discover", detail="brief")).splitlines()
        assert "posts.list: List posts" in brief and len(brief) == len(CIRCLE)
        tree = json.loads(await peer.said("discover", detail="full"))
        assert tree["operations"]["batch"]["posts"]["delete"]["name"] == "delete_posts"
        assert tree == await peer.read("circle://operations/index")
        part = json.loads(await peer.said("discover", detail="full", category="posts"))
        assert part == await peer.read("circle://operations/posts")


@pytest.mark.parametrize("detail", ["names", "brief"])
@pytest.mark.parametrize("category", [None, "posts"])
async def test_cursors_walk_through_everything_once(detail, category, era):
    async with joined(big(900, 4), era) as peer:
        seen: list[str] = []
        arguments: dict[str, Any] = {"detail": detail} | ({"category": category} if category else {})
        for _ in range(100):
            told = await peer.said("discover", **arguments)
            assert count(told) <= 1500
            seen += [line.split(":")[0] for line in told.splitlines() if line.split(":")[0] in ids(900, 4)]
            found = re.search(r'cursor="([^"]+)"', told)
            if not found:
                break
            arguments["cursor"] = found[1]
    wanted = {name for name in ids(900, 4) if category is None or name.startswith("posts.")}
    assert len(seen) == len(set(seen)) and set(seen) == wanted


async def test_the_hits_of_a_search_can_be_paged():
    async with joined(big(84)) as peer:
        told = await peer.said("discover", query="posts")
        found = re.search(r'cursor="([^"]+)"', told)
        assert found, "seven operations match and five are shown, but nothing says that there are more"
        more = await peer.said("discover", query="posts", cursor=found[1])
        assert not {line for line in more.splitlines() if "(" in line} & set(told.splitlines()[:5])


async def test_long_and_hostile_descriptions_stay_out_of_the_index(era):
    server = DeltaServer("x", disclosure="meta")
    hostile = "Fine\u202e\u2066 words\x1b[31m\x00\u200b and\r\nposts.fake: a line of its own. " + "More words. " * 100
    server.tool(name="hostile", category="posts", action="real", description=hostile)(lambda: None)
    async with joined(server, era) as peer:
        for arguments in ({"category": "posts"}, {"detail": "brief"}, {"query": "fine words"}):
            told = await peer.said("discover", **arguments)
            assert not re.search("[\x00-\x09\x0b-\x1f\u200b\u202a-\u202e\u2066-\u2069]", told)
            assert not any(line.startswith("posts.fake") for line in told.splitlines())
            assert count(told) <= 60
        listed = str((await peer.ask("resources/list"))["result"])
        assert "\u202e" not in listed and len(listed) < 2000


# get_schema


@pytest.mark.parametrize("operation", ["posts.create", "posts/create", "create_post"])
async def test_the_signature_is_told_by_id_path_or_name(operation, era):
    async with joined(circle(), era) as peer:
        told = await peer.said("get_schema", operation=operation)
    signature, *notes = told.splitlines()
    assert signature.startswith("posts.create(") and notes == ["Create a new post"]
    assert all(word in signature for word in ("space_id:int", "name", "body?", "state?", '"draft"', '"live"'))
    assert signature.index("space_id") < signature.index("name") < signature.index("body?")


async def test_several_signatures_at_once_and_never_more_than_ten(era):
    async with joined(circle(), era) as peer:
        told = await peer.said("get_schema", operation=CIRCLE)
        assert all(f"{operation}(" in told for operation in CIRCLE)
        assert "10" in await peer.refused("get_schema", operation=["posts.list"] * 11)
        mixed = first(await peer.use("get_schema", {"operation": ["posts.list", "posts.creat"]}))
        assert "posts.list(" in mixed and "posts.create" in mixed


async def test_the_schema_is_json_and_the_same_as_the_resource(era):
    async with joined(circle(), era) as peer:
        for operation in CIRCLE:
            schema = json.loads(await peer.said("get_schema", operation=operation, detail="schema"))
            assert schema == await peer.read(f"circle://operations/{operation.replace('.', '/')}")
            assert schema["id"] == operation and schema["inputSchema"]["type"] == "object"
            assert {"id", "name", "description", "inputSchema"} <= set(schema)
            assert set(schema) <= {"id", "name", "title", "description", "inputSchema", "outputSchema"} | {
                "annotations",
                "examples",
            }
        listed = json.loads(await peer.said("get_schema", operation="posts.list", detail="schema"))
        assert listed["annotations"] == {"readOnlyHint": True} and listed["examples"] == [{"space_id": 7}]
        assert listed["name"] == "list_posts"
        found = json.loads(await peer.said("get_schema", operation="members.search", detail="schema"))
        assert set(found["outputSchema"]["properties"]) == {"name", "age"}
        both = json.loads(await peer.said("get_schema", operation=["posts.list", "uptime"], detail="schema"))
        assert [one["id"] for one in both] == ["posts.list", "uptime"]


@pytest.mark.parametrize("detail", ["notes", "full"])
async def test_examples_are_told_in_words_too(detail):
    async with joined(circle()) as peer:
        assert "7" in await peer.said("get_schema", operation="posts.list", detail=detail)


@pytest.mark.parametrize("detail", ["notes", "full", "schema"])
async def test_an_unknown_operation_is_told_with_the_nearest(detail, era):
    async with joined(circle(), era) as peer:
        for asked, meant in (
            ("posts.creat", "posts.create"),
            ("Posts.List", "posts.list"),
            ("creat_post", "posts.create"),
        ):
            assert meant in await peer.refused("get_schema", operation=asked, detail=detail)


# execute


@pytest.mark.parametrize("operation", ["posts.list", "posts/list", "list_posts"])
async def test_an_operation_runs_by_id_path_or_name(operation, era):
    async with joined(circle(), era) as peer:
        result = await peer.use("execute", {"operation": operation, "params": {"space_id": 1, "page": 2}})
    assert len(result["content"]) == 1
    assert json.loads(first(result)) == {"space": 1, "page": 2, "per_page": 10}


async def test_params_are_optional_and_structured_content_comes_through(era):
    async with joined(circle(), era) as peer:
        assert await peer.said("execute", operation="uptime") == "long"
        result = await peer.use("execute", {"operation": "members.search", "params": {"q": "Ada"}})
        assert result["structuredContent"] == {"name": "Ada", "age": 0}


REPAIRS: dict[str, dict[str, Any]] = {
    "flattened": {"operation": "posts.list", "space_id": 1, "page": 2},
    "partly flattened": {"operation": "posts.list", "params": {"space_id": 1}, "page": 2},
    "as a string": {"operation": "posts.list", "params": '{"space_id": 1, "page": 2}'},
    "twice around": {"operation": "posts.list", "params": {"params": {"space_id": 1, "page": 2}}},
    "arguments around": {"operation": "posts.list", "params": {"arguments": {"space_id": 1, "page": 2}}},
    "arguments": {"operation": "posts.list", "arguments": {"space_id": 1, "page": 2}},
    "name": {"name": "posts.list", "params": {"space_id": 1, "page": 2}},
    "both names wrong": {"name": "posts.list", "arguments": {"space_id": 1, "page": 2}},
    "arguments as a string": {"operation": "posts.list", "arguments": '{"space_id": 1, "page": 2}'},
    "name and flattened": {"name": "posts.list", "space_id": 1, "page": 2},
}


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("tool", ["execute", "query"])
async def test_a_slip_is_repaired_and_told(repair, tool, era):
    async with joined(circle(query=True), era) as peer:
        result = await peer.use(tool, REPAIRS[repair])
    assert not result.get("isError"), result
    answer, *notes = result["content"]
    assert json.loads(answer["text"]) == {"space": 1, "page": 2, "per_page": 10}
    assert len(notes) == 1 and notes[0]["type"] == "text" and notes[0]["text"]


AMBIGUOUS: dict[str, dict[str, Any]] = {
    "given twice": {"operation": "posts.list", "params": {"space_id": 1}, "space_id": 2},
    "two homes": {"operation": "posts.list", "params": {"space_id": 1}, "arguments": {"page": 2}},
    "two operations": {"operation": "posts.list", "name": "posts.create", "params": {"space_id": 1}},
    "no such parameter": {"operation": "posts.list", "params": {"space_id": 1}, "bogus": 1},
    "not an object": {"operation": "posts.list", "params": [1]},
    "not JSON": {"operation": "posts.list", "params": "space_id=1"},
    "JSON of a list": {"operation": "posts.list", "params": "[1]"},
    "a number": {"operation": "posts.list", "params": 5},
}


@pytest.mark.parametrize("slip", AMBIGUOUS)
async def test_what_is_ambiguous_is_refused_with_the_signature(slip, era):
    server = circle()
    async with joined(server, era) as peer:
        assert "posts.list(space_id:int" in await peer.refused("execute", **AMBIGUOUS[slip])
    assert server.ran == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "params",
    [
        {"params": {"q": 1}},
        {"arguments": {"q": 1}},
        {"params": {"params": {"q": 1}}},
        {"operation": "x", "params": 1},
        {"params": '{"q":1}'},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "additionalProperties": {}}], ids=str)
async def test_what_is_right_as_it_stands_is_never_repaired(params, schema):
    """An operation that takes any object may be given one with a member called `params`."""
    server = DeltaServer("x", disclosure="meta")

    @server.tool(input_schema=schema)
    async def echo(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    async with joined(server) as peer:
        result = await peer.use("execute", {"operation": "echo", "params": params})
    assert json.loads(first(result)) == params
    assert len(result["content"]) == 1


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"params": {"q": 1}}, [{"q": 1}, "o", "n"]),
        ({"params": {"params": {}}, "operation": "p"}, [{"params": {}}, "p", "n"]),
        ({"params": {}, "name": "m"}, [{}, "o", "m"]),
    ],
    ids=str,
)
async def test_parameters_may_be_called_like_the_meta_tools_own(params, expected):
    server = DeltaServer("x", disclosure="meta")

    @server.tool
    async def odd(params: dict[str, Any], operation: str = "o", name: str = "n") -> str:
        return json.dumps([params, operation, name])

    async with joined(server) as peer:
        result = await peer.use("execute", {"operation": "odd", "params": params})
    assert json.loads(first(result)) == expected and len(result["content"]) == 1


@pytest.mark.parametrize(
    ("operation", "params", "words"),
    [
        ("posts.list", {}, ["space_id", '"integer"']),
        ("posts.list", {"space_id": "x"}, ["space_id", '"integer"']),
        ("posts.create", {"space_id": 1, "name": "n", "state": "gone"}, ["state", '"draft"', '"live"']),
        ("posts.list", {"space_id": 1, "spcae": 2}, ["spcae", "space_id"]),
        ("members.add", {"member": {"name": "Ada", "age": "old"}}, ["age", '"integer"']),
        ("members.add", {"member": {"name": 5}}, ["name", '"string"']),
    ],
    ids=str,
)
async def test_wrong_params_are_told_with_the_schema_and_the_signature(operation, params, words, era):
    server = circle()
    async with joined(server, era) as peer:
        told = await peer.refused("execute", operation=operation, params=params)
    assert all(word in told for word in words)
    assert "space_id:int" in told or "member:" in told
    assert count(told) <= 200
    assert server.ran == []  # type: ignore[attr-defined]


async def test_wrong_params_are_told_under_the_id_the_model_used():
    async with joined(circle()) as peer:
        assert "posts.list(space_id:int" in await peer.refused("execute", operation="posts.list", params={})


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("posts.lst", "posts.list"),
        ("Posts.Create", "posts.create"),
        ("post.create", "posts.create"),
        ("uptme", "uptime"),
    ],
)
async def test_an_unknown_operation_brings_suggestions_and_its_category(asked, meant, era):
    async with joined(circle(query=True), era) as peer:
        for tool in ("execute", "query"):
            told = await peer.refused(tool, operation=asked, params={})
            assert asked in told and meant in told
            assert sum(operation in told for operation in CIRCLE) <= 3 + 1
        if asked.startswith("posts."):
            assert all(action in told for action in ("list", "create", "delete"))


async def test_the_meta_tools_are_no_operations():
    async with joined(circle(query=True)) as peer:
        for name in (*META_TOOLS, "query"):
            await peer.refused("execute", operation=name, params={})
            await peer.refused("get_schema", operation=name)


async def test_query_runs_only_what_says_that_it_reads(era):
    server = circle(query=True)
    async with joined(server, era) as peer:
        assert '"space":1' in await peer.said("query", operation="posts.list", params={"space_id": 1})
        for operation, params in (
            ("posts.create", {"space_id": 1, "name": "x"}),
            ("create_post", {"space_id": 1, "name": "x"}),
            ("posts/delete", {"id": 1}),
            ("members.search", {"q": "x"}),
            ("uptime", {}),
        ):
            assert "execute" in await peer.refused("query", operation=operation, params=params)
        slip = {"name": "posts.create", "space_id": 1, "params": {"name": "x"}}
        assert (await peer.use("query", slip))["isError"] is True
    assert server.ran == ["posts.list"]  # type: ignore[attr-defined]


async def test_a_failing_operation_tells_nothing_of_the_server(caplog, era):
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="a", action="boom")
    async def boom() -> None:
        raise RuntimeError("hunter2")

    async with joined(server, era) as peer:
        with caplog.at_level(logging.CRITICAL, "deltamcp"):
            assert "hunter2" not in await peer.refused("execute", operation="a.boom")


# Laws

JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        *("posts", "posts.list", "posts.delete", "create_post", "uptime", "batch/posts", "posts.", "zzz"),
        *("names", "brief", "full", "notes", "schema", "71", "0", "-1"),
        *("..", ".", "/", "", "\x00", "é" * 50, "a" * 5000, "{}", '{"space_id":1}', "["),
    ]
)
KEYS = st.sampled_from(
    [
        *("operation", "params", "arguments", "name", "query", "category", "detail", "cursor", "session_id", "page"),
        *("space_id", "id", "tool", "input", "bogus", ""),
    ]
)
ANY = st.dictionaries(
    KEYS,
    JSONS | WORDS | st.lists(WORDS, max_size=12) | st.dictionaries(KEYS, JSONS | WORDS, max_size=3),
    max_size=5,
)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TOOLS = [*META_TOOLS, "query"]


def well_formed(result: dict[str, Any]) -> None:
    assert isinstance(result["content"], list) and result["content"]
    assert all(block["type"] == "text" and isinstance(block["text"], str) for block in result["content"])
    assert set(result) <= {"content", "isError", "structuredContent", "_meta", "resultType"}
    assert "failed (error" not in first(result), "an internal error"


@pytest.mark.parametrize("tool", TOOLS)
@MANY
@given(arguments=ANY)
async def test_any_arguments_get_one_well_formed_answer(tool, arguments):
    async with joined(circle(query=True)) as peer:
        for used in (peer, Peer(peer.raw, "handshake")):
            if used.era == "handshake":
                await peer.raw.handshake()
            answer = await used.ask("tools/call", name=tool, arguments=arguments)
            assert "error" not in answer, answer
            if answer["result"].get("resultType") == "input_required":
                continue
            well_formed(answer["result"])
        await peer.ask("tools/list")
        assert [message for message in peer.raw.heard if "id" in message] == []


@st.composite
def posts(draw: st.DrawFn) -> dict[str, Any]:
    params: dict[str, Any] = {"space_id": draw(st.integers(-(2**53), 2**53)), "name": draw(st.text())}
    if draw(st.booleans()):
        params["body"] = draw(st.text() | WORDS)
    if draw(st.booleans()):
        params["state"] = draw(st.sampled_from(["draft", "live"]))
    return params


@MANY
@given(params=posts(), moved=st.sets(st.sampled_from(["space_id", "name", "body", "state"])))
async def test_however_params_are_packed_the_result_is_the_same(params, moved):
    async with joined(circle()) as peer:
        wanted = await peer.said("execute", operation="posts.create", params=params)
        assert json.loads(wanted)[:2] == [params["space_id"], params["name"]]
        packed: list[dict[str, Any]] = [
            {"operation": "posts.create", **params},
            {"operation": "posts.create", "params": json.dumps(params)},
            {"operation": "posts.create", "params": {"params": params}},
            {"operation": "posts.create", "arguments": params},
            {"operation": "posts.create", "arguments": json.dumps(params)},
            {"name": "posts.create", "params": params},
            {"name": "posts.create", "arguments": params},
            {
                "operation": "posts.create",
                "params": {key: value for key, value in params.items() if key not in moved},
                **{key: value for key, value in params.items() if key in moved},
            },
        ]
        for arguments in packed:
            assert await peer.said("execute", **arguments) == wanted
        assert await peer.said("create_post", **params) == wanted


@MANY
@given(value=st.dictionaries(st.text(max_size=10), JSONS, max_size=4))
async def test_an_operation_that_takes_anything_gets_exactly_what_was_sent(value):
    server = DeltaServer("x", disclosure="meta")

    @server.tool(input_schema={"type": "object"})
    async def echo(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    async with joined(server) as peer:
        assert json.loads(await peer.said("execute", operation="echo", params=value)) == value


@MANY
@given(
    path=st.text(max_size=30) | st.lists(WORDS, max_size=4).map("/".join), era=st.sampled_from(["handshake", "modern"])
)
async def test_any_address_is_read_or_refused_cleanly(path, era):
    async with joined(circle(), era) as peer:
        answer = await peer.ask("resources/read", uri=f"circle://operations/{path}")
    if "error" in answer:
        assert answer["error"]["code"] == (-32602 if era == "modern" else -32002) or answer["error"]["code"] == -32602
        assert answer["error"]["message"]
    else:
        assert json.loads(answer["result"]["contents"][0]["text"])


@MANY
@given(query=st.text(max_size=60) | st.lists(st.text(max_size=20), max_size=10))
async def test_any_search_is_answered_within_its_budget(query):
    async with joined(circle()) as peer:
        assert count(await peer.said("discover", query=query)) <= 200


# Pages of long results


def pager(**policy: Any) -> DeltaServer:
    server = DeltaServer("x", disclosure="meta", results=ResultPolicy(**policy) if policy else None)

    @server.tool(category="texts", action="make", input_schema={"type": "object"})
    async def make(arguments: dict[str, Any]) -> str:
        return str(arguments["text"]) * int(arguments.get("times", 1))

    @server.tool(category="texts", action="rows")
    async def rows(number: int) -> dict[str, Any]:
        return {"data": [{"id": index, "title": f"title {index}"} for index in range(number)], "total": number}

    return server


ON = re.compile(r"offset=(\d+)")


async def pages(peer: Peer, operation: str, params: dict[str, Any]) -> list[str]:
    """The texts of all pages, read forwards, each as the one before says."""
    result = await peer.use("execute", {"operation": operation, "params": params})
    found = [first(result)]
    handle = re.search(r'handle="([^"]+)"', text_of(result))
    while handle and (on := ON.search(result["content"][1]["text"])):
        result = await peer.use("continue", {"handle": handle[1], "offset": int(on[1])})
        assert not result.get("isError"), result
        found.append(first(result))
    return found


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", json.dumps(block)) for block in result["content"])


LONG = {
    "words": ("word " * 9 + "\n", 4000),
    "no line ends": ("word ", 40_000),
    "no spaces": ("xyz", 60_000),
    "two bytes": ("é", 60_000),
    "emoji families": ("👩‍👩‍👧‍👦🏳️‍🌈", 6000),
    "another script": ("日本語のテキスト。", 8000),
    "a rare script": ("𒀀", 7000),
    "empty lines": ("a\n\n", 30_000),
    "line ends": ("a\r\n", 30_000),
}


@pytest.mark.parametrize("sort", LONG)
async def test_the_pages_of_a_long_text_make_up_the_text(sort):
    text, times = LONG[sort]
    assert count(text * times) > 20_000
    async with joined(pager()) as peer:
        found = await pages(peer, "texts.make", {"text": text, "times": times})
    assert "".join(found) == text * times
    assert len(found) > 1 and all(found)
    assert all(count(page) <= 20_000 for page in found)


async def test_a_long_json_result_is_paged_and_made_up_again(era):
    async with joined(pager(max_tokens=1000), era) as peer:
        first_page, *others = [decode(page) for page in await pages(peer, "texts.rows", {"number": 4000})]
    assert first_page["total"] == 4000 and others
    assert first_page["data"] + [row for page in others for row in page] == [
        {"id": n, "title": f"title {n}"} for n in range(4000)
    ]


async def test_what_is_not_long_comes_whole(era):
    async with joined(pager(), era) as peer:
        result = await peer.use("execute", {"operation": "texts.make", "params": {"text": "word ", "times": 18_000}})
        assert first(result) == "word " * 18_000 and len(result["content"]) == 1


@MANY
@given(text=st.text(max_size=600) | st.text("a \n\té👩‍", max_size=1500))
async def test_any_text_is_made_up_of_its_pages(text):
    async with joined(pager(max_tokens=60)) as peer:
        found = await pages(peer, "texts.make", {"text": text})
    assert "".join(found) == text
    assert len(found) == 1 or all(found)
    assert len(found) == 1 or all(count(page) <= 60 for page in found)


async def test_pages_can_be_read_again_in_any_order_and_past_the_last_is_refused(era):
    async with joined(pager(max_tokens=60), era) as peer:
        result = await peer.use("execute", {"operation": "texts.make", "params": {"text": "some words ", "times": 60}})
        found = re.search(r'handle="([^"]+)"', text_of(result))
        assert found
        handle, again, last = found[1], [first(result)], 1
        while True:
            result = await peer.use("continue", {"session_id": handle, "page": last + 1})
            if result.get("isError"):
                break
            again.append(first(result))
            last += 1
        assert "".join(again) == "some words " * 60
        assert first(await peer.use("continue", {"handle": handle, "page": 3})) == again[2]
        beyond: list[Any] = [0, -1, last + 1, 10**20, 1.5, "x", [], True]
        for page in beyond:
            assert await peer.refused("continue", handle=handle, page=page)
        assert f"1 to {last}" in await peer.refused("continue", handle=handle, page=last + 1)
        assert "again" in await peer.refused("continue", handle=handle[:-1] + "~")
    async with joined(pager()) as peer:
        assert await peer.refused("continue", handle=handle)


async def test_without_a_page_continue_reads_on_from_the_first():
    async with joined(pager(max_tokens=60)) as peer:
        result = await peer.use("execute", {"operation": "texts.make", "params": {"text": "some words ", "times": 60}})
        begun, name = first(result), re.search(r'handle="([^"]+)"', text_of(result))
        assert name
        assert ("some words " * 60).startswith(begun + first(await peer.use("continue", {"handle": name[1]})))


# Resources


async def test_the_resources_are_the_tree(era):
    async with joined(circle(), era) as peer:
        listed = (await peer.ask("resources/list"))["result"]["resources"]
        uris = [item["uri"] for item in listed]
        assert uris[0] == "circle://operations/index"
        categories = {f"circle://operations/{path}" for path in ("posts", "batch", "batch/posts", "members")}
        assert set(uris[1:]) == categories | {f"circle://operations/{name.replace('.', '/')}" for name in CIRCLE}
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
    async with joined(circle()) as peer:
        for method, params in (("resources/list", {}), ("resources/read", {"uri": "circle://operations/index"})):
            result = (await peer.ask(method, **params))["result"]
            assert result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private")


@pytest.mark.parametrize("operations", [150, 500])
async def test_the_list_of_resources_has_pages_of_at_most_100(operations, era):
    async with joined(big(operations), era) as peer:
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
    async with joined(big(501), era) as peer:
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
    async with joined(circle(), "modern" if modern else "handshake", version) as peer:
        error = (await peer.ask("resources/read", uri=f"circle://operations/{path}"))["error"]
    assert error["code"] == (-32602 if modern else -32002)
    assert "posts" in error["message"].partition("Did you mean")[2]


async def test_suggestions_for_an_address_are_addresses():
    """Whoever reads resources cannot read `posts.list`."""
    async with joined(circle()) as peer:
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
    async with joined(circle(), era) as peer:
        answer = await peer.ask("resources/read", uri=f"circle://operations/{path}")
    assert answer["error"]["code"] in (-32602, -32002)


async def test_percent_signs_are_decoded(era):
    async with joined(circle(), era) as peer:
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
    async with joined(big(3, disclosure=Disclosure("meta", **options)), era) as peer:
        assert set((await peer.read(f"{scheme}://operations/index"))["operations"]) == {"posts", "members", "events"}


async def test_the_servers_own_resources_stay_beside_the_operations(era):
    server = circle()

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    @server.resource("note://one")
    async def one() -> str:
        return "1"

    async with joined(server, era) as peer:
        uris = [item["uri"] for item in (await peer.ask("resources/list"))["result"]["resources"]]
        assert {"note://one", "circle://operations/index"} <= set(uris)
        read = await peer.ask("resources/read", uri="note://two")
        assert read["result"]["contents"][0]["text"] == "two"
        assert (await peer.read("circle://operations/posts/list"))["id"] == "posts.list"


# Changes


async def test_a_tool_added_while_running_is_found_and_announced(era):
    server = circle()
    async with joined(server, "handshake") as peer:
        await peer.ask("ping")

        @server.tool(category="polls", action="open", pinned=True)
        async def open_poll() -> str:
            """Open a poll"""
            return "opened"

        assert (await peer.raw.next_heard())["method"].endswith("list_changed")
        assert "polls: open" in await peer.said("discover")
        assert (await peer.said("discover", query="open a poll")).startswith("polls.open(")
        assert "open_poll" in await peer.names()
        assert "polls" in (await peer.tools())[0]["description"]
        assert (await peer.read("circle://operations/polls/open"))["name"] == "open_poll"
        server.remove_tool("open_poll")
        assert "polls" not in await peer.said("discover")
        assert "polls" not in await peer.said("discover", query="open a poll")
        await peer.refused("execute", operation="polls.open")


# Scopes


def scoped() -> DeltaServer:
    server = DeltaServer("sec", disclosure=Disclosure("meta", query=True))
    hints = {"readOnlyHint": True}

    @server.tool(category="doors", action="open", annotations=hints)
    async def open_door() -> str:
        return "opened"

    @server.tool(category="doors", action="lock", scopes=["a"], annotations=hints)
    async def lock_door() -> str:
        return "locked"

    @server.tool(category="vault", action="open", scopes=["a", "b"], pinned=True, annotations=hints)
    async def open_vault() -> str:
        return "the vault"

    return server


CALLERS = {
    "anonymous": (ANONYMOUS, {"doors.open"}),
    "half": (Principal("half", frozenset({"a"})), {"doors.open", "doors.lock"}),
    "other": (Principal("other", frozenset({"b", "c"})), {"doors.open"}),
    "all": (Principal("all", frozenset({"a", "b", "c"})), {"doors.open", "doors.lock", "vault.open"}),
}
FLAT = {"doors.open": "open_door", "doors.lock": "lock_door", "vault.open": "open_vault"}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("era_of", [Era.HANDSHAKE, Era.MODERN])
async def test_what_a_caller_may_not_use_does_not_exist(caller, era_of):
    principal, allowed = CALLERS[caller]
    hidden = set(FLAT) - allowed
    server = scoped()
    version = "2026-07-28" if era_of is Era.MODERN else "2025-11-25"
    terms = Terms(era_of, version, {}, {}, {}, principal=principal)

    async def perform(ask: Any) -> Any:
        outcome = await server.engine.perform(ask, terms, None, 1)  # type: ignore[arg-type]
        return outcome.value if isinstance(outcome, Answer) else outcome

    async def said(name: str, **arguments: Any) -> str:
        return str((await perform(CallTool(name, arguments))).content[0].text)

    async with connected(server):
        page = await perform(ListItems(Kind.TOOLS))
        assert isinstance(page, Page) and page.public is False
        assert ("open_vault" in [item["name"] for item in page.items]) == ("vault.open" in allowed)
        assert ("vault" in page.items[0]["description"]) == ("vault.open" in allowed)
        listed = await perform(ListItems(Kind.RESOURCES))
        shown = [str(listed.items), (await perform(ReadResource("sec://operations/index"))).items[0].text]
        shown += [await said("discover"), await said("discover", detail="names"), await said("discover", detail="full")]
        shown += [await said("discover", query="open lock vault doors"), await said("discover", query="vault")]
        shown += [await said("execute", operation="vault.opne"), await said("get_schema", operation="vault.opne")]
        shown += [await said("execute", operation="doors.lokc"), await said("discover", category="vualt")]
        shown += [
            str(await perform(ReadResource("sec://operations/vualt"))),
            str(await perform(CallTool("open_valt", {}))),
        ]
        for operation in hidden:
            category, action = operation.split(".")
            assert not any(FLAT[operation] in text.replace("open_valt", "") for text in shown)
            assert not any(operation in text for text in shown)
            for used in (operation, FLAT[operation], f"{category}/{action}"):
                for tool in ("execute", "query", "get_schema"):
                    refused = await perform(CallTool(tool, {"operation": used}))
                    missing = await perform(CallTool(tool, {"operation": "zz.zz"}))
                    assert refused.is_error and missing.is_error
                    assert refused.content[0].text.startswith(f"There is no operation '{used}'")
            assert isinstance(await perform(CallTool(FLAT[operation], {})), Failure)
            assert isinstance(await perform(ReadResource(f"sec://operations/{category}/{action}")), Failure)
        for operation in allowed:
            assert not (await perform(CallTool("execute", {"operation": operation}))).is_error
            assert not (await perform(CallTool("get_schema", {"operation": operation}))).is_error
            assert not (await perform(CallTool(FLAT[operation], {}))).is_error
            assert operation in shown[3]
            read = await perform(ReadResource(f"sec://operations/{operation.replace('.', '/')}"))
            assert json.loads(read.items[0].text)["id"] == operation
        assert isinstance(await perform(ReadResource("sec://operations/vault")), Failure) == ("vault.open" in hidden)


async def test_lists_that_depend_on_the_caller_are_not_for_shared_caches():
    async with joined(scoped()) as peer:
        for method in ("tools/list", "resources/list"):
            assert (await peer.ask(method))["result"]["cacheScope"] == "private"
        read = await peer.ask("resources/read", uri="sec://operations/index")
        assert read["result"]["cacheScope"] == "private"


async def test_pages_of_one_caller_are_not_for_another():
    server = pager(max_tokens=60)
    owner, thief = (
        Terms(Era.MODERN, "2026-07-28", {}, {}, {}, principal=Principal(name)) for name in ("owner", "thief")
    )
    call = CallTool("execute", {"operation": "texts.make", "params": {"text": "secret word ", "times": 60}})
    async with connected(server):
        outcome: Any = await server.engine.perform(call, owner, None, 1)  # type: ignore[arg-type]
        match = re.search(r'handle="([^"]+)"', outcome.value.content[1].text)
        assert match
        read = CallTool("continue", {"handle": match[1], "page": 2})
        theirs: Any = await server.engine.perform(read, thief, None, 2)  # type: ignore[arg-type]
        assert theirs.value.is_error and "secret" not in theirs.value.content[0].text
        own: Any = await server.engine.perform(read, owner, None, 3)  # type: ignore[arg-type]
        assert not own.value.is_error and "secret" in own.value.content[0].text


# Policy

CALLS_TO_DELETE: dict[str, tuple[str, dict[str, Any]]] = {
    "execute": ("execute", {"operation": "posts.delete", "params": {"id": 7}}),
    "execute by name": ("execute", {"operation": "delete_post", "params": {"id": 7}}),
    "execute repaired": ("execute", {"name": "posts.delete", "id": 7}),
    "flat": ("delete_post", {"id": 7}),
}


@pytest.mark.parametrize("way", CALLS_TO_DELETE)
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_an_operation_to_be_confirmed_runs_only_when_the_user_accepts(way, action, era):
    server = circle()
    async with joined(server, era) as peer:
        question, result = await peer.answered(action, *CALLS_TO_DELETE[way])
    assert "posts.delete" in question and "7" in question
    if action == "accept":
        assert first(result) == "deleted 7" and not result.get("isError")
        assert server.ran == [("posts.delete", 7)]  # type: ignore[attr-defined]
    else:
        assert result["isError"] is True
        assert server.ran == []  # type: ignore[attr-defined]


async def test_wrong_params_are_refused_before_the_user_is_asked(era):
    async with joined(circle(), era) as peer:
        assert "integer" in await peer.refused("execute", operation="posts.delete", params={"id": "x"})
        assert "integer" in await peer.refused("delete_post", id="x")


async def test_consent_to_one_call_is_none_to_another():
    server = circle()
    async with joined(server) as peer:
        asked = (await peer.ask("tools/call", name="execute", arguments=CALLS_TO_DELETE["execute"][1]))["result"]
        [key] = asked["inputRequests"]
        replayed = await peer.ask(
            "tools/call",
            name="execute",
            arguments={"operation": "posts.delete", "params": {"id": 8}},
            inputResponses={key: {"action": "accept", "content": {}}},
            requestState=asked["requestState"],
        )
        assert "error" in replayed or replayed["result"].get("resultType") == "input_required"
    assert server.ran == []  # type: ignore[attr-defined]


async def test_who_cannot_be_asked_cannot_confirm():
    server = circle()
    async with connected(server) as raw:
        await raw.handshake()
        arguments = {"operation": "posts.delete", "params": {"id": 7}}
        assert (await raw.call("tools/call", name="execute", arguments=arguments))["result"]["isError"] is True
        bare = {**META, "io.modelcontextprotocol/clientCapabilities": {}}
        refused = await raw.call("tools/call", name="execute", arguments=arguments, _meta=bare)
        assert "error" in refused or refused["result"]["isError"] is True
    assert server.ran == []  # type: ignore[attr-defined]


# auto


@pytest.mark.parametrize("operations", [0, 1, 2, 3, 4, 5, 6, 8, 12, 30, 100, 600])
async def test_auto_shows_what_costs_less(operations):
    server = big(operations, disclosure="auto")
    costs = server.costs
    async with joined(server) as peer:
        meta = "discover" in await peer.names()
        full = size([{"description": "", **tool} for tool in await peer.tools()]) if not meta else 0
    assert meta == (str(getattr(costs.cheaper, "value", costs.cheaper)) == "meta")
    if operations <= 2:
        assert not meta
    if operations >= 30:
        assert meta and costs.meta < costs.full and costs.break_even > 0
    if not meta and operations:
        assert abs(full - costs.full) <= 0.3 * full + 20
    assert costs.overview <= 300


async def test_costs_are_what_is_measured():
    server = big(84)
    async with joined(server) as peer:
        assert abs(server.costs.meta - size(await peer.tools())) <= 5
        assert abs(server.costs.overview - count(await peer.said("discover"))) <= 5
    shown = big(84, disclosure="full")
    async with joined(shown) as peer:
        tools = [{"description": "", **tool} for tool in await peer.tools()]
        assert abs(server.costs.full - size(tools)) <= 0.1 * size(tools)


async def test_auto_changes_over_as_the_catalogue_grows(era):
    server = big(2, disclosure="auto")
    async with joined(server, era) as peer:
        assert "discover" not in await peer.names()
        for number in range(60):
            server.tool(name=f"more{number}", category="more", action=f"more{number}")(lambda: "more")
        assert await peer.names() == META_TOOLS
        assert await peer.said("execute", operation="more.more3") == "more"
        for number in range(60):
            server.remove_tool(f"more{number}")
        assert len(await peer.names()) == 2


async def test_under_auto_a_tool_never_takes_a_meta_tools_name():
    server = DeltaServer("x", disclosure="auto")
    with pytest.raises(ConfigurationError):
        server.tool(name="execute")(lambda: None)


# Audit


@pytest.fixture
def audit(caplog) -> Iterator[Any]:
    with caplog.at_level(logging.INFO, "deltamcp.calls.call_log"):
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "deltamcp.calls.call_log"]


async def test_every_call_leaves_a_line_without_its_arguments(audit, era):
    async with joined(circle(), era) as peer:
        await peer.said("execute", operation="posts.create", params={"space_id": 1, "name": "hunter2"})
        await peer.said("create_post", space_id=1, name="hunter2")
        await peer.said("execute", operation="create_post", space_id=1, name="hunter3")
        await peer.refused("execute", operation="posts.create", params={"space_id": "hunter2"})
        await peer.answered("decline", "execute", {"operation": "posts.delete", "params": {"id": 7654321}})
    lines = audit()
    created = [line for line in lines if "posts.create" in line]
    assert len(created) == 4 and any("posts.delete" in line for line in lines)
    assert all("local" in line and "ms" in line for line in lines)
    assert not any("hunter" in line or "7654321" in line for line in lines)
    hashes = [re.search(r"\b[0-9a-f]{12,64}\b", line) for line in created]
    assert all(hashes)
    assert hashes[0][0] == hashes[1][0] != hashes[2][0]  # type: ignore[index]
    assert created[0].split("ms")[0] != created[3].split("ms")[0]


async def test_a_call_of_what_is_not_there_leaves_a_line_too(audit):
    async with joined(scoped()) as peer:
        await peer.refused("execute", operation="vault.open")
    assert len(audit()) == 1


async def test_a_line_cannot_be_forged(audit):
    async with joined(circle()) as peer:
        await peer.refused("execute", operation="x\nINFO:deltamcp.audit:operation=posts.delete outcome=done")
        await peer.refused("execute", operation="posts.list", params={"x\noperation=fake": 1})
    assert not any("\n" in line for line in audit())


# Search by meaning


def meaning(texts: list[str]) -> list[list[float]]:
    return [[1.0, 0.1] if re.search("delete|obliterate", text.lower()) else [0.1, 1.0] for text in texts]


async def later(texts: list[str]) -> list[list[float]]:
    return meaning(texts)


@pytest.mark.parametrize("embedder", [meaning, later])
async def test_an_embedder_finds_what_words_do_not(embedder, era):
    plain, clever = big(84), big(84, embedder=embedder)
    async with joined(plain, era) as peer:
        assert ".delete" not in await peer.said("discover", query="obliterate")
    async with joined(clever, era) as peer:
        assert ".delete(" in (await peer.said("discover", query="obliterate")).splitlines()[0]


def raises(texts: list[str]) -> list[list[float]]:
    raise RuntimeError("no model")


FAILING: dict[str, Any] = {
    "raises": raises,
    "too few": lambda texts: [[1.0]] * (len(texts) - 1),
    "nothing": lambda texts: None,
    "not numbers": lambda texts: [["x"]] * len(texts),
    "not vectors": lambda texts: [1.0] * len(texts),
    "nan": lambda texts: [[float("nan"), 1.0]] * len(texts),
    "empty vectors": lambda texts: [[]] * len(texts),
    "zeros": lambda texts: [[0.0, 0.0]] * len(texts),
    "ragged": lambda texts: [[1.0] * (1 + number % 3) for number in range(len(texts))],
}


@pytest.mark.parametrize("failure", FAILING)
async def test_a_failing_embedder_leaves_the_search_by_words(failure, caplog):
    with caplog.at_level(logging.CRITICAL, "deltamcp"):
        async with joined(big(84, embedder=FAILING[failure])) as peer:
            for _ in range(2):
                assert "posts.delete(" in await peer.said("discover", query="delete posts")


# The official client


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_official_client_goes_the_whole_way(mode):
    server = circle(prefix="circle")
    async with Client(in_process(server), mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [*(f"circle_{name}" for name in META_TOOLS), "search_members"]
        found: Any = await client.call_tool("circle_discover", {"query": "create a post"})
        assert found.content[0].text.startswith("posts.create(")
        shown: Any = await client.call_tool("circle_get_schema", {"operation": "posts.create"})
        assert "space_id:int" in shown.content[0].text
        params = {"space_id": 1, "name": "x"}
        done: Any = await client.call_tool("circle_execute", {"operation": "posts.create", "params": params})
        assert json.loads(done.content[0].text) == [1, "x", "", "draft"]
        flat: Any = await client.call_tool("create_post", params)
        assert flat.content[0].text == done.content[0].text
        read: Any = await client.read_resource("circle://operations/posts/create")
        assert json.loads(read.contents[0].text)["id"] == "posts.create"
        wrong: Any = await client.call_tool("circle_execute", {"operation": "posts.crate"})
        assert wrong.is_error and "posts.create" in wrong.content[0].text
