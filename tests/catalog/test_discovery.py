"""The answers of `discover` and `get_schema`."""

import json
import logging
import re
from typing import Any

import pytest
from rapidfuzz import process

from deltamcp import Context, DeltaServer
from deltamcp.catalog import discovery
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.directory import Directory
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.search.words import terms
from deltamcp.catalog.view import FoundOperation, View
from deltamcp.errors import UsageError
from deltamcp.tokens import count
from deltamcp.work import Work, WorkLimitError
from tests.support.meta_tools import (
    COMMUNITY_IDS,
    NOUNS,
    VERBS,
    community_server,
    first_block_text,
    large_ids,
    large_server,
    meta_tool_client,
)

# discover


async def test_the_overview_has_every_operation_one_line_a_category(era):
    async with meta_tool_client(community_server(), era) as peer:
        told = await peer.text_of("discover")
    lines = dict(line.split(":") for line in told.splitlines() if ":" in line)
    assert lines["posts"].split() == ["list", "create", "delete"]
    assert lines["batch.posts"].split() == ["delete"]
    assert lines["members"].split() == ["search", "add"]
    assert "uptime" in told.splitlines()


async def test_the_overview_of_84_operations_is_within_200_tokens():
    async with meta_tool_client(large_server(84)) as peer:
        told = await peer.text_of("discover")
    assert count(told) <= 200
    assert len(told.splitlines()) == 12
    assert all(any(line.startswith(f"{noun}:") for line in told.splitlines()) for noun in NOUNS)


async def test_beyond_300_operations_the_overview_has_categories_only():
    async with meta_tool_client(large_server(301)) as peer:
        told = await peer.text_of("discover")
        assert all(noun in told for noun in NOUNS)
        assert not any(verb in re.findall(r"[a-z]+", told) for verb in VERBS)
        assert count(told) <= 300


async def test_an_empty_catalog_can_be_asked():
    async with meta_tool_client(DeltaServer("x", disclosure="meta")) as peer:
        for arguments in ({}, {"query": "x"}, {"detail": "full"}, {"detail": "names"}):
            assert not (await peer.use("discover", arguments)).get("isError")
        await peer.refusal_of("execute", operation="x")
        await peer.refusal_of("get_schema", operation="x")
        assert (await peer.read("x://operations/index"))["operations"] == {}


@pytest.mark.parametrize("category", ["posts", "/posts", "posts/", "posts."])
async def test_a_category_lists_its_operations_with_their_summaries(category, era):
    async with meta_tool_client(community_server(), era) as peer:
        told = (await peer.text_of("discover", category=category)).splitlines()
    assert told == ["posts.list: List posts", "posts.create: Create a new post", "posts.delete: Delete a post"]


@pytest.mark.parametrize("category", ["batch", "batch.posts", "batch/posts"])
async def test_a_nested_category_is_found_by_dots_and_slashes(category):
    async with meta_tool_client(community_server()) as peer:
        assert await peer.text_of("discover", category=category) == "batch.posts.delete: Delete many posts"


@pytest.mark.parametrize(("asked", "meant"), [("pots", "posts"), ("Posts", "posts"), ("membres", "members")])
async def test_an_unknown_category_is_told_with_suggestions(asked, meant, era):
    async with meta_tool_client(community_server(), era) as peer:
        told = await peer.refusal_of("discover", category=asked)
    assert asked in told and meant in told


@pytest.mark.parametrize("query", ["zzzzqqq", ["zzzzqqq", "xkcdxx"], "zzzzqqq ppplll"])
async def test_nothing_found_is_said_and_no_error(query, era):
    async with meta_tool_client(community_server(), era) as peer:
        told = await peer.text_of("discover", query=query)
    assert not any(operation in told for operation in COMMUNITY_IDS)
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
    async with meta_tool_client(community_server()) as peer:
        told = (await peer.text_of("discover", query=query)).splitlines()
    assert told[0].startswith(f"{meant}(")


@pytest.mark.parametrize("form", ["id", "slashed", "name", "action category"])
async def test_a_search_for_an_operations_own_name_finds_it(form):
    async with meta_tool_client(large_server(84)) as peer:
        for operation in sorted(large_ids(84)):
            category, action = operation.split(".")
            query = {
                "id": operation,
                "slashed": f"{category}/{action}",
                "name": f"{action}_{category}",
                "action category": f"{action} {category}",
            }[form]
            assert (await peer.text_of("discover", query=query)).startswith(f"{operation}("), query


@pytest.mark.parametrize("action", ["s3", "v2", "act3", "oauth2", "thing"])
async def test_a_short_or_odd_word_that_names_an_operation_finds_it(action):
    server = large_server(30)
    server.tool(name=f"storage_{action}", category="storage", action=action, summary="Keep it")(lambda: None)
    async with meta_tool_client(server) as peer:
        told = await peer.text_of("discover", query=action)
    assert f"storage.{action}(" in told


@pytest.mark.parametrize("word", ["thing", "do", "number", "spaces"])
async def test_a_word_of_every_summary_finds_something(word):
    """The answer `Nothing fits` would be false."""
    server = DeltaServer("x", disclosure="meta")
    for number in range(40):
        summary = f"Do the thing number {number} spaces"
        server.tool(name=f"t{number}", category=f"c{number % 4}", action=f"a{number}", summary=summary)(lambda: None)
    async with meta_tool_client(server) as peer:
        assert "(" in (await peer.text_of("discover", query=word)).splitlines()[0]


def by_heading(reply: str) -> dict[str, list[str]]:
    """The lines under each query of a reply; its last lines, which belong to no query, are under the last."""
    found: dict[str, list[str]] = {}
    for line in reply.splitlines():
        if line.startswith('"'):
            query, end = json.JSONDecoder().raw_decode(line)
            assert line[end] == ":"
            found[query] = [line[end + 2 :]] if line[end + 2 :] else []
        else:
            found[list(found)[-1]].append(line)
    return found


async def test_several_queries_are_answered_under_a_heading_each(era):
    async with meta_tool_client(community_server(), era) as peer:
        told = by_heading(await peer.text_of("discover", query=["create post", "uptime", "zzzz", "delete posts"]))
    assert list(told) == ["create post", "uptime", "zzzz", "delete posts"]
    assert told["create post"][0].startswith("posts.create(")
    assert told["uptime"] == ["uptime(): How long the service has run"]
    assert told["zzzz"] == ["nothing fits."]
    assert {line.partition("(")[0] for line in told["delete posts"][:2]} == {"posts.delete", "batch.posts.delete"}


@pytest.mark.parametrize("count_of_queries", [2, 4, 10])
async def test_queries_do_not_displace_each_others_hits(count_of_queries):
    queries = [f"{verb} {noun}" for verb in VERBS for noun in NOUNS][:: 84 // count_of_queries][:count_of_queries]
    async with meta_tool_client(large_server(84)) as peer:
        told = by_heading(reply := await peer.text_of("discover", query=queries))
        for query in queries:
            verb, noun = query.split()
            alone = (await peer.text_of("discover", query=query)).splitlines()
            assert alone[0].startswith(f"{noun}.{verb}(")
            assert told[query][0] in (alone[0], f"{noun}.{verb} (above)")
    assert count(reply) <= 130 * count_of_queries


async def test_a_hit_that_stands_under_an_earlier_query_is_named_only():
    async with meta_tool_client(community_server()) as peer:
        told = by_heading(await peer.text_of("discover", query=["uptime", "how long has the service run"]))
    assert told["how long has the service run"] == ["uptime (above)"]


async def test_a_query_that_is_sent_twice_is_answered_once():
    async with meta_tool_client(community_server()) as peer:
        assert await peer.text_of("discover", query=["uptime", " uptime"]) == "uptime(): How long the service has run"


async def test_a_heading_is_one_line_and_repeats_no_long_query():
    query = 'uptime\n"posts.fake(): ' + "words " * 100
    async with meta_tool_client(community_server()) as peer:
        first, *_ = (await peer.text_of("discover", query=[query, "create post"])).splitlines()
    assert first.startswith('"uptime\\n\\"posts.fake') and len(first) < 100


async def test_one_good_hit_is_one_line_without_a_footer(era):
    async with meta_tool_client(community_server(), era) as peer:
        for query in ("uptime", "members.add", "how long has the service run"):
            assert len((await peer.text_of("discover", query=query)).splitlines()) == 1


async def test_a_weak_match_is_marked():
    server = DeltaServer("x", disclosure="meta")
    for name, description in {
        "create_event": "Create an event in a calendar of the team",
        "list_tides": "List the tides of a harbour",
        "ship_crate": "Ship a crate to a harbour. Needs a berth",
    }.items():
        server.tool(name=name, description=description)(lambda: None)
    async with meta_tool_client(server) as peer:
        told = await peer.text_of("discover", query="tides at the harbour when the crew wants a calendar for its yacht")
        assert told.splitlines() == ["list_tides(): List the tides of a harbour", "Weaker: create_event"]
        told = await peer.text_of("discover", query="salesforce opportunity forecast of the sales team")
        first, *hits = told.splitlines()
        assert first == 'Nothing is named "salesforce"; only weak matches:' and hits[0].startswith("create_event(")
        both = by_heading(await peer.text_of("discover", query=["tides", "salesforce opportunity of the sales team"]))
        assert both["salesforce opportunity of the sales team"][0] == first
        told = await peer.text_of("discover", query="crew of opportunity forecast of the sales team")
        assert told.splitlines()[0] == "No good match, only weak ones:"


def test_a_weak_first_hit_does_not_hide_that_the_second_is_good():
    view = community_server().engine.catalog.view()
    first, second = view.operations["uptime"], view.operations["add_member"]
    hits = {"x": [FoundOperation(first, is_weak=True), FoundOperation(second, is_weak=False)]}
    shown = discovery.hits_text(view, hits, discovery.parse_discover_arguments({"query": "x", "detail": "names"}))
    assert shown.splitlines() == ["members.add", "Weaker: uptime"]


async def test_a_search_is_confined_to_its_category():
    async with meta_tool_client(community_server()) as peer:
        told = await peer.text_of("discover", query="delete posts", category="batch")
    assert "batch.posts.delete(" in told and "\nposts.delete" not in told and not told.startswith("posts.delete")


async def test_five_hits_cost_no_more_than_200_tokens():
    async with meta_tool_client(large_server(84)) as peer:
        for query in ("posts", "delete", "list events", "a space"):
            told = await peer.text_of("discover", query=query)
            assert count(told) <= 200
            assert 1 <= sum("(" in line and line.split("(")[0] in large_ids(84) for line in told.splitlines()) <= 5


async def test_the_details_of_discover(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert sorted((await peer.text_of("discover", detail="names")).split()) == sorted(COMMUNITY_IDS)
        brief = (await peer.text_of("discover", detail="brief")).splitlines()
        assert "posts.list: List posts" in brief and len(brief) == len(COMMUNITY_IDS)
        tree = json.loads(await peer.text_of("discover", detail="full"))
        assert tree["operations"]["batch"]["posts"]["delete"]["name"] == "delete_posts"
        assert tree == await peer.read("circle://operations/index")
        part = json.loads(await peer.text_of("discover", detail="full", category="posts"))
        assert part == await peer.read("circle://operations/posts")


@pytest.mark.parametrize("detail", ["names", "brief"])
@pytest.mark.parametrize("category", [None, "posts"])
async def test_cursors_walk_through_everything_once(detail, category, era):
    async with meta_tool_client(large_server(900, 4), era) as peer:
        seen: list[str] = []
        arguments: dict[str, Any] = {"detail": detail} | ({"category": category} if category else {})
        for _ in range(100):
            told = await peer.text_of("discover", **arguments)
            assert count(told) <= 1500
            seen += [line.split(":")[0] for line in told.splitlines() if line.split(":")[0] in large_ids(900, 4)]
            found = re.search(r'cursor="([^"]+)"', told)
            if not found:
                break
            arguments["cursor"] = found[1]
    wanted = {name for name in large_ids(900, 4) if category is None or name.startswith("posts.")}
    assert len(seen) == len(set(seen)) and set(seen) == wanted


async def test_the_hits_of_a_search_can_be_paged():
    async with meta_tool_client(large_server(84)) as peer:
        told = await peer.text_of("discover", query="posts")
        found = re.search(r'cursor="([^"]+)"', told)
        assert found, "seven operations match and five are shown, but nothing says that there are more"
        more = await peer.text_of("discover", query="posts", cursor=found[1])
        assert not {line for line in more.splitlines() if "(" in line} & set(told.splitlines()[:5])
        assert "cursor" not in more


async def test_a_cursor_goes_on_in_one_query():
    async with meta_tool_client(large_server(84)) as peer:
        told = await peer.text_of("discover", query=["posts", "uptime of events"])
        assert 'alone with cursor="5"' in told
        assert "alone" in await peer.refusal_of("discover", query=["posts", "events"], cursor="5")


async def test_long_and_hostile_descriptions_stay_out_of_the_index(era):
    server = DeltaServer("x", disclosure="meta")
    hostile = "Fine\u202e\u2066 words\x1b[31m\x00\u200b and\r\nposts.fake: a line of its own. " + "More words. " * 100
    server.tool(name="hostile", category="posts", action="real", description=hostile)(lambda: None)
    async with meta_tool_client(server, era) as peer:
        for arguments in ({"category": "posts"}, {"detail": "brief"}, {"query": "fine words"}):
            told = await peer.text_of("discover", **arguments)
            assert not re.search("[\x00-\x09\x0b-\x1f\u200b\u202a-\u202e\u2066-\u2069]", told)
            assert not any(line.startswith("posts.fake") for line in told.splitlines())
            assert count(told) <= 60
        listed = str((await peer.ask("resources/list"))["result"])
        assert "\u202e" not in listed and len(listed) < 2000


# get_schema


@pytest.mark.parametrize("operation", ["posts.create", "posts/create", "create_post"])
async def test_the_signature_is_told_by_id_path_or_name(operation, era):
    async with meta_tool_client(community_server(), era) as peer:
        told = await peer.text_of("get_schema", operation=operation)
    signature, *notes = told.splitlines()
    assert signature.startswith("posts.create(") and notes == ["Create a new post"]
    assert all(word in signature for word in ("space_id:int", "name", "body?", "state?", '"draft"', '"live"'))
    assert signature.index("space_id") < signature.index("name") < signature.index("body?")


async def test_several_signatures_at_once_and_never_more_than_ten(era):
    async with meta_tool_client(community_server(), era) as peer:
        told = await peer.text_of("get_schema", operation=COMMUNITY_IDS)
        assert all(f"{operation}(" in told for operation in COMMUNITY_IDS)
        assert "10" in await peer.refusal_of("get_schema", operation=["posts.list"] * 11)
        mixed = first_block_text(await peer.use("get_schema", {"operation": ["posts.list", "posts.creat"]}))
        assert "posts.list(" in mixed and "posts.create" in mixed


async def test_a_reply_whose_signatures_leave_something_out_says_where_it_is(era):
    server = community_server(prefix="circle")
    properties = {f"option_number_{n}": {"type": "string"} for n in range(30)}

    @server.tool(category="posts", description="Export posts", input_schema={"properties": properties})
    async def export_posts(arguments: dict[str, Any]) -> None: ...

    async with meta_tool_client(server, era) as peer:
        assert "What … leaves out: circle_get_schema." in await peer.text_of("circle_discover", query="export posts")
        assert "left out" not in await peer.text_of("circle_discover", query="how long has the service run")


async def test_one_parameter_is_told_by_its_path(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert await peer.text_of("get_schema", operation="members.add.member") == (
            "members.add(member:{name, age?:int=0})"
        )
        assert await peer.text_of("get_schema", operation="members.add.member.age", detail="full") == (
            "members.add(member.age:int=0)"
        )
        for path, told in (
            ("membre", "members.add has no parameter 'membre'. Did you mean member?"),
            ("member.nme", "members.add has no parameter 'member.nme'. Did you mean member.name?"),
            ("member.xxxxx.y", "members.add has no parameter 'member.xxxxx.y'. member has: name age."),
            ("member.age.x", "members.add has no parameter 'member.age.x'. member.age has no parameters."),
        ):
            assert await peer.refusal_of("get_schema", operation=f"members.add.{path}") == told
        assert "posts.create" in await peer.refusal_of("get_schema", operation="posts.creat.post")


async def test_the_schema_is_json_and_the_same_as_the_resource(era):
    async with meta_tool_client(community_server(), era) as peer:
        for operation in COMMUNITY_IDS:
            schema = json.loads(await peer.text_of("get_schema", operation=operation, detail="schema"))
            assert schema == await peer.read(f"circle://operations/{operation.replace('.', '/')}")
            assert schema["id"] == operation and schema["inputSchema"]["type"] == "object"
            assert {"id", "name", "description", "inputSchema"} <= set(schema)
            assert set(schema) <= {"id", "name", "title", "description", "inputSchema", "outputSchema"} | {
                "annotations",
                "examples",
            }
        listed = json.loads(await peer.text_of("get_schema", operation="posts.list", detail="schema"))
        assert listed["annotations"] == {"readOnlyHint": True} and listed["examples"] == [{"space_id": 7}]
        assert listed["name"] == "list_posts"
        found = json.loads(await peer.text_of("get_schema", operation="members.search", detail="schema"))
        assert set(found["outputSchema"]["properties"]) == {"name", "age"}
        both = json.loads(await peer.text_of("get_schema", operation=["posts.list", "uptime"], detail="schema"))
        assert [one["id"] for one in both] == ["posts.list", "uptime"]


@pytest.mark.parametrize("detail", ["notes", "full"])
async def test_examples_are_told_in_words_too(detail):
    async with meta_tool_client(community_server()) as peer:
        assert "7" in await peer.text_of("get_schema", operation="posts.list", detail=detail)


@pytest.mark.parametrize("detail", ["notes", "full", "schema"])
async def test_an_unknown_operation_is_told_with_the_nearest(detail, era):
    async with meta_tool_client(community_server(), era) as peer:
        for asked, meant in (
            ("posts.creat", "posts.create"),
            ("Posts.List", "posts.list"),
            ("creat_post", "posts.create"),
        ):
            assert meant in await peer.refusal_of("get_schema", operation=asked, detail=detail)


# Search by meaning


def meaning(texts: list[str]) -> list[list[float]]:
    return [[1.0, 0.1] if re.search("delete|obliterate", text.lower()) else [0.1, 1.0] for text in texts]


async def later(texts: list[str]) -> list[list[float]]:
    return meaning(texts)


@pytest.mark.parametrize("embedder", [meaning, later])
async def test_an_embedder_finds_what_words_do_not(embedder, era):
    plain, clever = large_server(84), large_server(84, embedder=embedder)
    async with meta_tool_client(plain, era) as peer:
        assert ".delete" not in await peer.text_of("discover", query="obliterate")
    async with meta_tool_client(clever, era) as peer:
        assert ".delete(" in (await peer.text_of("discover", query="obliterate")).splitlines()[0]


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
        async with meta_tool_client(large_server(84, embedder=FAILING[failure])) as peer:
            for _ in range(2):
                assert "posts.delete(" in await peer.text_of("discover", query="delete posts")


# Bounds


def _view(size: int) -> View:
    catalog = Catalog("x", disclosure=Disclosure(surface="meta"))
    for number in range(size):
        catalog.add(FunctionOperation(_nothing, Context, name=f"operation_{number}", category=f"c{number % 7}"))
    return catalog.view()


async def _nothing() -> None: ...


def test_a_page_writes_no_line_that_it_does_not_show(monkeypatch):
    view = _view(2_000)
    written: list[str] = []
    summary_of = Directory.summary_of

    def counted(directory: Directory, operation: Operation) -> str:
        written.append(operation.id)
        return summary_of(directory, operation)

    monkeypatch.setattr(Directory, "summary_of", counted)
    arguments = discovery.parse_discover_arguments({"detail": "brief", "cursor": "100"})
    shown = discovery.listing_text(view, arguments, Work(1)).splitlines()
    assert len(written) == len(shown)


def test_the_whole_tree_takes_work_for_each_operation():
    arguments = discovery.parse_discover_arguments({"detail": "full"})
    with pytest.raises(WorkLimitError):
        discovery.listing_text(_view(2_000), arguments, Work(20_000))
    assert "operation_1999" in discovery.listing_text(_view(2_000), arguments, Work(200_000))


def test_few_names_of_a_large_catalog_are_compared_in_every_way(monkeypatch):
    compared: list[int] = []

    def extract(query: str, choices: list[str], **options: Any) -> Any:
        if "scorer" not in options:
            compared.append(len(choices))
        return original(query, choices, **options)

    original = process.extract
    monkeypatch.setattr(process, "extract", extract)
    view = _view(5_000)
    assert "c3.operation_1095" in view.nearest_ids("operatoin_1095")
    assert view.nearest_ids("x" * 1_000_000) == []
    assert max(compared) <= 1_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"category": "a." * 1_000},
        {"cursor": "9" * 1_000_000},
        {"cursor": 10**1000},
        {"cursor": ["1"]},
        {"query": "x" * 20_001},
        {"query": [str(number) for number in range(100_000)]},
    ],
)
def test_arguments_beyond_their_bounds_are_refused_in_a_sentence(arguments):
    with pytest.raises(UsageError) as refused:
        discovery.parse_discover_arguments(arguments)
    assert len(str(refused.value)) < 100


def test_letters_that_become_many_are_searched_in_part():
    assert len(terms("ﷺ" * 1_000)) <= len(terms("صلى الله عليه وسلم " * 250))
