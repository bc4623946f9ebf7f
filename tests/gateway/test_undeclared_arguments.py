"""Arguments that a tool's schema does not declare: the model is told, and they are refused where the schema forbids
them.
"""

import json
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.results.policy import ResultPolicy
from deltamcp.tokens import count
from tests.support.listing_upstream import ListingUpstream, gateway, tool

PATH = {"path": {"type": "string"}}
OPEN = tool("read_log", inputSchema={"type": "object", "properties": PATH})
CLOSED = tool("read_log", inputSchema={"type": "object", "properties": PATH, "additionalProperties": False})
NOTE = "logs.read_log has no parameter grep."


def logs(folder, definition, **options: Any):
    upstream = ListingUpstream(folder, "logs", tools=[definition], **options)
    return gateway(folder, upstream.config(), disclosure="meta", results=ResultPolicy(max_tokens=500)).server


async def execute(client, **params: Any):
    arguments = {"operation": "logs.read_log", "params": params}
    return await client.request("tools/call", {"name": "execute", "arguments": arguments})


def texts(reply):
    return [block["text"] for block in reply["content"]]


async def test_the_reply_tells_what_the_operation_does_not_take(tmp_path):
    async with connect(logs(tmp_path, OPEN), progressive=False) as client:
        reply = await execute(client, path="a", grep="b")
        assert NOTE in texts(reply)[-1]
        assert json.loads(texts(reply)[0])["arguments"] == {"path": "a", "grep": "b"}, "the other server decides"
        assert NOTE not in "".join(texts(await execute(client, path="a")))
        many = texts(await execute(client, **{f"word{number}" * 20: number for number in range(50)}))
        note = many[-1].splitlines()[-1]
        assert note.startswith("(logs.read_log has no parameters word0") and note.endswith("… and 47 more.)")


async def test_the_note_counts_towards_the_budget(tmp_path):
    result = {"content": [{"type": "text", "text": "a line of the log\n" * 2000}]}
    async with connect(logs(tmp_path, OPEN, result=result), progressive=False) as client:
        reply = await execute(client, grep="b")
        assert NOTE in "".join(texts(reply)) and sum(map(count, texts(reply))) <= 500


async def test_what_is_inside_an_argument_is_told_and_refused_too(tmp_path):
    open_filter, closed_filter = OPEN["inputSchema"], CLOSED["inputSchema"]
    definition = tool("read_log", inputSchema={"type": "object", "properties": {"a": open_filter, "b": closed_filter}})
    upstream = ListingUpstream(tmp_path, "logs", tools=[definition])
    async with connect(gateway(tmp_path, upstream.config(), disclosure="meta").server, progressive=False) as client:
        assert "(logs.read_log has no parameter a.grep.)" in texts(await execute(client, a={"grep": "x"}))[-1]
        reply = await execute(client, b={"path": "x", "grep": "x"})
        assert reply["isError"] and "b.grep: no such parameter." in texts(reply)[0]
        assert upstream.requests().count("tools/call") == 1


async def test_query_and_pinned_tools_tell_and_refuse_as_execute_does(tmp_path):
    read_only = {"annotations": {"readOnlyHint": True}}
    upstream = ListingUpstream(tmp_path, "logs", tools=[{**OPEN, **read_only}, {**CLOSED, **read_only, "name": "tail"}])
    config = upstream.config(pinned=["read_log"])
    async with connect(gateway(tmp_path, config, disclosure="meta", query=True).server, progressive=False) as client:
        for name in ("query", "execute"):
            for operation, told in (("logs.read_log", NOTE), ("logs.tail", "grep: no such parameter.")):
                arguments = {"operation": operation, "params": {"grep": "b"}}
                reply = await client.request("tools/call", {"name": name, "arguments": arguments})
                assert told in "".join(texts(reply)) and bool(reply.get("isError")) == (operation == "logs.tail")
        reply = await client.request("tools/call", {"name": "read_log", "arguments": {"grep": "b"}})
        assert texts(reply)[-1] == "(read_log has no parameter grep.)"
        assert upstream.requests().count("tools/call") == 3


async def test_a_schema_that_forbids_others_has_them_refused_unsent(tmp_path):
    upstream = ListingUpstream(tmp_path, "logs", tools=[CLOSED])
    async with connect(gateway(tmp_path, upstream.config(), disclosure="meta").server, progressive=False) as client:
        reply = await execute(client, path="a", grep="b")
        assert reply["isError"] and "grep: no such parameter. Call logs.read_log(path?)" in texts(reply)[0]
        assert "tools/call" not in upstream.requests()
        assert not (await execute(client, path="a")).get("isError")


@pytest.mark.parametrize("budget", [ResultPolicy(max_tokens=500), None])
async def test_a_direct_call_is_told_too_and_its_structured_content_stays(budget, tmp_path):
    result = {"content": [{"type": "text", "text": '{"lines": 3}'}], "structuredContent": {"lines": 3}}
    schema = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
    upstream = ListingUpstream(tmp_path, "logs", tools=[{**OPEN, "outputSchema": schema}], result=result)
    made = gateway(tmp_path, upstream.config(), disclosure="full", results=budget)
    async with connect(made.server, progressive=False) as client:
        reply = await client.request("tools/call", {"name": "read_log", "arguments": {"grep": "b"}})
        assert reply["structuredContent"] == {"lines": 3}
        assert json.loads(texts(reply)[0]) == {"lines": 3}
        assert texts(reply)[-1] == "(read_log has no parameter grep.)"
        assert await client.call("read_log", path="a") == {"lines": 3}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": PATH, "additionalProperties": True},
        {"type": "object", "properties": PATH, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": PATH, "patternProperties": {"(a+)+$": {}}},
        {"type": "object", "anyOf": [{"properties": PATH}, {"properties": {"grep": {}}}]},
    ],
)
async def test_nothing_is_said_where_a_schema_may_admit_the_argument(schema, tmp_path):
    async with connect(logs(tmp_path, tool("read_log", inputSchema=schema)), progressive=False) as client:
        assert json.loads("".join(texts(await execute(client, grep="a" * 40)))) == {
            "name": "read_log",
            "arguments": {"grep": "a" * 40},
        }


@pytest.mark.parametrize(
    "result",
    [
        {"content": []},
        {"content": [{"type": "text", "text": ""}]},
        {"content": [{"type": "text", "text": ""}, {"type": "text", "text": "\n"}]},
        {},
    ],
)
async def test_an_empty_reply_says_so(result, tmp_path):
    async with connect(logs(tmp_path, OPEN, result=result), progressive=False) as client:
        assert "".join(texts(await execute(client))).strip() == "(empty result)"
    upstream = ListingUpstream(tmp_path, "logs", tools=[OPEN], result=result)
    values = []
    for policy in (ResultPolicy(max_tokens=500), None):
        async with connect(gateway(tmp_path, upstream.config(), results=policy).server, progressive=False) as client:
            reply = await client.request("tools/call", {"name": "read_log", "arguments": {}})
            assert ("(empty result)" in json.dumps(reply)) == (policy is not None), "without a policy it is passed on"
            values.append(await client.call("read_log"))
    assert values[0] == values[1]


@pytest.mark.parametrize(("value", "text"), [([], "[]"), ({}, "{}"), (None, "null")])
async def test_a_value_is_no_empty_reply(value, text, tmp_path):
    structured = value if isinstance(value, dict) else {"result": value}
    async with connect(
        logs(tmp_path, OPEN, result={"content": [], "structuredContent": structured}), progressive=False
    ) as client:
        assert texts(await execute(client)) == [text]


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": {"rows": []}},
        {"content": [{"type": "text", "text": "null"}]},
        {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
    ],
)
async def test_structured_content_and_other_blocks_are_no_empty_reply(result, tmp_path):
    async with connect(logs(tmp_path, OPEN, result=result), progressive=False) as client:
        assert "(empty result)" not in json.dumps(await execute(client))
