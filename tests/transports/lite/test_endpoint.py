"""MCP-lite over HTTP: its paths, what they take and return, and the status of every response."""

import asyncio
import hashlib
import json
import logging
import re
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from deltamcp import Context, DeltaServer, Disclosure, Limits, Rate, RateLimits, StaticTokens
from deltamcp.auth.static_tokens import make_token
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.errors import ConfigurationError
from deltamcp.values import Kind, Surface
from tests.support.asgi_client import AsgiExchange
from tests.support.conditions import HANG_SECONDS
from tests.support.lite_client import PREFIX, SEARCH_SCHEMA, LiteClient, lite_client, lite_server
from tests.support.loop_iterations import LoopIterations

CALL_PATHS = ["calltools", "calltool", "rpc", "tools/call", "calltoolsEndpoint"]
LIST_PATHS = ["listtools", "tools", "tools/list"]
ADD = {"jsonrpc": "2.0", "id": "call-001", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}


# Discovery


async def test_ml_1_discovery_returns_the_tools():
    async with lite_client(lite_server()) as client:
        names = [tool["name"] for tool in (await client.send("listtools", {})).json()]
        assert names == ["search_documents", "add", "fails", "no_docstring"]


async def test_ml_75_listtools_returns_an_array():
    async with lite_client(lite_server()) as client:
        array = (await client.send("listtools", {})).json()
        assert isinstance(array, list) and array[0]["inputSchema"] == SEARCH_SCHEMA
        assert (await client.send("listtools", {"shape": "object"})).json() == {"tools": array}


async def test_ml_76_tools_returns_an_object():
    async with lite_client(lite_server()) as client:
        array = (await client.send("listtools", {})).json()
        for path in ("tools", "tools/list"):
            assert (await client.send(path, {})).json() == {"tools": array}
        assert (await client.send("tools", {"shape": "array"})).json() == array
        assert (await client.send("tools", {"shape": "round"})).status == 400


async def test_an_empty_body_is_an_empty_object_and_unknown_keys_are_ignored():
    async with lite_client(lite_server()) as client:
        wanted = (await client.send("listtools", {})).json()
        assert (await client.send("listtools", b"", headers={"content-type": ""})).json() == wanted
        assert (await client.send("listtools", {"unheard": 1})).json() == wanted


@pytest.mark.parametrize("path", [*LIST_PATHS, *CALL_PATHS])
async def test_a_list_by_json_rpc_is_answered_by_json_rpc_on_every_path(path):
    async with lite_client(lite_server()) as client:
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
        result = (await client.send(path, body)).result()
        assert len(result["tools"]) == 4
        assert result["_meta"] == {"response_type": "answer", "server_version": "1.2"}


def test_ml_2_a_second_tool_of_the_same_name_is_refused():
    server = lite_server()
    with pytest.raises(ConfigurationError, match="add"):
        server.tool(lambda: "", name="add", description="Again.")


async def test_ml_3_every_definition_has_a_name_a_description_and_a_schema():
    async with lite_client(lite_server()) as client:
        tools = (await client.send("listtools", {})).json()
        for tool in tools:
            assert tool["name"] and tool["description"].strip() and tool["inputSchema"]["type"] == "object"
        assert tools[-1]["description"] == "No docstring."


async def test_ml_4_the_type_is_left_out_where_the_author_set_none():
    async with lite_client(lite_server()) as client:
        types = {tool["name"]: tool.get("@type") for tool in (await client.send("listtools", {})).json()}
        assert types == {"search_documents": "query", "add": None, "fails": "broken", "no_docstring": None}
    async with lite_client(lite_server(), mcp_lite={"default_type": "tool"}) as client:
        types = {tool["name"]: tool["@type"] for tool in (await client.send("listtools", {})).json()}
        assert types["add"] == "tool" and types["search_documents"] == "query"
        described = (await client.rpc("tools/describe", {"name": "add"})).result()
        assert described["@type"] == "tool"


def promising_server(**options: Any) -> DeltaServer:
    server = lite_server(**options)

    @server.tool(promise="auto", type="analysis")
    async def analyze_dataset(dataset_id: str) -> str:
        """Analyze a dataset."""
        return dataset_id

    return server


async def test_ml_5_a_server_with_promises_lists_redeem_in_every_list():
    lists: list[dict[str, Any]] = [{}, {"detail": "index"}, {"type": "query"}, {"query": "search"}, {"type": "none"}]
    async with lite_client(promising_server()) as client:
        for body in lists:
            tools = (await client.send("listtools", body)).json()
            assert tools[0]["name"] == "redeem" and tools[0]["@type"] == "system", body
    async with lite_client(promising_server(disclosure=Disclosure("meta", minimum=1))) as client:
        names = [tool["name"] for tool in (await client.send("listtools", {})).json()]
        assert names[:2] == ["redeem", "discover"]


async def test_ml_6_without_promises_redeem_is_an_unknown_tool():
    async with lite_client(lite_server()) as client:
        error = (await client.call("redeem", {"promise": "prom_x"})).error()
        assert (error["code"], error["message"]) == (-32601, "Tool not found")


def test_redeem_is_no_name_of_a_tool_beside_one_with_promises():
    with pytest.raises(ConfigurationError, match="redeem"):
        promising_server().tool(lambda: "", name="redeem", description="Redeem a coupon.")
    server = lite_server()
    server.tool(lambda: "", name="redeem", description="Redeem a coupon.")
    with pytest.raises(ConfigurationError, match="redeem"):
        server.tool(lambda: "", name="other", description="x", promise="auto")


async def test_ml_7_the_schema_is_the_authors():
    async with lite_client(lite_server()) as client:
        [found] = (await client.send("listtools", {"type": "query"})).json()
        assert found["inputSchema"] == SEARCH_SCHEMA


async def test_ml_8_lists_are_equal_byte_by_byte_with_redeem_first():
    by_rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with lite_client(promising_server()) as client:
        for path, body in (("listtools", {}), ("tools", {}), ("rpc", by_rpc)):
            first, second = [await client.send(path, body) for _ in range(2)]
            assert first.body == second.body
        names = [tool["name"] for tool in (await client.send("listtools", {})).json()]
        assert names == ["redeem", "search_documents", "add", "fails", "no_docstring", "analyze_dataset"]


async def test_ml_9_only_tools_whose_names_mcp_lite_allows_are_listed():
    server = lite_server()
    foreign = FunctionOperation(
        lambda: "x", Context, name="with space", description="Have a space, as another server's."
    )
    server.engine.catalog.add(foreign)
    with pytest.raises(ConfigurationError, match="letters"):
        server.tool(lambda: "x", name="own space", description="Have a space.")
    async with lite_client(server) as client:
        assert "with space" not in {tool["name"] for tool in (await client.send("listtools", {})).json()}
        assert (await client.call("with space")).result()["content"][0]["text"] == "x"


async def test_an_index_has_no_schemas_and_describe_has_them():
    async with lite_client(lite_server()) as client:
        tools = (await client.send("listtools", {"detail": "index"})).json()
        assert tools[0] == {
            "name": "search_documents",
            "@type": "query",
            "description": "Search through available documents",
            "inputSchema": {"type": "object"},
            "_meta": {"schema": "deferred"},
        }
        assert all(0 < len(tool["description"]) <= 60 for tool in tools)
        described = (await client.rpc("tools/describe", {"names": ["search_documents"]})).result()
        assert described["tools"][0]["inputSchema"] == SEARCH_SCHEMA


async def test_a_query_lists_what_a_search_finds():
    async with lite_client(lite_server()) as client:
        assert [tool["name"] for tool in (await client.send("listtools", {"query": "add numbers"})).json()] == ["add"]
        found = (await client.send("listtools", {"query": "documents", "type": "broken"})).json()
        assert found == []


async def test_pages_have_a_cursor_in_an_object_and_are_whole_in_an_array():
    async with lite_client(lite_server(page_size=3)) as client:
        first = (await client.send("tools", {})).json()
        assert len(first["tools"]) == 3
        rest = (await client.send("tools", {"cursor": first["nextCursor"]})).json()
        assert len(rest["tools"]) == 1 and "nextCursor" not in rest
        assert len((await client.send("listtools", {})).json()) == 4
        reply = await client.send("tools", {"cursor": "x"})
        assert (reply.status, reply.error()["data"]) == (400, {"reason": "INVALID_PARAMS", "retryable": False})


async def test_mcp_lists_have_nothing_of_mcp_lite():
    server = promising_server()
    page = server.engine.catalog.view().page
    listed = page(Kind.TOOLS, Surface.FULL, None)
    assert listed is not None
    assert all("@type" not in tool for tool in listed.items)
    assert "redeem" not in {tool["name"] for tool in listed.items}


async def test_ml_40_redeem_has_one_required_parameter():
    async with lite_client(promising_server()) as client:
        redeem = (await client.send("listtools", {})).json()[0]
        schema = redeem["inputSchema"]
        assert (redeem["name"], redeem["@type"], schema["required"]) == ("redeem", "system", ["promise"])
        assert schema["properties"]["promise"]["type"] == "string"
        assert (await client.call("redeem", {})).error()["code"] == -32602
        unknown = (await client.call("redeem", {"promise": "prom_" + "a" * 26})).error()
        assert (unknown["code"], unknown["data"]["reason"]) == (-32602, "PROMISE_UNKNOWN")


# Calls


@pytest.mark.parametrize("path", CALL_PATHS)
async def test_ml_77_a_call_is_json_rpc(path):
    async with lite_client(lite_server()) as client:
        reply = await client.send(path, ADD)
        assert reply.status == 200
        assert reply.json()["id"] == "call-001"
        assert reply.result()["content"] == [{"type": "text", "text": "3"}]


async def test_ml_78_meta_is_inside_the_result():
    async with lite_client(lite_server()) as client:
        meta = (await client.send("calltools", ADD)).result()["_meta"]
        assert (meta["response_type"], meta["server_version"]) == ("answer", "1.2")
        assert meta["timestamp"].endswith("Z") and type(meta["processing_time_ms"]) is int


async def test_ml_61_no_session_is_issued_nor_taken():
    async with lite_client(lite_server()) as client:
        for path, body in (("rpc", ADD), ("listtools", {})):
            reply = await client.send(path, body, headers={"mcp-session-id": "unheard-of"})
            assert reply.status == 200
            assert not [name for name in reply.headers if "session" in name or "cookie" in name]


@pytest.mark.parametrize("id_", [0, -7, 2**53 + 1, 10**40, "", "ünïcode", "x" * 256])
async def test_ml_78_an_id_comes_back_exactly(id_):
    async with lite_client(lite_server()) as client:
        found = (await client.rpc("tools/call", {"name": "add", "arguments": {"a": 1}}, id_)).json()["id"]
        assert (found, type(found)) == (id_, type(id_))


async def test_ml_11_wrong_arguments_are_an_error_and_the_tool_is_not_entered():
    server = lite_server()
    async with lite_client(server) as client:
        for arguments in ({}, {"query": 3}, {"query": "x", "limit": 1000}):
            error = (await client.call("search_documents", arguments)).error()
            assert error["code"] == -32602
        assert server.seen == []  # type: ignore[attr-defined]


async def test_ml_13_defaults_are_filled_in():
    server = lite_server()
    async with lite_client(server) as client:
        await client.call("search_documents", {"query": "x"})
        await client.call("search_documents", {"query": "x", "limit": 5})
        assert [seen["limit"] for seen in server.seen] == [10, 5]  # type: ignore[attr-defined]
        assert (await client.call("add", {"a": 1})).result()["content"][0]["text"] == "3"


async def test_ml_26_a_tools_failure_is_a_result():
    async with lite_client(lite_server()) as client:
        reply = await client.call("fails")
        result = reply.result()
        assert reply.status == 200
        assert (result["isError"], result["_meta"]["response_type"]) == (True, "failure")
        assert result["error"]["message"] == "the disk is full"


async def test_ml_90_an_unknown_tool_is_named_with_those_there_are():
    async with lite_client(lite_server()) as client:
        error = (await client.call("searchDocument")).error()
        assert (error["code"], error["message"]) == (-32601, "Tool not found")
        assert error["data"] == {
            "reason": "TOOL_NOT_FOUND",
            "retryable": False,
            "requested_tool": "searchDocument",
            "available_tools": ["search_documents", "add", "fails", "no_docstring"],
            "available_tools_total": 4,
            "suggestion": "Did you mean 'search_documents'?",
        }
        assert "suggestion" not in (await client.call("nonexistent_tool")).error()["data"]
        assert len((await client.call("x" * 1000)).error()["data"]["requested_tool"]) == 128


async def test_of_many_tools_the_most_similar_twenty_are_named():
    server = DeltaServer("many")
    for number in range(300):
        server.tool(lambda: "", name=f"tool_{number}", description="One of many.")
    server.tool(lambda: "", name="weather_report", description="Tell the weather.", scopes=["secret"])
    async with lite_client(server) as client:
        data = (await client.call("tools_299")).error()["data"]
        assert len(data["available_tools"]) == 20 and data["available_tools"][0] == "tool_299"
        assert (data["available_tools_total"], data["suggestion"]) == (300, "Did you mean 'tool_299'?")
        assert "suggestion" not in (await client.call("weather_reports")).error()["data"]


async def test_raw_content_is_that_of_the_example():
    async with lite_client(lite_server(), mcp_lite={"content_style": "raw"}) as client:
        result = (await client.call("search_documents", {"query": "x"})).result()
        assert result["content"] == [{"document_id": "doc_123", "title": "MCP Protocol Overview"}]


# What HTTP says


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_ml_71_only_post_is_taken(method):
    async with lite_client(lite_server()) as client:
        for path in ("rpc", "listtools"):
            reply = await client.send(path, b"", method)
            assert (reply.status, reply.headers["allow"]) == (405, "POST")


async def test_ml_80_there_is_no_stream_to_get():
    async with lite_client(lite_server()) as client:
        for path in (*CALL_PATHS, *LIST_PATHS):
            assert (await client.send(path, b"", "GET", {"accept": "text/event-stream"})).status == 405


async def test_ml_71_options_is_for_browsers_of_allowed_origins():
    async with lite_client(lite_server(), allowed_origins=["https://app.example"]) as client:
        headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
        reply = await client.send("rpc", b"", "OPTIONS", headers)
        assert (reply.status, reply.headers["access-control-allow-methods"]) == (204, "POST")
        assert "prefer" in reply.headers["access-control-allow-headers"]
        called = await client.send("rpc", ADD, headers={"origin": "https://app.example"})
        assert called.headers["access-control-allow-origin"] == "https://app.example"
        refused = await client.send("rpc", ADD, headers={"origin": "https://evil.example"})
        assert (refused.status, refused.error()["data"]["reason"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ('Application/JSON;charset="UTF-8"; x=y', 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/cbor", 415),
        ("application/jsonx", 415),
        ("", 415),
    ],
)
async def test_ml_72_bodies_are_json(content_type, status):
    async with lite_client(lite_server()) as client:
        reply = await client.send("rpc", ADD, headers={"content-type": content_type})
        assert reply.status == status
        assert status == 200 or reply.error()["code"] == -32600


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("", 200),
        ("*/*", 200),
        ("application/*", 200),
        ("application/json, text/event-stream", 200),
        ("text/event-stream;q=0.5, application/json", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/cbor", 406),
    ],
)
async def test_what_a_client_accepts(accept, status):
    async with lite_client(lite_server()) as client:
        reply = await client.send("rpc", ADD, headers={"accept": accept})
        assert reply.status == status
        assert status == 200 or reply.error()["data"]["reason"] == "INVALID_REQUEST"


async def test_ml_74_the_prefix_can_be_chosen_and_the_root_too():
    async with lite_client(lite_server(), "/lite", {"prefix": "lite/"}) as client:
        assert (await client.send("rpc", ADD)).status == 200
    async with lite_client(lite_server(), "", {"root_aliases": True}) as client:
        assert "tools" in (await client.send("tools", {})).json()
        assert (await client.send("rpc", ADD)).status == 200
        assert (await client.send(f"{PREFIX[1:]}/rpc", ADD)).status == 200
    async with lite_client(lite_server()) as client:
        for path in ("", "nothing", "rpc/more"):
            reply = await client.send(path, ADD)
            assert (reply.status, reply.error()["data"]["reason"]) == (404, "METHOD_NOT_FOUND")
        assert (await client.send("rpc/", ADD)).status == 200


async def test_mcp_lite_can_be_switched_off_and_compat_has_none():
    without: list[dict[str, Any]] = [{"mcp_lite": False}, {"compat": True}]
    for options in without:
        async with lite_client(lite_server(), **options) as client:
            reply = await client.send("rpc", ADD)
            assert reply.status == 404 or "_meta" not in reply.json().get("result", {})


@pytest.mark.parametrize("wrong", [{"prefixes": ""}, {"content_style": "x"}, {"promise_http_status": 201}, 3])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="mcp_lite"):
        lite_server().asgi(mcp_lite=wrong)


# Errors


@pytest.mark.parametrize(
    "body", [b"\x80", b'{"jsonrpc":"2.0\xff"}', b'{"jsonrpc":"\xc3\x28"}', b"\xed\xa0\x80", b"\x00"]
)
async def test_ml_73_what_is_no_utf_8_is_a_parse_error(body):
    async with lite_client(lite_server()) as client:
        for path in ("calltools", "listtools"):
            reply = await client.send(path, body)
            assert (reply.status, reply.error()["code"], reply.json()["id"]) == (400, -32700, None)


async def test_ml_73_other_scripts_come_back_as_they_were():
    async with lite_client(lite_server()) as client:
        error = (await client.call("größe ≠ 漢字 🙂")).error()
        assert error["data"]["requested_tool"] == "größe ≠ 漢字 🙂"


@pytest.mark.parametrize("body", [b"{", b"", b"[" * 200, b'{"a": 1e999}', b"nul", b'{"a":1,}'])
async def test_ml_85_what_is_no_json_is_a_parse_error(body):
    async with lite_client(lite_server()) as client:
        reply = await client.send("calltools", body)
        assert (reply.status, reply.error()["code"], reply.json()["id"]) == (400, -32700, None)
        assert reply.error()["data"] == {"reason": "PARSE_ERROR", "retryable": False}
        if body:
            assert (await client.send("listtools", body)).error()["code"] == -32700


def call_with(**fields: Any) -> dict[str, Any]:
    return {**ADD, **fields}


@pytest.mark.parametrize(
    "body",
    [
        call_with(jsonrpc="1.0"),
        call_with(jsonrpc=2),
        {key: value for key, value in ADD.items() if key != "jsonrpc"},
        call_with(method=3),
        call_with(params=[1]),
        call_with(id=True),
        call_with(id=None),
        call_with(id=1.5),
        call_with(id=[]),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        [],
        "text",
        3,
    ],
)
async def test_ml_86_an_invalid_request(body):
    async with lite_client(lite_server()) as client:
        reply = await client.send("rpc", body)
        assert (reply.status, reply.error()["code"]) == (400, -32600)


@pytest.mark.parametrize("method", ["foo/bar", "initialize", "resources/list", "prompts/list", "logging/setLevel"])
async def test_ml_87_an_unknown_method(method):
    async with lite_client(lite_server()) as client:
        reply = await client.rpc(method, {})
        assert (reply.status, reply.error()["code"]) == (200, -32601)
        assert reply.error()["data"]["reason"] == "METHOD_NOT_FOUND"


async def test_ml_88_invalid_params():
    wrong: list[Any] = [{}, {"name": 3}, {"name": "add", "arguments": None}, {"name": "add", "_meta": 3}]
    async with lite_client(lite_server()) as client:
        for params in wrong:
            reply = await client.rpc("tools/call", params)
            assert (reply.status, reply.error()["code"]) == (200, -32602)
            assert reply.error()["data"]["reason"] == "INVALID_PARAMS"


async def test_a_result_that_json_cannot_express_is_an_internal_error(caplog):
    server = lite_server()

    @server.tool
    async def surrogate() -> dict[str, str]:
        """Return half a character."""
        return {"text": "\ud800"}

    async with lite_client(server) as client:
        with caplog.at_level(logging.CRITICAL):
            reply = await client.call("surrogate")
        assert reply.status == 200 and ("error" in reply.json() or reply.result()["isError"])


async def test_a_body_that_is_too_large_is_refused():
    async with lite_client(lite_server(limits=Limits(message_bytes=1000))) as client:
        for path in ("rpc", "listtools"):
            reply = await client.send(path, {"x": "y" * 2000})
            assert (reply.status, reply.error()["code"]) == (413, -32603)
            assert reply.error()["data"]["reason"] == "PAYLOAD_TOO_LARGE"


async def test_callers_are_admitted_as_at_the_mcp_endpoint(tmp_path):
    server = lite_server()
    server.tool(lambda: "x", name="hidden", description="Hide.", scopes=["secret"])
    (tmp_path / "tokens").write_text(
        "".join(
            f"{name} sha256:{hashlib.sha256(letter.encode() * 32).hexdigest()} {scope}\n"
            for name, letter, scope in (("ann", "t", ""), ("bob", "u", "secret"))
        )
    )
    (tmp_path / "tokens").chmod(0o600)
    auth = StaticTokens(tmp_path / "tokens")
    async with lite_client(server, auth=auth) as client:
        anonymous = await client.send("rpc", ADD)
        assert (anonymous.status, anonymous.error()["data"]["reason"]) == (401, "UNAUTHENTICATED")
        assert "www-authenticate" in anonymous.headers
        ann, bob = ({"authorization": f"Bearer {letter * 32}"} for letter in "tu")
        assert (await client.send("rpc", ADD, headers=ann)).status == 200
        names = [len((await client.send("listtools", {}, headers=one)).json()) for one in (ann, bob)]
        assert names == [4, 5]
        hidden = {**ADD, "params": {"name": "hidden"}}
        assert (await client.send("rpc", hidden, headers=ann)).error()["data"]["reason"] in (
            "FORBIDDEN",
            "TOOL_NOT_FOUND",
        )
        assert (await client.send("rpc", hidden, headers=bob)).status == 200


async def test_who_asks_too_often_is_told_when_to_ask_again():
    async with lite_client(lite_server(rate_limits=RateLimits(per_address=Rate(1, 60)))) as client:
        assert (await client.send("rpc", ADD)).status == 200
        reply = await client.send("rpc", ADD)
        assert (reply.status, reply.error()["code"]) == (429, -32603)
        data = reply.error()["data"]
        assert (data["reason"], data["retryable"]) == ("RATE_LIMITED", True)
        assert 0 < int(reply.headers["retry-after"]) <= 60 and 0 < data["retry_after_ms"] <= 60_000


async def test_a_tool_that_is_called_too_often_is_limited_as_a_request_is():
    limits = RateLimits(per_tool={"add": Rate(1, 60)})
    async with lite_client(lite_server(rate_limits=limits)) as client:
        assert (await client.send("rpc", ADD)).status == 200
        reply = await client.send("rpc", ADD)
        assert (reply.status, reply.error()["data"]["reason"]) == (429, "RATE_LIMITED")
        assert reply.json()["id"] == "call-001"
        assert 0 < int(reply.headers["retry-after"]) <= 60
        assert (await client.call("no_docstring")).status == 200


async def test_too_many_calls_at_once_are_refused():
    server = lite_server(limits=Limits(calls=1, account_share=1))
    started, may_end = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await may_end.wait()
        return "waited"

    async with lite_client(server) as client:
        waiting = asyncio.create_task(client.call("wait"))
        await started.wait()
        reply = await client.send("rpc", ADD)
        assert (reply.status, reply.error()["data"]) == (503, {"reason": "OVERLOADED", "retryable": True})
        may_end.set()
        assert (await waiting).result()["content"][0]["text"] == "waited"


async def test_a_client_that_leaves_cancels_its_call():
    server = lite_server()
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.sleep(HANG_SECONDS)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "waited"

    body = json.dumps({**ADD, "params": {"name": "wait"}}).encode()
    async with server.engine.lifespan.running(), asyncio.timeout(HANG_SECONDS):
        headers = {"content-type": "application/json"}
        exchange = AsgiExchange(server.asgi(), "POST", headers, body, path=f"{PREFIX}/rpc")
        await started.wait()
        exchange.leave()
        await cancelled.wait()
        await exchange.task


async def test_responses_have_request_ids_and_are_counted():
    pytest.importorskip("prometheus_client")
    async with lite_client(lite_server(), request_ids=True, metrics=True) as client:
        for body, status in ((ADD, 200), (b"{", 400)):
            reply = await client.send("rpc", body, headers={"x-request-id": "abc-1"})
            assert (reply.status, reply.headers["x-request-id"]) == (status, "abc-1")
        counted = await client.send("../../metrics", b"", "GET")
        assert re.search(rb'calls_total\{[^}]*"add"[^}]*\} 1.0', counted.body)
        assert b'reason="parse"} 1.0' in counted.body


async def test_the_routes_of_a_server_have_the_paths_of_mcp_lite():
    server = lite_server()
    paths = {route.path for route in server.routes("/")}  # type: ignore[attr-defined]
    assert {"/", f"{PREFIX}/rpc", f"{PREFIX}/tools/list", "/healthz"} <= paths
    app = Starlette(routes=server.routes(), lifespan=server.lifespan)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        async with server.lifespan():
            client = LiteClient(http)
            assert (await client.send("rpc", ADD)).status == 200
            assert (await client.send("rpc", b"", "GET")).status == 405


# Batches and notifications


async def test_a_batch_is_answered_as_one():
    async with lite_client(lite_server()) as client:
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        reply = await client.send("rpc", [ADD, note, {**ADD, "id": 2, "method": "x"}, 3])
        assert reply.status == 200
        answers = reply.json()
        assert [answer["id"] for answer in answers] == ["call-001", 2, None]
        assert answers[0]["result"]["content"][0]["text"] == "3"
        assert [answer["error"]["code"] for answer in answers[1:]] == [-32601, -32600]
        assert (await client.send("rpc", [note])).status == 202
        assert (await client.send("rpc", [ADD] * 17)).error()["code"] == -32600
        assert len((await client.send("rpc", [ADD] * 16)).json()) == 16
    async with lite_client(lite_server(), mcp_lite={"batches": False}) as client:
        reply = await client.send("rpc", [ADD])
        assert (reply.status, reply.error()["code"]) == (400, -32600)


async def test_others_are_served_between_the_messages_of_a_batch():
    server = lite_server()
    seen: list[int] = []

    @server.tool
    async def note() -> None:
        """Note when it is called."""
        seen.append(iterations.count)

    async with lite_client(server) as client:
        iterations = LoopIterations()
        await client.send("rpc", [{**ADD, "params": {"name": "note"}}] * 16)
    assert len(seen) == len(set(seen)) == 16


async def test_small_responses_of_a_batch_count_while_they_wait_for_the_others():
    server = lite_server(limits=Limits(response_bytes=100_000, account_share=1.0))

    @server.tool
    async def read() -> str:
        """Read a text."""
        return "x" * 20_000

    async with lite_client(server) as client:
        for _ in range(2):
            answers = (await client.send("rpc", [{**ADD, "params": {"name": "read"}}] * 8)).json()
            assert ["result" in answer for answer in answers] == [True] * 4 + [False] * 4
            assert "unread" in answers[-1]["error"]["message"]


async def test_an_account_has_a_bounded_number_of_batches_at_once(monkeypatch):
    monkeypatch.setattr("deltamcp.runtime.quota._BATCHES", 24)
    server = lite_server(limits=Limits(body_seconds=HANG_SECONDS))
    begun, may_end = [], asyncio.Event()

    @server.tool
    async def wait() -> None:
        """Wait."""
        begun.append(True)
        await may_end.wait()

    batch = [{**ADD, "params": {"name": "wait"}}]
    async with lite_client(server) as client:
        sent = [asyncio.create_task(client.send("rpc", batch)) for _ in range(8)]
        single = asyncio.create_task(client.send("rpc", batch[0]))
        async with asyncio.timeout(HANG_SECONDS):
            while len(begun) < 4:  # noqa: ASYNC110 - three batches, and the request that is none
                await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(begun) == 4
        may_end.set()
        assert {(await reply).status for reply in (*sent, single)} == {200}


async def test_responses_of_a_batch_whose_client_leaves_count_no_longer():
    server = lite_server(limits=Limits(response_bytes=150_000, account_share=1.0))
    started = asyncio.Event()

    @server.tool
    async def large() -> str:
        """Return a large text."""
        return "x" * 100_000

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.sleep(HANG_SECONDS)
        return "waited"

    app = server.asgi()
    headers = {"content-type": "application/json"}
    calls = [{**ADD, "params": {"name": name}} for name in ("large", "wait")]
    async with server.engine.lifespan.running(), asyncio.timeout(HANG_SECONDS):
        exchange = AsgiExchange(app, "POST", headers, json.dumps(calls).encode(), path=f"{PREFIX}/rpc")
        await started.wait()
        exchange.leave()
        await exchange.task
        again = AsgiExchange(app, "POST", headers, json.dumps(calls[0]).encode(), path=f"{PREFIX}/rpc")
        assert (await again.start())[0] == 200


CALL_WITHOUT_ID = {
    "jsonrpc": "2.0",
    "method": "tools/call",
    "params": {"name": "search_documents", "arguments": {"query": "x"}},
}


async def test_a_message_without_an_id_is_a_notification_that_calls_nothing():
    server = lite_server()
    async with lite_client(server) as client:
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for message in (initialized, CALL_WITHOUT_ID, [CALL_WITHOUT_ID, initialized]):
            reply = await client.send("rpc", message)
            assert (reply.status, reply.body) == (202, b"")
        [answer] = (await client.send("rpc", [CALL_WITHOUT_ID, ADD])).json()
        assert answer["id"] == ADD["id"]
        assert server.seen == []  # type: ignore[attr-defined]


# Prompts


async def test_ml_123_prompts_are_listed_where_they_are_enabled():
    server = lite_server()

    @server.prompt
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}!"

    async with lite_client(server, mcp_lite={"prompts": True}) as client:
        [prompt] = (await client.send("prompts", {})).json()["prompts"]
        assert (prompt["name"], prompt["arguments"][0]["name"]) == ("greet", "name")
        assert (await client.rpc("prompts/list")).result()["prompts"] == [prompt]
        used = (await client.rpc("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})).result()
        assert used["messages"][0]["content"]["text"] == "Hello, Ann!"
        assert (await client.rpc("prompts/get", {"name": "x"})).error()["code"] == -32602
    async with lite_client(lite_server(), mcp_lite={"prompts": True}) as client:
        assert (await client.send("prompts", {})).json() == {"prompts": []}
    async with lite_client(server) as client:
        assert (await client.send("prompts", {})).status == 404
        assert (await client.rpc("prompts/list")).error()["code"] == -32601


# Anything


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
METHODS = st.sampled_from(["tools/call", "tools/list", "tools/describe", "tools/manifest", "ping", "x"])
NAMES = st.sampled_from(["add", "search_documents", "redeem", "continue", "_meta"]) | JSON_VALUES
KEYS = ["name", "arguments", "_meta", "inputResponses", "requestState", "cursor", "detail", "query", "names"]
PARAMS = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON_VALUES) | {"name": NAMES})
BODIES = (
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0") | JSON_VALUES, "method": METHODS | JSON_VALUES},
        optional={"id": st.integers() | st.text(max_size=3) | JSON_VALUES, "params": PARAMS | JSON_VALUES},
    )
    | JSON_VALUES
)


@settings(max_examples=150, deadline=None)
@given(body=BODIES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
async def test_every_body_gets_an_answer_of_json_rpc_and_never_a_500(body):
    server = promising_server()
    async with lite_client(server, mcp_lite={"prompts": True, "await_tool": True}) as client:
        for path in ("rpc", "listtools"):
            reply = await client.send(path, body)
            assert reply.status in (200, 202, 400), (reply.status, reply.body)
            if reply.status == 400:
                assert reply.error()["code"] in (-32700, -32600, -32602)


# What a client carries along


def cart_server() -> DeltaServer:
    server = lite_server(state_key=b"k" * 32)

    @server.tool
    async def add_to_cart(item: str, ctx: Context) -> list[str]:
        """Put an item into the cart."""
        items = [*ctx.session_context.get("items", []), item]
        ctx.session_context = {"items": items}
        return items

    @server.tool
    async def stuff(size: int, ctx: Context) -> str:
        """Carry much."""
        ctx.session_context = {"x": "y" * size}
        return "carried"

    return server


async def test_ml_125_what_was_sealed_for_one_principal_is_empty_for_another(tmp_path):
    tokens = {name: make_token(name) for name in ("ann", "bob")}
    (tmp_path / "tokens").write_text("".join(f"{line}\n" for _, line in tokens.values()))
    (tmp_path / "tokens").chmod(0o600)

    async def add(client: LiteClient, name: str, item: str, **meta: str) -> tuple[list[str], str]:
        params = {"name": "add_to_cart", "arguments": {"item": item}, "_meta": meta}
        result = (await client.rpc("tools/call", params, authorization=f"Bearer {tokens[name][0]}")).result()
        return json.loads(result["content"][0]["text"]), result["_meta"]["session_context"]

    async with lite_client(cart_server(), auth=StaticTokens(tmp_path / "tokens")) as client:
        _, carried = await add(client, "ann", "milk")
        assert (await add(client, "bob", "tea", session_context=carried))[0] == ["tea"]
        assert (await add(client, "ann", "eggs", session_context=carried))[0] == ["milk", "eggs"]


async def test_ml_125_a_client_carries_what_the_server_sealed(caplog):
    async with lite_client(cart_server()) as client:
        first = (await client.call("add_to_cart", {"item": "milk"})).result()
        carried = first["_meta"]["session_context"]
        assert "milk" not in carried
    async with lite_client(cart_server()) as client:  # another replica, which has stored nothing
        meta = {"session_context": carried}
        second = (await client.call("add_to_cart", {"item": "eggs"}, _meta=meta)).result()
        assert json.loads(second["content"][0]["text"]) == ["milk", "eggs"]
        assert second["_meta"]["session_context"] != carried
        untouched = (await client.call("add", {"a": 1}, _meta=meta)).result()
        assert untouched["_meta"]["session_context"] == carried
        for wrong in ("x", carried[:-4] + "AAAA", 3, {"a": 1}):
            anew = (await client.call("add_to_cart", {"item": "tea"}, _meta={"session_context": wrong})).result()
            assert json.loads(anew["content"][0]["text"]) == ["tea"]
        with caplog.at_level(logging.CRITICAL):
            assert (await client.call("stuff", {"size": 20_000})).error()["data"]["reason"] == "INTERNAL"
