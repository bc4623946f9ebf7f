"""What a hostile reader of the disclosure code found, each finding once."""

import asyncio
import logging

import pytest

from deltamcp import ConfigurationError, Context, DeltaServer, Limits, ToolError
from deltamcp.calls.operation_search import Searching
from deltamcp.catalog import prose, render
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.operation import Operation
from deltamcp.dialects import modern
from deltamcp.sources.operations import OperationsFile
from deltamcp.values import CallTool
from tests.raw import connected, text


async def nothing(arguments: dict[str, object]) -> None: ...


def operation(name: str, **options: object) -> Operation:
    said = {"description": f"Create an issue in repository {name}", "input_schema": {"type": "object"}}
    return Operation(nothing, Context, name=name, **{**said, **options})  # type: ignore[arg-type]


@pytest.fixture
def large() -> Catalog:
    catalog = Catalog("x", disclosure=Disclosure("meta"))
    for number in range(3000):
        catalog.add(operation(f"create_issue_{number}", scopes=["all"] if number > 20 else []))
    return catalog


def test_a_long_query_over_hidden_operations_is_no_attack(large):
    view = large.view()
    # It took 5 s, and takes hundredths of one.
    assert len(view.search(["create issue in the repository with words. " * 450], 5, view.operations.keys())) == 5


async def test_a_search_whose_first_caller_leaves_is_still_whole(large):
    searching = Searching(large, None, 0.7)
    view = large.view(frozenset({"all"}))

    def search():
        return searching.find(view, ["create issue in repository"], 5, view.operations.keys())

    first = asyncio.create_task(search())
    await asyncio.sleep(0.01)
    first.cancel()
    assert len(await search()) == 5
    assert large.unindexed == 0


async def test_an_error_stays_an_error_however_long():
    server = DeltaServer("x", disclosure="meta")

    @server.tool
    async def fails() -> None:
        raise ToolError("word " * 30_000)

    async with connected(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name="execute", arguments={"operation": "fails"})
        assert answer["result"]["isError"] is True
        assert text(answer) == "word " * 30_000, "a failure is told whole"


async def test_the_audit_never_breaks_a_call(caplog):
    server = DeltaServer("x")

    @server.tool
    async def double(number: int) -> str:
        return str(number % 7)

    caplog.set_level(logging.INFO, "deltamcp.calls.call_log")
    async with connected(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name="double", arguments={"number": 10**400})
    assert text(answer) == str(10**400 % 7)
    assert "operation=double" in caplog.text


def test_a_header_of_a_hidden_tool_is_not_asked_for():
    catalog = Catalog("x")
    schema = {"type": "object", "properties": {"tenant": {"type": "string", "x-mcp-header": "tenant"}}}
    catalog.add(operation("secret", scopes=["admin"], input_schema=schema))
    ask = CallTool("secret", {"tenant": "a"})
    assert modern.check_parameter_headers(ask, {}, catalog.view().operations) is None
    assert modern.check_parameter_headers(ask, {}, catalog.view(frozenset({"admin"})).operations) is not None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("discover", {"query": "x", "cursor": "²"}),
        ("discover", {"query": "x", "cursor": "99999"}),
        ("execute", {"operation": "free", "params": "[" * 100_000}),
        ("execute", {"operation": "free", "params": '{"a":' * 500 + "1" + "}" * 500}),
        ("execute", {"operation": "free", **{f"k{number}": "x" * 100 for number in range(1000)}}),
    ],
)
async def test_odd_arguments_are_the_callers_mistake(tool, arguments):
    server = DeltaServer("x", disclosure="meta")

    @server.tool
    async def free(a: int = 0) -> None: ...

    async with connected(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name=tool, arguments=arguments)
    assert answer["result"]["isError"] is True
    assert "log says why" not in text(answer) and len(text(answer)) < 1000


def test_a_replacement_that_fails_leaves_no_trace():
    catalog = Catalog("x", disclosure=Disclosure("meta"))
    for name in ("a", "b", "mine"):
        catalog.add(operation(name))
    before = list(catalog.operations), catalog.version
    with pytest.raises(ConfigurationError):
        catalog.replace(["a", "b"], [operation("c"), operation("mine")])
    assert (list(catalog.operations), catalog.version) == before
    catalog.remove(catalog.add(operation("d")), "d")
    catalog.replace(["a", "gone"], [operation("c")])
    assert list(catalog.operations) == ["b", "mine", "c"]


def test_scopes_that_nobody_needs_any_more_hide_nothing():
    catalog = Catalog("x")
    catalog.add(operation("a"))
    kind = catalog.add(operation("b", scopes=["s"]))
    assert list(catalog.view().operations) == ["a"]
    catalog.remove(kind, "b")
    assert catalog.view(frozenset({"s"})) is catalog.view()


def test_limits_of_nought_are_told():
    node = {"type": "integer", "minimum": 0, "maximum": 0}
    tool = {"name": "f", "inputSchema": {"properties": {"a": node, "b": {"prefixItems": [{"type": "integer"}, {}]}}}}
    tool["inputSchema"]["properties"]["b"]["type"] = "array"  # type: ignore[index]
    assert render.whole(tool) == "f(a?:int(>=0, <=0), b?:[int, any])"


@pytest.mark.parametrize("wide", ["a" + "\n" * 50_000 + "b", "a" + " " * 100_000 + "b", "a. " * 50_000])
def test_wide_texts_are_cut_all_the_same(wide):
    # It took 20 s where every end was looked at from the start.
    assert len(prose.cut(wide, 60)) <= 60
    assert len(prose.summary(wide)) <= 60
    assert prose.whole(wide).split() == wide.split()


async def test_a_hanging_embedder_does_not_hang_the_search(monkeypatch):
    monkeypatch.setattr("deltamcp.calls.operation_search._PATIENCE_SECONDS", 0.05)

    async def hangs(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(60)
        return []

    catalog = Catalog("x")
    catalog.add(operation("create_issue"))
    view = catalog.view()
    found = await Searching(catalog, hangs, 0.7).find(view, ["create issue"], 5, view.operations.keys())
    assert [one.name for one in found] == ["create_issue"]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_an_edit_after_a_tool_was_taken_out_is_still_followed(tmp_path):
    file = tmp_path / "operations.json"
    leaf = '{"inputSchema": {"type": "object"}, "handler": {"kind": "python", "ref": "os:getcwd"}}'
    file.write_text(f'{{"operations": {{"c": {{"a": {leaf}, "b": {leaf}}}}}}}')
    server = DeltaServer("x")
    server.operations(file)
    server.remove_tool("c.a")
    file.write_text(f'{{"operations": {{"c": {{"b": {leaf}, "d": {leaf}}}}}}}')
    followed = OperationsFile(file, {}, {})
    followed.use(followed.load(), lambda old, new: None)
    server._exchange(["c.a", "c.b"], followed.load().operations)
    assert list(server.engine.catalog.operations) == ["c.b", "c.d"]


def test_limits_are_numbers_above_nought():
    for options in ({"threads": 0}, {"threads": -3}, {"handler_seconds": "x"}):
        with pytest.raises(ConfigurationError, match="above 0"):
            Limits(**options)
