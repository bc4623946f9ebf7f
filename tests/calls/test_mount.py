"""Servers in servers: names, live changes, and functions that keep the lifespan and middleware of their own server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import (
    CallNext,
    ConfigurationError,
    Context,
    DeltaServer,
    Depends,
    FunctionCall,
    Kind,
    ObservedCall,
    ResultPolicy,
    connect,
)
from tests.support.conditions import wait_until
from tests.support.era_client import era_client, first_text, token_cost
from tests.support.raw_client import raw_client


def named_lifespan(name: str, events: list[str] | None = None) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(server: DeltaServer) -> AsyncIterator[str]:
        if events is not None:
            events.append(f"+{name}")
        yield name
        if events is not None:
            events.append(f"-{name}")

    return lifespan


def shelf(name: str = "shelf", **options: Any) -> DeltaServer:
    server = DeltaServer(name, lifespan=named_lifespan(name), **options)

    @server.tool
    def find(query: str, ctx: Context) -> str:
        """Find a book."""
        return f"{ctx.lifespan} {query}"

    @server.tool(category="loans", annotations={"readOnlyHint": True})
    async def lend(book: str) -> list[int]:
        """Lend a book."""
        return list(range(300))

    @server.tool(policy="confirm")
    async def burn(book: str) -> str:
        return f"burnt {book}"

    @server.resource("book://all")
    def every(ctx: Context) -> str:
        return f"all of {ctx.lifespan}"

    @server.resource("book://{title}")
    def one(title: str) -> str:
        return f"book {title}"

    def lifespan_of(ctx: Context) -> str:
        return str(ctx.lifespan)

    @server.prompt
    def review(title: str, place: str = Depends(lifespan_of)) -> str:
        return f"Review {title} in {place}"

    @server.completion(prompt="review", argument="title")
    def titles(value: str, ctx: Context) -> list[str]:
        return [f"{value} {ctx.lifespan}"]

    @server.completion(template="book://{title}", argument="title")
    def addresses(value: str) -> list[str]:
        return [value]

    return server


def library(*servers: tuple[DeltaServer, str], **options: Any) -> DeltaServer:
    server = DeltaServer("library", lifespan=named_lifespan("library"), **options)

    @server.tool
    async def where(ctx: Context) -> str:
        return str(ctx.lifespan)

    for other, prefix in servers:
        server.mount(other, prefix=prefix)
    return server


async def test_everything_is_offered_under_the_prefix_and_runs_with_its_own_lifespan():
    async with connect(library((shelf(), "books"))) as client:
        assert {tool.name for tool in await client.tools()} == {"where", "books_find", "books_lend", "books_burn"}
        assert await client.call("where") == "library"
        assert await client.call("books_find", query="Emma") == "shelf Emma"
        assert (await client.read_resource("book://books/all"))[0]["text"] == "all of shelf"
        assert (await client.read_resource("book://books/Emma"))[0]["text"] == "book Emma"
        messages = (await client.get_prompt("books_review", {"title": "Emma"}))["messages"]
        assert messages[0]["content"]["text"] == "Review Emma in shelf"
        prompt = {"type": "ref/prompt", "name": "books_review"}
        assert await client.complete(prompt, "title", "E") == ["E shelf"]
        template = {"type": "ref/resource", "uri": "book://books/{title}"}
        assert await client.complete(template, "title", "E") == ["E"]


async def test_without_a_prefix_names_stay():
    async with connect(library((shelf(), ""))) as client:
        assert {tool.name for tool in await client.tools()} == {"where", "find", "lend", "burn"}
        assert await client.call("find", query="Emma") == "shelf Emma"
        assert (await client.read_resource("book://all"))[0]["text"] == "all of shelf"


@pytest.mark.parametrize("prefix", ["", "p"])
@pytest.mark.parametrize("name", ["_x", "a..b", ".x", "x.", "-", "x" * 100])
async def test_every_name_that_a_server_may_list_may_be_mounted(name, prefix):
    books = DeltaServer("books")
    books.tool(lambda: "found", name=name)
    server = library((books, prefix))
    mounted = f"{prefix}_{name}" if prefix else name
    assert server.engine.catalog.operations[mounted].id == mounted
    async with connect(server) as client:
        assert await client.call(mounted) == "found"


async def test_the_tree_has_a_category_for_each_server():
    server = library((shelf("a"), "novels"), (shelf("b"), "plays"), disclosure="meta")
    async with era_client(server) as client:
        overview = first_text(await client.result_of("discover"))
        assert "novels" in overview and "plays" in overview
        assert "novels.loans.lend" in first_text(await client.result_of("discover", category="novels"))
        for operation, answer in (("novels.find", "a Emma"), ("plays.find", "b Emma"), ("plays_find", "b Emma")):
            result = await client.result_of("execute", operation=operation, params={"query": "Emma"})
            assert first_text(result) == answer


async def test_a_server_in_a_server_in_a_server():
    middle = library((shelf(), "books"))
    outer = DeltaServer("town", lifespan=named_lifespan("town"))
    outer.mount(middle, prefix="library")
    async with connect(outer) as client:
        assert await client.call("library_where") == "library"
        assert await client.call("library_books_find", query="Emma") == "shelf Emma"
        assert (await client.read_resource("book://library/books/all"))[0]["text"] == "all of shelf"
    assert outer.engine.catalog.operations["library_books_lend"].id == "library.books.loans.lend"


async def test_lifespans_open_and_close_together():
    events: list[str] = []
    inner = DeltaServer("inner", lifespan=named_lifespan("inner", events))
    outer = DeltaServer("outer", lifespan=named_lifespan("outer", events))
    outer.mount(inner, prefix="a")
    outer.mount(inner, prefix="b")
    async with connect(outer):
        assert events == ["+outer", "+inner"]
    assert events == ["+outer", "+inner", "-inner", "-outer"]


async def test_middleware_of_the_mounted_server_runs_inside_with_its_own_names():
    seen: list[tuple[str, str, str]] = []

    def record(server: str) -> Any:
        async def run(call: FunctionCall, call_next: CallNext) -> Any:
            seen.append((server, call.name, call.context.lifespan))
            call.arguments = {name: f"{value}!" for name, value in call.arguments.items()}
            return await call_next(call)

        return run

    server = library((shelf(middleware=[record("inner")]), "books"), middleware=[record("outer")])
    async with connect(server) as client:
        assert await client.call("books_find", query="Emma") == "shelf Emma!!"
        await client.read_resource("book://books/Emma")
        await client.get_prompt("books_review", {"title": "Emma"})
        assert await client.call("where") == "library"
    assert seen == [
        ("outer", "books.find", "library"),
        ("inner", "find", "shelf"),
        ("outer", "book://books/{title}", "library"),
        ("inner", "book://{title}", "shelf"),
        ("outer", "books_review", "library"),
        ("inner", "review", "shelf"),
        ("outer", "where", "library"),
    ]


async def test_observers_of_both_servers_are_told():
    class Observer:
        is_active = True

        def __init__(self) -> None:
            self.calls: list[ObservedCall] = []

        def call_started(self, call: ObservedCall) -> None:
            pass

        def call_finished(self, call: ObservedCall) -> None:
            self.calls.append(call)

    inner, outer = Observer(), Observer()
    async with connect(library((shelf(observers=[inner]), "books"), observers=[outer])) as client:
        await client.call("books_find", query="Emma")
        await client.call("where")
    assert [(call.name, call.value) for call in inner.calls] == [("find", "shelf Emma")]
    assert [(call.name, call.value) for call in outer.calls] == [("books.find", "shelf Emma"), ("where", "library")]


async def test_the_mounted_servers_policy_comes_first_and_the_outer_store_has_the_rest():
    books = shelf(results=ResultPolicy(max_tokens=100))
    async with era_client(library((books, "books"), results=ResultPolicy(max_tokens=5_000))) as client:
        result = await client.result_of("books_lend", book="Emma")
        assert token_cost(result) <= 100
        [handle] = [item["handle"] for item in result["_meta"].values() if "handle" in item]
        assert "299" in first_text(await client.result_of("continue", handle=handle, offset=290))
        assert "continue" in await client.tools()


async def test_consent_names_the_operation_as_the_client_knows_it():
    questions: list[str] = []

    def agree(question: Any) -> dict[str, Any]:
        questions.append(question["message"])
        return {}

    async with connect(library((shelf(), "books")), on_elicitation=agree) as client:
        assert await client.call("books_burn", book="Emma") == "burnt Emma"
    assert questions == ['Run books.burn with {"book":"Emma"}?']


async def test_scopes_hold_in_the_outer_server():
    books = shelf()
    books.tool(lambda: "x", name="secret", scopes=["admin"])
    async with connect(library((books, "books"))) as client:
        assert "books_secret" not in {tool.name for tool in await client.tools()}


async def test_later_changes_appear_and_are_announced():
    books = shelf()
    server = library((books, "books"))
    async with raw_client(server) as client:
        await client.handshake()
        await client.call("resources/subscribe", uri="book://books/Emma")
        books.tool(lambda: "new", name="new")
        books.remove_tool("find")
        books.resource("book://new")(every_new)
        books.remove_resource("book://{title}")
        books.remove_prompt("review")
        books.resource_updated("book://Emma")
        tools = (await client.call("tools/list"))["result"]["tools"]
        assert {tool["name"] for tool in tools} == {"where", "books_lend", "books_burn", "books_new"}
        assert (await client.call("tools/call", name="books_new", arguments={}))["result"]["content"][0][
            "text"
        ] == "new"
        resources = (await client.call("resources/list"))["result"]["resources"]
        assert {resource["uri"] for resource in resources} == {"book://books/all", "book://books/new"}
        expected = {
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/updated",
        }
        while not expected <= {message["method"] for message in client.heard}:
            client.heard.append(await client.receive())
        [updated] = [message for message in client.heard if message["method"] == "notifications/resources/updated"]
        assert updated["params"]["uri"] == "book://books/Emma"


def every_new() -> str:
    return "new"


async def test_an_operations_file_of_the_mounted_server_is_reloaded(tmp_path):
    def content(name: str) -> str:
        return json.dumps({"operations": {"loans": {name: {"name": name, "inputSchema": {"type": "object"}}}}})

    file = tmp_path / "operations.json"
    file.write_text(content("lend"))
    books = DeltaServer("books")
    books.operations(file, functions={"lend": lambda: "lent", "return": lambda: "returned"})
    server = library((books, "books"))
    operations = server.engine.catalog.operations
    assert operations["books_lend"].id == "books.loans.lend"
    async with connect(server) as client:
        assert await client.call("books_lend") == "lent"
        file.write_text(content("return"))
        await wait_until(lambda: "books_return" in operations)
        assert set(operations) == {"where", "books_return"}


def operations_server(file: Path, *names: str) -> DeltaServer:
    write_operations(file, *names)
    server = DeltaServer("inner")
    server.operations(file, functions=dict.fromkeys(("old", "new", "taken"), lambda: "inner"))
    return server


def write_operations(file: Path, *names: str) -> None:
    file.write_text(json.dumps({"operations": {name: {"inputSchema": {"type": "object"}} for name in names}}))


async def test_a_reload_that_one_outer_server_refuses_changes_no_server(tmp_path, caplog):
    file = tmp_path / "operations.json"
    inner = operations_server(file, "old", "new")
    accepting, refusing, outermost = DeltaServer("a"), DeltaServer("b"), DeltaServer("c")
    accepting.mount(inner, prefix="p")
    refusing.mount(inner, prefix="p")
    outermost.mount(accepting, prefix="q")
    refusing.tool(lambda: "own", name="p_taken")
    async with connect(refusing):
        write_operations(file, "new", "taken")
        await wait_until(lambda: "'p_taken' is registered already" in caplog.text)
        names = [list(server.engine.catalog.operations) for server in (inner, accepting, refusing, outermost)]
        assert names == [["old", "new"], ["p_old", "p_new"], ["p_old", "p_new", "p_taken"], ["q_p_old", "q_p_new"]]
        write_operations(file, "new")
        await wait_until(lambda: "p_old" not in refusing.engine.catalog.operations)
        assert list(accepting.engine.catalog.operations) == ["p_new"]
        assert list(outermost.engine.catalog.operations) == ["q_p_new"]


async def test_a_reload_leaves_what_the_outer_server_has_put_in_place_of_an_operation(tmp_path):
    file = tmp_path / "operations.json"
    inner = operations_server(file, "old")
    server = DeltaServer("outer")
    server.mount(inner, prefix="p")
    server.remove_tool("p_old")
    server.tool(lambda: "own", name="p_old")
    async with connect(server) as client:
        write_operations(file, "old", "new")
        await wait_until(lambda: set(inner.engine.catalog.operations) == {"old", "new"})
        assert await client.call("p_old") == "own" and await client.call("p_new") == "inner"
        write_operations(file, "new")
        await wait_until(lambda: set(inner.engine.catalog.operations) == {"new"})
        assert await client.call("p_old") == "own"


async def test_a_mounted_server_may_be_served_on_its_own_too():
    books = shelf()
    async with connect(library((books, "books"))) as outer, connect(books) as inner:
        assert await outer.call("books_find", query="Emma") == await inner.call("find", query="Emma") == "shelf Emma"


# Refusals


def test_a_name_that_is_taken_mounts_nothing():
    server = DeltaServer("library")
    server.tool(lambda: "x", name="books_burn")
    books = shelf()
    with pytest.raises(ConfigurationError, match=r"^test_mount\.py:\d+ .*burn: 'books_burn' is registered already"):
        server.mount(books, prefix="books")
    assert list(server.engine.catalog.operations) == ["books_burn"]
    books.tool(lambda: "x", name="new")
    assert list(server.engine.catalog.operations) == ["books_burn"]


def test_a_later_name_that_is_taken_outside_is_refused_inside():
    books = DeltaServer("books")
    server = DeltaServer("library")
    server.tool(lambda: "x", name="books_find")
    server.mount(books, prefix="books")
    with pytest.raises(ConfigurationError, match="'books_find' is registered already"):
        books.tool(lambda: "x", name="find")
    assert list(books.engine.catalog.operations) == []


def test_servers_cannot_contain_each_other():
    one, two, three = DeltaServer("one"), DeltaServer("two"), DeltaServer("three")
    one.mount(two, prefix="two")
    two.mount(three, prefix="three")
    for inner, outer in ((one, one), (one, two), (one, three)):
        with pytest.raises(ConfigurationError, match="in itself"):
            outer.mount(inner, prefix="x")


@pytest.mark.parametrize("prefix", ["a b", "a.b", "/", "_a", "x" * 65])
def test_a_prefix_is_a_part_of_an_id(prefix):
    with pytest.raises(ConfigurationError, match="prefix"):
        DeltaServer("x").mount(shelf(), prefix=prefix)


async def test_the_prefix_may_be_the_second_argument():
    inner, outer = DeltaServer("inner"), DeltaServer("outer")
    inner.tool(lambda: "x", name="find")
    outer.mount(inner, "p")
    async with connect(outer) as client:
        assert await client.call("p_find") == "x"


@pytest.mark.parametrize("arguments", [(3,), ("p", DeltaServer("inner")), (DeltaServer("inner"), 3)])
def test_what_cannot_be_mounted_is_refused_in_one_sentence(arguments):
    with pytest.raises(ConfigurationError, match=r"^(mount\(other, |The prefix 3 must)[^\n]*\.$"):
        DeltaServer("outer").mount(*arguments)


async def test_a_running_server_mounts_no_other():
    server = library()
    async with connect(server):
        with pytest.raises(ConfigurationError, match="before the server runs"):
            server.mount(shelf(), prefix="books")
    server.mount(shelf(), prefix="books")


def test_what_a_server_removes_itself_stays_removed():
    books = shelf()
    server = library((books, "books"))
    server.remove_tool("books_find")
    server.tool(lambda: "x", name="books_find")
    books.remove_tool("find")
    assert "books_find" in server.engine.catalog.operations
    assert server.engine.catalog.get(Kind.TOOLS, "books_burn") is not None
    assert asyncio.run(call(server, "books_find")) == "x"


async def call(server: DeltaServer, name: str) -> Any:
    async with connect(server) as client:
        return await client.call(name)
