"""Lists and definitions: the client fetches the index first and each schema once, and survives invalid lists."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.client.client import connect
from deltamcp.errors import ClientError, DeltaError, PeerError
from deltamcp.values import CallTool, Describe, Kind, ListItems, ListManifest
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS, advance_clock, is_listened_to, wait_until
from tests.support.fake_http import ANY, META, Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.http_server import serve_http
from tests.support.request_count import RequestCount, count_requests


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["answer", -32601], ids=["modern", "handshake"])
def discover(request: Any) -> Any:
    return request.param


def make_server(n: int = 120, **options: Any) -> DeltaServer:
    server = DeltaServer("many", **options)
    for at in range(n):
        server.tool(name=f"tool_{at}")(_numbered(at))
    return server


def _numbered(at: int) -> Any:
    def function(n: int, note: str = "") -> int:
        """Adds a number of its own."""
        return n + at

    return function


SPEAK: list[Any] = ["modern", "handshake", "delta-mcp"]


def fetched(counted: RequestCount) -> int:
    return counted.count(ListItems) + counted.count(Describe) + counted.count(ListManifest)


# Delta-MCP servers


@pytest.mark.parametrize("speak", SPEAK)
async def test_the_index_is_asked_for_once(speak):
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak) as client:
        first = await client.tools()
        assert [tool.name for tool in first] == [f"tool_{at}" for at in range(120)]
        assert all(tool.summary for tool in first)
        before = fetched(counted)
        assert await client.tools() == first
        assert fetched(counted) == before
        assert counted.count(Describe) == 0, "schemas were fetched that nobody needs"


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_call_fetches_one_schema_and_the_next_none(speak):
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak) as client:
        await client.tools()
        counted.forget()
        assert await client.call("tool_7", n=1) == 8
        assert counted.count(Describe) == 1
        assert [ask.names for ask in counted.asks if isinstance(ask, Describe)] == [("tool_7",)]
        counted.forget()
        for _ in range(5):
            assert await client.call("tool_7", n=1) == 8
        assert fetched(counted) == 0
        assert counted.count(CallTool) == 5


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_many_schemas_are_fetched_in_batches(speak: Any):
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak) as client:
        found = await client.describe()
        assert [item["name"] for item in found] == [f"tool_{at}" for at in range(120)]
        assert all(item["inputSchema"]["required"] == ["n"] for item in found)
        assert fetched(counted) <= 5, "120 schemas at 50 a time, and an index"
        counted.forget()
        assert await client.describe() == found
        assert await client.describe("tool_3", "tool_1") == [found[3], found[1]]
        assert fetched(counted) == 0


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_calls_side_by_side_share_one_batch(speak: Any):
    """The client fetches definitions on demand and in batches; each is fetched once."""
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak) as client:
        await client.tools()
        counted.forget()
        assert await asyncio.gather(*(client.call("tool_5", n=n) for n in range(50))) == [n + 5 for n in range(50)]
        assert counted.count(Describe) == 1, "one schema was fetched more than once"


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_who_knows_nothing_of_delta_mcp_gets_everything_in_one_list(speak: Any):
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak, progressive=False) as client:
        assert client.server.progressive is None or counted
        await client.tools()
        assert await client.call("tool_7", n=1) == "8"  # which only a Delta-MCP server tells to be a number
        assert counted.count(Describe) == counted.count(ListManifest) == 0
        assert counted.count(ListItems) == 1


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize("listed", [False, True], ids=["first of all", "after the index"])
async def test_describing_what_does_not_exist_names_the_nearest(speak, listed):
    server = make_server(12)
    async with connect(server, speak=speak) as client:
        if listed:
            await client.tools()
        with pytest.raises(ClientError, match=r"'?tool_1\b"):
            await client.describe("tool_1x")
        with pytest.raises(ClientError, match="nowhere"):
            await client.describe("tool_1", "nowhere")


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_changed_tool_is_fetched_again_and_an_unchanged_one_is_not(speak: Any):
    server = make_server(3)
    counted = count_requests(server)
    changed = asyncio.Event()
    told: list[str] = []

    def on_change(what: str) -> None:
        told.append(what)
        changed.set()

    async with connect(server, speak=speak, on_change=on_change) as client:
        old = await client.describe()
        await wait_until(lambda: is_listened_to(server, Kind.TOOLS))
        server.remove_tool("tool_1")

        @server.tool(name="tool_1")
        def another(text: str) -> str:
            """Is another one now."""
            return text

        await asyncio.wait_for(changed.wait(), HANG_SECONDS)
        assert set(told) == {"tools"}
        counted.forget()
        new = await client.describe()
        by_name = {item["name"]: item for item in new}
        assert by_name["tool_1"]["inputSchema"]["required"] == ["text"]
        assert by_name["tool_0"] == old[0]
        named = [ask.names for ask in counted.asks if isinstance(ask, Describe)]
        assert named == [("tool_1",)], "by its digest only one has changed"
        assert await client.call("tool_1", text="x") == "x"


@pytest.mark.parametrize("speak", ["modern", "handshake"])
@pytest.mark.parametrize("by", ["memory", "http"])
async def test_tools_that_come_and_go_are_seen(speak: Any, by: str):
    server = make_server(2)
    changed = asyncio.Event()
    async with serve_http(server) as url:
        target: Any = url if by == "http" else server
        async with connect(target, speak=speak, on_change=lambda what: changed.set()) as client:
            assert len(await client.tools()) == 2
            await wait_until(lambda: is_listened_to(server, Kind.TOOLS))
            server.tool(name="third")(_numbered(3))
            await asyncio.wait_for(changed.wait(), HANG_SECONDS)
            assert [tool.name for tool in await client.tools()] == ["tool_0", "tool_1", "third"]
            assert await client.call("third", n=1) == 4
            changed.clear()
            server.remove_tool("tool_0")
            await asyncio.wait_for(changed.wait(), HANG_SECONDS)
            assert [tool.name for tool in await client.tools()] == ["tool_1", "third"]
            with pytest.raises(DeltaError):
                await client.call("tool_0", n=1)


async def test_a_list_is_believed_as_long_as_the_server_says():
    server = make_server(2, cache_seconds=60)
    counted = count_requests(server)
    async with connect(server, listen=False) as client:
        await client.tools()
        counted.forget()
        await client.tools()
        assert fetched(counted) == 0
        advance_clock(61)
        await client.tools()
        assert fetched(counted) >= 1


async def test_what_has_expired_and_not_changed_is_not_sent_again():
    server = make_server(60, cache_seconds=60)
    counted = count_requests(server)
    async with connect(server, listen=False) as client:
        await client.describe()
        advance_clock(61)
        counted.forget()
        await client.describe()
        assert counted.count(Describe) == 0, "digests say that nothing has changed"


async def test_a_server_that_neither_says_nor_tells_is_believed_for_the_clients_own_time(log):
    script = fake_stdio.command(log=log, discover=-32601, capabilities={"tools": {}})
    async with connect(script, cache_seconds=60) as client:
        await client.tools()
        await client.tools()
        assert len(fake_stdio.messages(log, "tools/list")) == 1
        advance_clock(61)
        await client.tools()
        assert len(fake_stdio.messages(log, "tools/list")) == 2


async def test_expired_schemas_are_not_validated_against():
    """The server's tools change while the client does not listen; after the TTL the client uses the new schema."""
    server = make_server(1, cache_seconds=60)
    async with connect(server, listen=False) as client:
        assert await client.call("tool_0", n=1) == 1
        server.remove_tool("tool_0")

        @server.tool(name="tool_0")
        def another(text: str) -> str:
            """Is another one now."""
            return text

        advance_clock(61)
        assert await client.call("tool_0", text="x") == "x"


async def test_a_schema_that_is_still_believed_but_no_longer_true_does_not_lock_a_tool():
    """Arguments that do not match the cached schema may match the current one, so the client fetches it first."""
    server = make_server(1, cache_seconds=3600)
    async with connect(server, listen=False) as client:
        assert await client.call("tool_0", n=1) == 1
        server.remove_tool("tool_0")

        @server.tool(name="tool_0")
        def another(text: str) -> str:
            """Is another one now."""
            return text

        with pytest.raises(DeltaError):
            await client.call("tool_0", n=1)
        assert await client.call("tool_0", text="x") == "x"


async def test_paged_lists_of_ours():
    server = make_server(25, page_size=10)
    for speak in SPEAK:
        async with connect(server, speak=speak, progressive=False) as client:
            assert len(await client.tools()) == 25


# Other servers


ODD: list[Any] = [
    {"name": "fine", "description": "First.\nMore.", "inputSchema": ANY, "vendor": {"x": [1]}},
    None,
    7,
    "tool",
    [],
    {},
    {"description": "nameless"},
    {"name": None},
    {"name": 7},
    {"name": ""},
    {"name": "true", "inputSchema": True},
    {"name": "untyped", "inputSchema": {"properties": {}}},
    {"name": "bare"},
    {"name": "unicode.名前-é", "description": "Ünïcödé", "inputSchema": ANY},
    {"name": "odd_description", "description": {"a": 1}, "title": 5, "annotations": [], "inputSchema": ANY},
    {"name": "odd_annotations", "annotations": {"readOnlyHint": "yes", "title": 3}, "inputSchema": ANY},
]
GOOD = ["fine", "true", "untyped", "bare", "unicode.名前-é", "odd_description", "odd_annotations"]


async def test_one_odd_tool_does_not_hide_the_others(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover, tools=ODD)) as client:
        names = [tool.name for tool in await client.tools()]
        assert [name for name in names if name] == GOOD
        for name in GOOD:
            assert (await client.call_tool(name, {"a": 1})).value["given"] == {"a": 1}


async def test_a_schema_whose_validation_would_not_end_is_left_to_the_server(log, discover):
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(40)
    }
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {**definitions, "d40": {"type": "string"}},
    }
    tools = [{"name": "doubling", "inputSchema": schema}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        assert (await client.call_tool("doubling", {"a": "x"})).value["given"] == {"a": "x"}


async def test_definitions_are_given_as_they_came(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover, tools=ODD)) as client:
        found = {item["name"]: item for item in await client.describe()}
        for raw in ODD:
            if isinstance(raw, dict) and raw.get("name") in GOOD:
                assert found[raw["name"]] == raw
                assert list(found[raw["name"]]) == list(raw)


async def test_two_tools_of_one_name(log, discover):
    tools = [{"name": "echo", "description": "one", "inputSchema": ANY}, {"name": "echo", "description": "two"}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        assert {tool.name for tool in await client.tools()} == {"echo"}
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


@pytest.mark.parametrize("tools", [None, {}, "tools", 7], ids=str)
async def test_a_list_that_is_none_is_told_or_empty(log, discover, tools):
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        try:
            assert await client.tools() == []
        except DeltaError as error:
            assert "tools" in str(error)


async def test_all_pages_are_read(log, discover):
    pages = [[{"name": f"t{page}_{n}", "inputSchema": ANY} for n in range(3)] for page in range(4)]
    async with connect(fake_stdio.command(log=log, discover=discover, pages=pages)) as client:
        assert [tool.name for tool in await client.tools()] == [f"t{page}_{n}" for page in range(4) for n in range(3)]
    assert [message["params"].get("cursor") for message in fake_stdio.messages(log, "tools/list")] == [
        None,
        "1",
        "2",
        "3",
    ]


async def test_a_cursor_that_repeats_is_the_end_of_patience(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover, endless="same")) as client:
        with pytest.raises(DeltaError):
            await asyncio.wait_for(client.tools(), HANG_SECONDS)
    assert len(fake_stdio.messages(log, "tools/list")) < 50, "it goes in a circle, and that can be seen at once"


async def test_pages_without_end_are_told_not_read_for_ever(log):
    async with connect(fake_stdio.command(log=log, endless=True)) as client:
        with pytest.raises(DeltaError):
            await asyncio.wait_for(client.tools(), HANG_SECONDS)


async def test_an_empty_page_is_not_the_end(log):
    pages: list[Any] = [[], [{"name": "echo"}], []]
    async with connect(fake_stdio.command(log=log, pages=pages)) as client:
        assert [tool.name for tool in await client.tools()] == ["echo"]


async def test_a_process_that_says_its_tools_changed_is_asked_again(log, discover):
    told: list[str] = []
    tools = [{"name": "change", "inputSchema": ANY}]
    later = [{"name": "echo", "inputSchema": {"type": "object", "required": ["new"]}}]
    script = fake_stdio.command(log=log, discover=discover, tools=tools, later=later, ttl=3_600_000)
    async with connect(script, on_change=told.append) as client:
        await client.tools()
        await client.call("change")
        assert [tool.name for tool in await client.tools()] == ["echo"]
        assert told == ["tools"]
        assert (await client.call("echo", new=1))["given"] == {"new": 1}


async def test_a_modern_process_is_asked_to_tell_of_changes_before_it_is_believed(log):
    async with connect(fake_stdio.command(log=log)) as client:
        await client.tools()
        await client.call("echo")
    (listen,) = fake_stdio.messages(log, "subscriptions/listen")
    assert listen["params"]["notifications"] == {"toolsListChanged": True}


async def test_a_change_told_over_http_in_the_old_way():
    """The client receives them on the stream that a GET opens."""
    change = asyncio.Event()
    heard = asyncio.Event()

    async def stream(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        await change.wait()
        await wire.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, id="1")
        await fake.ending.wait()

    async with serve_fake(Fake(modern=False, sessions=True)) as fake:
        fake.always("GET", stream)
        async with connect(fake.url, on_change=lambda what: heard.set()) as client:
            assert len(await client.tools()) == 4
            fake.tools = [{"name": "one"}]
            assert len(await client.tools()) == 4
            change.set()
            await asyncio.wait_for(heard.wait(), HANG_SECONDS)
            assert len(await client.tools()) == 1


async def test_a_subscription_that_breaks_is_taken_up_again_and_nothing_missed_in_between():
    heard, listed, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        told = {"_meta": {META + "subscriptionId": asked.id}, "notifications": asked.params["notifications"]}
        await wire.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": told})
        await listed.wait()
        fake.tools = [{"name": "one", "inputSchema": ANY}]
        wire.close()

    async def later(asked: FakeRequest, wire: FakeConnection) -> None:
        again.set()
        await fake.answer(asked, wire)

    async with serve_fake(Fake(handshake=False, ttl=3_600_000)) as fake:
        fake.once("subscriptions/listen", breaks, later)
        async with connect(fake.url, on_change=lambda what: heard.set()) as client:
            assert len(await client.tools()) == 4
            listed.set()
            await asyncio.wait_for(again.wait(), HANG_SECONDS)
            assert len(await client.tools()) == 1, "what happened while nobody listened was missed"


async def test_a_server_that_was_restarted_is_asked_for_its_tools_again(log):
    tools = [*fake_stdio.TOOLS, {"name": "last", "inputSchema": ANY}]
    async with connect(fake_stdio.command(log=log, tools=tools, ttl=3_600_000)) as client:
        await client.call("last")
        await client.call("look", deaths=0)
        await client.tools()
    assert len(fake_stdio.messages(log, "tools/list")) == 2


async def test_ttl_that_is_no_number_does_no_harm(log):
    odd: list[Any] = [-1, "soon", None, [], 0, 2**70]
    for ttl in odd:
        async with connect(fake_stdio.command(log=log, ttl=ttl)) as client:
            assert len(await client.tools()) == 4


async def test_resources_and_prompts_are_listed_read_and_filled_in():
    server = DeltaServer("all")

    @server.resource("mem://one")
    def one() -> str:
        """One."""
        return "first"

    @server.resource("mem://{n}/x")
    def many(n: str) -> str:
        """Many."""
        return f"number {n}"

    @server.prompt
    def greet(name: str) -> str:
        """Greets."""
        return f"Say hello to {name}."

    @server.completion(prompt="greet", argument="name")
    def names(value: str) -> list[str]:
        return [name for name in ("Ada", "Alan", "Bob") if name.startswith(value)]

    for speak in ("modern", "handshake"):
        async with connect(server, speak=speak) as client:
            assert [item["uri"] for item in await client.list_resources()] == ["mem://one"]
            assert [item["uriTemplate"] for item in await client.list_resource_templates()] == ["mem://{n}/x"]
            assert (await client.read_resource("mem://one"))[0]["text"] == "first"
            assert (await client.read_resource("mem://7/x"))[0]["text"] == "number 7"
            assert [item["name"] for item in await client.list_prompts()] == ["greet"]
            filled = await client.get_prompt("greet", {"name": "Ada"})
            assert filled["messages"][0]["content"]["text"] == "Say hello to Ada."
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "name", "A") == ["Ada", "Alan"]
            assert await client.tools() == []


@pytest.mark.parametrize("speak", SPEAK)
async def test_lists_that_a_server_does_not_offer_are_empty(speak: Any):
    server = DeltaServer("tools alone")
    server.tool(name="ping")(lambda: "pong")
    async with connect(server, speak=speak) as client:
        assert (await client.list_prompts(), await client.list_resources(), await client.list_resource_templates()) == (
            [],
            [],
            [],
        )


@pytest.mark.parametrize("capabilities", [{"tools": {}}, {"tools": {}, "prompts": {}, "resources": {}}])
async def test_lists_whose_method_a_server_does_not_know_are_empty(log, discover, capabilities):
    async with connect(fake_stdio.command(log=log, discover=discover, capabilities=capabilities)) as client:
        assert (await client.list_prompts(), await client.list_resources(), await client.list_resource_templates()) == (
            [],
            [],
            [],
        )
        assert len(await client.tools()) == 4
        with pytest.raises(PeerError, match="Unknown method"):
            await client.get_prompt("greet")


async def test_a_list_that_fails_for_another_reason_is_told():
    async def failed(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32603, "message": "Out of order."}})

    async with serve_fake(Fake(prompts={})) as fake:
        fake.always("prompts/list", failed)
        async with connect(fake.url) as client:
            with pytest.raises(PeerError, match="Out of order"):
                await client.list_prompts()


@pytest.mark.parametrize("speak", ["modern", "handshake"])
@pytest.mark.parametrize("by", ["memory", "http"])
async def test_a_resource_that_is_watched_is_told_of(speak: Any, by: str):
    server = DeltaServer("watched")
    told: asyncio.Queue[str] = asyncio.Queue()

    @server.resource("mem://one")
    def one() -> str:
        """One."""
        return "first"

    @server.resource("mem://two")
    def two() -> str:
        """Two."""
        return "second"

    async with serve_http(server) as url:
        target: Any = url if by == "http" else server
        async with connect(target, speak=speak, on_change=told.put_nowait) as client:
            await client.subscribe("mem://one")
            await wait_until(lambda: is_listened_to(server, "mem://one"))
            server.resource_updated("mem://two")
            server.resource_updated("mem://one")
            assert await asyncio.wait_for(told.get(), HANG_SECONDS) == "mem://one"
            await client.unsubscribe("mem://one")
            await wait_until(lambda: not is_listened_to(server, "mem://one"))
            server.resource_updated("mem://one")
            await client.subscribe("mem://two")
            await wait_until(lambda: is_listened_to(server, "mem://two"))
            server.resource_updated("mem://two")
            assert await asyncio.wait_for(told.get(), HANG_SECONDS) == "mem://two"


async def test_what_a_program_does_to_a_definition_is_its_own_affair():
    server = DeltaServer("notes")

    @server.tool
    async def write(name: str) -> str:
        """Keeps a note."""
        return name

    async with connect(server) as client:
        (definition,) = await client.describe("write")
        definition["inputSchema"].clear()
        definition["inputSchema"]["not"] = {}
        assert await client.call("write", name="a") == "a"
