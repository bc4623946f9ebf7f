"""Operations that a model runs by `execute` and `query`, and long results that it reads by `continue`."""

import json
import logging
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client.client import Client

from deltamcp import CallFailedError, DeltaServer, Disclosure, ResultPolicy, connect
from deltamcp.results.encode import decode
from deltamcp.results.policy import META_KEY
from deltamcp.tokens import count
from tests.support.era_client import texts
from tests.support.meta_tools import (
    COMMUNITY_IDS,
    META_TOOLS,
    MetaToolClient,
    community_server,
    first_block_text,
    meta_tool_client,
    paging_server,
    result_text,
)
from tests.support.properties import examples
from tests.support.raw_client import answer_text, raw_client
from tests.support.sdk_streams import sdk_streams


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("discover", {"query": ["x"], "cursor": "²"}),
        ("discover", {"query": ["x"], "cursor": "99999"}),
        ("execute", {"operation": "free", "params": "[" * 100_000}),
        ("execute", {"operation": "free", "params": '{"a":' * 500 + "1" + "}" * 500}),
        ("execute", {"operation": "free", **{f"k{number}": "x" * 100 for number in range(1000)}}),
    ],
)
async def test_odd_arguments_are_the_callers_mistake(tool, arguments):
    server = DeltaServer("x", disclosure="meta")

    @server.tool
    async def free(a: int = 0) -> None: ...

    async with raw_client(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name=tool, arguments=arguments)
    assert answer["result"]["isError"] is True
    assert "log says why" not in answer_text(answer) and len(answer_text(answer)) < 1000


# Arguments that are left out

MEANT_EMPTY = {"path", "since"}
"""Arguments that an empty text is a value of: the whole result, and no result at all."""


@settings(max_examples=examples(100))
@given(data=st.data())
async def test_null_and_empty_texts_are_arguments_left_out(data):
    """Strict schemas make models send every argument of a tool."""
    server = DeltaServer(
        "x",
        disclosure=Disclosure("meta", query=True),
        results=ResultPolicy(max_tokens=100, deltas=True),
        conversation="process",
    )
    server.tool(name="many", annotations={"readOnlyHint": True})(lambda: [f"row {n * n}" for n in range(900)])
    async with meta_tool_client(server) as peer:
        first = await peer.use("execute", {"operation": "many"})
        required = {"handle": first["_meta"][META_KEY]["handle"], "operation": "many"}
        for tool in await peer.tools():
            schema = tool["inputSchema"]
            given = {name: value for name, value in required.items() if name in schema["properties"]}
            optional = [name for name in schema["properties"] if name not in given]
            left_out = {}
            for name in data.draw(st.sets(st.sampled_from(optional))):
                left_out[name] = data.draw(st.sampled_from([None] if name in MEANT_EMPTY else [None, ""]))
            await peer.use(tool["name"], given)  # the first reply would make the second one "unchanged"
            expected = await peer.use(tool["name"], given)
            assert not expected.get("isError"), expected
            assert await peer.use(tool["name"], {**given, **left_out}) == expected
            refused = await peer.use(tool["name"], {**given, **left_out, "zz": None})
            assert refused.get("isError") is True and "zz" in first_block_text(refused)


# execute


@pytest.mark.parametrize("operation", ["posts.list", "posts/list", "list_posts"])
async def test_an_operation_runs_by_id_path_or_name(operation, era):
    async with meta_tool_client(community_server(), era) as peer:
        result = await peer.use("execute", {"operation": operation, "params": {"space_id": 1, "page": 2}})
    assert len(result["content"]) == 1
    assert json.loads(first_block_text(result)) == {"space": 1, "page": 2, "per_page": 10}


async def test_params_are_optional_and_structured_content_comes_through(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert await peer.text_of("execute", operation="uptime") == "long"
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
    async with meta_tool_client(community_server(query=True), era) as peer:
        result = await peer.use(tool, REPAIRS[repair])
    assert not result.get("isError"), result
    answer, note = texts(result)
    assert json.loads(answer) == {"space": 1, "page": 2, "per_page": 10} and note


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
    server = community_server()
    async with meta_tool_client(server, era) as peer:
        assert "posts.list(space_id:int" in await peer.refusal_of("execute", **AMBIGUOUS[slip])
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

    async with meta_tool_client(server) as peer:
        result = await peer.use("execute", {"operation": "echo", "params": params})
    assert json.loads(first_block_text(result)) == params
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

    async with meta_tool_client(server) as peer:
        result = await peer.use("execute", {"operation": "odd", "params": params})
    assert json.loads(first_block_text(result)) == expected and len(result["content"]) == 1


@pytest.mark.parametrize(
    ("operation", "params", "words"),
    [
        ("posts.list", {}, ["space_id", "expected int"]),
        ("posts.list", {"space_id": "x"}, ["space_id", "expected int"]),
        ("posts.create", {"space_id": 1, "name": "n", "state": "gone"}, ["state", '"draft"', '"live"']),
        ("posts.list", {"space_id": 1, "spcae": 2}, ["spcae", "space_id"]),
        ("members.add", {"member": {"name": "Ada", "age": "old"}}, ["age", "expected int"]),
        ("members.add", {"member": {"name": 5}}, ["name", "expected str"]),
    ],
    ids=str,
)
async def test_wrong_params_are_told_with_the_schema_and_the_signature(operation, params, words, era):
    server = community_server()
    async with meta_tool_client(server, era) as peer:
        told = await peer.refusal_of("execute", operation=operation, params=params)
    assert all(word in told for word in words)
    assert "space_id:int" in told or "member:" in told
    assert count(told) <= 200
    assert server.ran == []  # type: ignore[attr-defined]


async def test_wrong_params_are_told_under_the_id_the_model_used():
    async with meta_tool_client(community_server()) as peer:
        assert "posts.list(space_id:int" in await peer.refusal_of("execute", operation="posts.list", params={})


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
    async with meta_tool_client(community_server(query=True), era) as peer:
        for tool in ("execute", "query"):
            told = await peer.refusal_of(tool, operation=asked, params={})
            assert asked in told and meant in told
            assert sum(operation in told for operation in COMMUNITY_IDS) <= 3 + 1
        if asked.startswith("posts."):
            assert all(action in told for action in ("list", "create", "delete"))


async def test_the_meta_tools_are_no_operations():
    async with meta_tool_client(community_server(query=True)) as peer:
        for name in (*META_TOOLS, "query"):
            await peer.refusal_of("execute", operation=name, params={})
            await peer.refusal_of("get_schema", operation=name)


async def test_query_runs_only_what_says_that_it_reads(era):
    server = community_server(query=True)
    async with meta_tool_client(server, era) as peer:
        assert '"space":1' in await peer.text_of("query", operation="posts.list", params={"space_id": 1})
        for operation, params in (
            ("posts.create", {"space_id": 1, "name": "x"}),
            ("create_post", {"space_id": 1, "name": "x"}),
            ("posts/delete", {"id": 1}),
            ("members.search", {"q": "x"}),
            ("uptime", {}),
        ):
            assert "execute" in await peer.refusal_of("query", operation=operation, params=params)
        slip = {"name": "posts.create", "space_id": 1, "params": {"name": "x"}}
        assert (await peer.use("query", slip))["isError"] is True
    assert server.ran == ["posts.list"]  # type: ignore[attr-defined]


async def test_a_failing_operation_tells_nothing_of_the_server(caplog, era):
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="a", action="boom")
    async def boom() -> None:
        raise RuntimeError("hunter2")

    async with meta_tool_client(server, era) as peer:
        with caplog.at_level(logging.CRITICAL, "deltamcp"):
            assert "hunter2" not in await peer.refusal_of("execute", operation="a.boom")


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
MANY = settings(max_examples=examples(150))
TOOLS = [*META_TOOLS, "query"]


def well_formed(result: dict[str, Any]) -> None:
    assert isinstance(result["content"], list) and result["content"]
    assert all(block["type"] == "text" and isinstance(block["text"], str) for block in result["content"])
    assert set(result) <= {"content", "isError", "structuredContent", "_meta", "resultType"}
    assert "failed (error" not in first_block_text(result), "an internal error"


@pytest.mark.parametrize("tool", TOOLS)
@MANY
@given(arguments=ANY)
async def test_any_arguments_get_one_well_formed_answer(tool, arguments):
    async with meta_tool_client(community_server(query=True)) as peer:
        for used in (peer, MetaToolClient(peer.raw, "handshake")):
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
    async with meta_tool_client(community_server()) as peer:
        wanted = await peer.text_of("execute", operation="posts.create", params=params)
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
            assert await peer.text_of("execute", **arguments) == wanted
        assert await peer.text_of("create_post", **params) == wanted


@MANY
@given(value=st.dictionaries(st.text(max_size=10), JSONS, max_size=4))
async def test_an_operation_that_takes_anything_gets_exactly_what_was_sent(value):
    server = DeltaServer("x", disclosure="meta")

    @server.tool(input_schema={"type": "object"})
    async def echo(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    async with meta_tool_client(server) as peer:
        assert json.loads(await peer.text_of("execute", operation="echo", params=value)) == value


@MANY
@given(
    path=st.text(max_size=30) | st.lists(WORDS, max_size=4).map("/".join), era=st.sampled_from(["handshake", "modern"])
)
async def test_any_address_is_read_or_refused_cleanly(path, era):
    async with meta_tool_client(community_server(), era) as peer:
        answer = await peer.ask("resources/read", uri=f"circle://operations/{path}")
    if "error" in answer:
        assert answer["error"]["code"] == (-32602 if era == "modern" else -32002) or answer["error"]["code"] == -32602
        assert answer["error"]["message"]
    else:
        assert json.loads(answer["result"]["contents"][0]["text"])


@MANY
@given(query=st.text(max_size=60) | st.lists(st.text(max_size=20), max_size=10))
async def test_any_search_is_answered_within_its_budget(query):
    async with meta_tool_client(community_server()) as peer:
        assert count(await peer.text_of("discover", query=query)) <= 200


# Pages of long results


ON = re.compile(r"offset=(\d+)")


async def pages(peer: MetaToolClient, operation: str, params: dict[str, Any]) -> list[str]:
    """The texts of all pages, read forwards, each as the one before says."""
    result = await peer.use("execute", {"operation": operation, "params": params})
    found = [first_block_text(result)]
    handle = re.search(r'handle="([^"]+)"', result_text(result))
    while handle and (on := ON.search(texts(result)[1])):
        result = await peer.use("continue", {"handle": handle[1], "offset": int(on[1])})
        assert not result.get("isError"), result
        found.append(first_block_text(result))
    return found


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
    async with meta_tool_client(paging_server()) as peer:
        found = await pages(peer, "texts.make", {"text": text, "times": times})
    assert "".join(found) == text * times
    assert len(found) > 1 and all(found)
    assert all(count(page) <= 20_000 for page in found)


async def test_a_long_json_result_is_paged_and_made_up_again(era):
    async with meta_tool_client(paging_server(max_tokens=1000), era) as peer:
        first_page, *others = [decode(page) for page in await pages(peer, "texts.rows", {"number": 4000})]
    assert first_page["total"] == 4000 and others
    assert first_page["data"] + [row for page in others for row in page] == [
        {"id": n, "title": f"title {n}"} for n in range(4000)
    ]


async def test_what_is_not_long_comes_whole(era):
    async with meta_tool_client(paging_server(), era) as peer:
        result = await peer.use("execute", {"operation": "texts.make", "params": {"text": "word ", "times": 18_000}})
        assert first_block_text(result) == "word " * 18_000 and len(result["content"]) == 1


@MANY
@given(text=st.text(max_size=600) | st.text("a \n\té👩‍", max_size=1500))
async def test_any_text_is_made_up_of_its_pages(text):
    async with meta_tool_client(paging_server(max_tokens=60)) as peer:
        found = await pages(peer, "texts.make", {"text": text})
    assert "".join(found) == text
    assert len(found) == 1 or all(found)
    assert len(found) == 1 or all(count(page) <= 60 for page in found)


async def test_pages_can_be_read_again_in_any_order_and_past_the_last_is_refused(era):
    async with meta_tool_client(paging_server(max_tokens=60), era) as peer:
        result = await peer.use("execute", {"operation": "texts.make", "params": {"text": "some words ", "times": 60}})
        found = re.search(r'handle="([^"]+)"', result_text(result))
        assert found
        handle, again, last = found[1], [first_block_text(result)], 1
        while True:
            result = await peer.use("continue", {"session_id": handle, "page": last + 1})
            if result.get("isError"):
                break
            again.append(first_block_text(result))
            last += 1
        assert "".join(again) == "some words " * 60
        assert first_block_text(await peer.use("continue", {"handle": handle, "page": 3})) == again[2]
        beyond: list[Any] = [0, -1, last + 1, 10**20, 1.5, "x", [], True]
        for page in beyond:
            assert await peer.refusal_of("continue", handle=handle, page=page)
        assert f"1 to {last}" in await peer.refusal_of("continue", handle=handle, page=last + 1)
        assert "again" in await peer.refusal_of("continue", handle=handle[:-1] + "~")
    async with meta_tool_client(paging_server()) as peer:
        assert await peer.refusal_of("continue", handle=handle)


async def test_without_a_page_continue_reads_on_from_the_first():
    async with meta_tool_client(paging_server(max_tokens=60)) as peer:
        result = await peer.use("execute", {"operation": "texts.make", "params": {"text": "some words ", "times": 60}})
        begun, name = first_block_text(result), re.search(r'handle="([^"]+)"', result_text(result))
        assert name
        assert ("some words " * 60).startswith(
            begun + first_block_text(await peer.use("continue", {"handle": name[1]}))
        )


# The official client


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_official_client_goes_the_whole_way(mode):
    server = community_server(prefix="circle")
    async with Client(sdk_streams(server), mode=mode) as client:
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


async def test_a_repair_note_is_no_part_of_the_value_that_a_program_gets():
    server = DeltaServer("users", disclosure="meta")

    @server.tool(category="users", action="list")
    def list_users(limit: int = 3) -> list[dict[str, Any]]:
        return [{"id": 1}, {"id": 2, "tags": ["new"]}]

    async with connect(server, validate=False) as client:
        assert await client.call("execute", operation="users.list", params="{}") == list_users()


@pytest.mark.parametrize(("params", "reason"), [("[]," * 100_000, "values"), ("[" * 200 + "]" * 200, "nested deeper")])
async def test_params_that_come_as_text_have_the_bounds_of_a_message(params, reason):
    server = DeltaServer("users", disclosure="meta")

    @server.tool(category="users", action="list")
    def list_users(limit: Any = 3) -> None: ...

    async with connect(server, validate=False) as client:
        with pytest.raises(CallFailedError, match=reason):
            await client.call("execute", operation="users.list", params=f'{{"limit":[{params}0]}}')
