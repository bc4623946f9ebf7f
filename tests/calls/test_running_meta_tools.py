"""Which meta-tool runs which operation, so that permissions of a host mean what their names say."""

import pytest

from deltamcp import DeltaServer, Disclosure, connect
from deltamcp.catalog.meta_tools import RUNNING_META_TOOLS, MetaTool
from deltamcp.errors import CallFailedError

READ, DESTROY = {"readOnlyHint": True}, {"destructiveHint": True}


def server(**switches):
    server = DeltaServer("shop", disclosure=Disclosure("meta", **switches))
    for name, annotations in (
        ("read", READ),
        ("destroy", DESTROY),
        ("add", {"destructiveHint": False}),
        ("unknown", {}),
        ("both", READ | DESTROY),
    ):

        @server.tool(name=name, description=f"The shop's {name}", annotations=annotations)
        async def run() -> str:
            return "done"

    return server


RUNS = {
    "execute": {"read", "add", "unknown"},
    "query": {"read"},
    "execute_destructive": {"read", "destroy", "add", "unknown", "both"},
}


@pytest.mark.parametrize("meta", RUNS)
async def test_each_meta_tool_runs_what_its_permission_covers(meta):
    async with connect(server(query=True, destructive=True), progressive=False) as client:
        done = set()
        for name in RUNS["execute_destructive"]:
            reply = await client.call_tool(meta, {"operation": name})
            if reply.is_error:
                right = "execute_destructive" if name in ("destroy", "both") else "execute"
                assert reply.text.rstrip().endswith(f"use {right}."), reply.text
            else:
                done.add(name)
        assert done == RUNS[meta]


async def test_what_says_that_it_reads_only_and_that_it_destroys_counts_as_destructive():
    async with connect(server(query=True), progressive=False) as client:
        with pytest.raises(CallFailedError, match=r"both is declared destructive; use execute\.$"):
            await client.call("query", operation="both")
        assert await client.call("execute", operation="both") == "done"


async def test_without_the_twin_execute_runs_all():
    async with connect(server(), progressive=False) as client:
        assert await client.call("execute", operation="destroy") == "done"
        with pytest.raises(Exception, match="execute_destructive"):
            await client.call("execute_destructive", operation="destroy")


async def test_answers_say_what_runs_an_operation():
    async with connect(server(query=True, destructive=True), progressive=False) as client:
        assert (await client.call_tool("get_schema", {"operation": ["read"]})).text.endswith("\nRun with query.")
        assert (await client.call_tool("get_schema", {"operation": ["destroy"]})).text.endswith(
            "\nRun with execute_destructive."
        )
        assert "Run with" not in (await client.call_tool("get_schema", {"operation": ["add"]})).text
        hits = (await client.call_tool("discover", {"query": ["shop"]})).text
        assert "Run with execute_destructive: both, destroy.\nRun with query: read." in hits
    async with connect(server(), progressive=False) as client:
        assert "Run with" not in (await client.call_tool("discover", {"query": ["shop"]})).text


async def test_annotations_of_the_meta_tools():
    async with connect(server(query=True, destructive=True), progressive=False) as client:
        listed = {tool["name"]: tool["annotations"] for tool in (await client.request("tools/list"))["tools"]}
    assert {meta.value for meta in RUNNING_META_TOOLS} == {"execute", "query", "execute_destructive"}
    assert listed[MetaTool.QUERY.value]["readOnlyHint"] is True
    assert listed[MetaTool.QUERY.value]["destructiveHint"] is False
    for meta in (MetaTool.EXECUTE, MetaTool.EXECUTE_DESTRUCTIVE):
        assert (listed[meta.value]["readOnlyHint"], listed[meta.value]["destructiveHint"]) == (False, True)


async def test_an_operation_may_have_hints_of_any_shape():
    from deltamcp.catalog.items.remote_items import RemoteOperation

    async def call(arguments, context):
        raise AssertionError

    for annotations in ("x", [1], 5, {"readOnlyHint": "yes", "destructiveHint": 1}):
        operation = RemoteOperation(call, {"name": "odd", "annotations": annotations})
        assert not operation.is_read_only and not operation.is_destructive and not operation.may_rerun


async def test_a_refusal_is_an_error_of_the_tool():
    async with connect(server(destructive=True), progressive=False) as client:
        with pytest.raises(CallFailedError, match="declared destructive; use execute_destructive"):
            await client.call("execute", operation="destroy")


@pytest.mark.parametrize(
    "date", ["2026-11-19", "2026-11-19T20:00:00Z", "20261119", "1763500000", "1763500000000", "yesterday"]
)
async def test_an_operation_whose_parameter_is_called_since_gets_its_own_and_no_handle(date):
    made = DeltaServer("git", disclosure=Disclosure("meta"))
    rows = [{"id": number, "title": f"Issue {number} of the tracker"} for number in range(80)]

    @made.tool(name="issues", annotations=READ)
    async def list_issues(since: str = "") -> dict[str, object]:
        return {"since": since, "items": rows}

    async with connect(made, progressive=False) as client:

        async def run(**arguments):
            return await client.call_tool("execute", {"operation": "issues", **arguments})

        assert (await run(params={"since": date})).value["since"] == date
        stray = await run(since=date)
        assert stray.value["since"] == date and "Moved since into params" in stray.text
        first = await run()
        assert (await run(since=first.handle)).text == f"Executed now: same 80 rows as {first.handle}"
        changed = await run(params={"since": date}, since=first.handle)
        assert changed.text.startswith(
            f"Changed since {first.handle}, now "
        ) and f"since={date}" in changed.text.replace('"', "")
        assert (await run(since="")).value["since"] == ""
