"""Calls and lists over gRPC: what each response and each error has."""

import asyncio
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings

from deltamcp import Context, DeltaServer, Limits, NeedsResource, ToolFailure
from deltamcp.wire.protobuf import LARGEST_INTEGER, MAX_DEPTH
from tests.support.grpc_peer import MESSAGES, as_dict, refusal, serve_grpc
from tests.support.lite_client import lite_client, lite_server
from tests.support.strategies import any_json

JSON_METADATA = (("mcplite-accept", "result-json"),)
STRICT_METADATA = (("mcplite-strict", "1"),)


def make_server(**options: Any) -> DeltaServer:
    server = lite_server(**options)

    @server.tool(output_schema={"type": "object"}, input_schema={"type": "object", "properties": {"value": {}}})
    async def echo(arguments: dict[str, Any]) -> Any:
        """Return the arguments."""
        return arguments

    @server.tool
    async def double(number: int) -> int:
        """Double a number."""
        return number * 2

    @server.tool(output_schema={"type": "object"})
    async def large(exponent: int) -> dict[str, Any]:
        """Return a large number."""
        return {"list": [1, 2**exponent]}

    @server.tool(output_schema={"type": "object"})
    async def deep(levels: int) -> dict[str, Any]:
        """Return something deep."""
        value: dict[str, Any] = {}
        for _ in range(levels - 1):
            value = {"v": value}
        return value

    @server.tool
    async def long_text(size: int) -> str:
        """Return a long text."""
        return "x" * size

    @server.tool
    async def buy(card: str) -> str:
        """Buy something."""
        raise ToolFailure("CARD_DECLINED", "Card was declined", details={"card": card})

    @server.tool
    async def summarise() -> str:
        """Needs tokens."""
        raise NeedsResource("Needs 40k more tokens", kind="tokens", required=60000, available=20000)

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for a city."""
        answer = await ctx.elicit("Which city?", {"type": "object", "properties": {"city": {"type": "string"}}})
        return f"Going to {answer.content['city']}."

    @server.tool
    async def crash() -> str:
        """Break."""
        raise RuntimeError("a secret")

    @server.tool(timeout=0.01)
    async def endless() -> str:
        """Wait for ever."""
        await asyncio.sleep(math.inf)
        return ""

    return server


# Lists


async def test_ml_1_both_bindings_list_the_same_tools():
    server = make_server()
    async with serve_grpc(server) as peer, lite_client(server) as http:
        over_http = (await http.send("listtools", {})).json()
        assert [tool.name for tool in await peer.tools()] == [tool["name"] for tool in over_http]


async def test_ml_7_schemas_are_equal_on_both_bindings():
    server = make_server()
    async with serve_grpc(server) as peer, lite_client(server) as http:
        over_http = {tool["name"]: tool for tool in (await http.send("listtools", {})).json()}
        for tool in await peer.tools():
            assert as_dict(tool.input_schema) == over_http[tool.name]["inputSchema"]
            assert tool.description == over_http[tool.name]["description"]
            assert tool.type == over_http[tool.name].get("@type", "")
        assert any(tool.type == "query" for tool in await peer.tools())


async def test_ml_4_a_tool_without_a_type_has_an_empty_one():
    async with serve_grpc(make_server()) as peer:
        types = {tool.name: tool.type for tool in await peer.tools()}
    assert (types["add"], types["search_documents"]) == ("", "query")


async def test_ml_5_a_server_that_gives_promises_lists_redeem_first():
    server = make_server()

    @server.tool(promise="auto")
    async def analyze() -> str:
        """Take long."""
        return "x"

    async with serve_grpc(server) as peer:
        first, *_ = await peer.tools()
    assert (first.name, first.type) == ("redeem", "system")
    assert as_dict(first.input_schema)["required"] == ["promise"]


async def test_ml_6_any_other_server_has_no_redeem():
    async with serve_grpc(make_server()) as peer:
        assert "redeem" not in {tool.name for tool in await peer.tools()}
        assert (await peer.refused("redeem", {"promise": "x"})).reason == "TOOL_NOT_FOUND"


async def test_ml_8_two_lists_are_equal():
    async with serve_grpc(make_server()) as peer:
        listing = peer.channel.unary_unary("/mcplite.MCPLite/GetTools")
        assert await listing(b"") == await listing(b"")


async def test_a_schema_that_no_struct_holds_is_listed_all_the_same():
    server = DeltaServer("wide")
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH):
        nested = {"type": "object", "properties": {"a": nested}}

    @server.tool(input_schema=nested)
    async def deep(arguments: dict[str, Any]) -> str:
        """Deep."""
        return "x"

    @server.tool(input_schema={"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**63 - 1}}})
    async def wide(arguments: dict[str, Any]) -> str:
        """Wide."""
        return "x"

    async with serve_grpc(server) as peer:
        found = {tool.name: as_dict(tool.input_schema) for tool in await peer.tools()}
    assert found["deep"] == {"type": "object"}
    assert found["wide"]["properties"]["n"]["maximum"] == float(2**63)


async def test_ml_123_prompts_are_listed_by_a_service_of_their_own():
    server = make_server()

    @server.prompt
    def greet(name: str, tone: str = "warm") -> str:
        """Greet somebody."""
        return f"Greet {name}."

    async with serve_grpc(server, mcp_lite={"prompts": True}) as peer:
        listing = peer.channel.unary_unary(
            "/mcplite.ext.Prompts/GetPrompts", response_deserializer=MESSAGES.PromptsList.FromString
        )
        [prompt] = (await listing(b"")).prompts
        assert (prompt.name, prompt.description) == ("greet", "Greet somebody.")
        assert [(argument.name, argument.required) for argument in prompt.arguments] == [
            ("name", True),
            ("tone", False),
        ]
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(Exception, match="UNIMPLEMENTED"):
            await peer.channel.unary_unary("/mcplite.ext.Prompts/GetPrompts")(b"")


# Answers


async def test_ml_20_an_answer_has_its_type_and_times():
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("add", {"a": 1, "b": 2})
    assert as_dict(response.result) == {"content": [{"type": "text", "text": "3"}]}
    assert response.HasField("meta")
    assert response.meta.response_type == 0
    assert response.meta.server_version == "1.2"
    assert response.meta.processing_time_ms >= 0
    assert not response.meta.promise_token


async def test_ml_112_timestamps_are_milliseconds():
    before = time.time()
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("add", {"a": 1})
    assert before * 1000 - 1 <= response.meta.timestamp <= time.time() * 1000 + 1


async def test_ml_12_arguments_may_be_absent():
    async with serve_grpc(make_server()) as peer:
        assert as_dict((await peer.call("no_docstring")).result)["content"][0]["text"] == "x"


async def test_ml_13_defaults_are_filled_in():
    server = make_server()
    async with serve_grpc(server) as peer:
        await peer.call("search_documents", {"query": "MCP"})
    assert server.seen == [{"query": "MCP", "limit": 10}]  # type: ignore[attr-defined]


async def test_ml_14_meta_among_the_arguments_is_taken_out():
    server = make_server()
    async with serve_grpc(server) as peer:
        await peer.call("search_documents", {"query": "MCP", "limit": 3, "_meta": {"anything": 1}})
    assert server.seen == [{"query": "MCP", "limit": 3}]  # type: ignore[attr-defined]


async def test_ml_26_a_failure_is_a_response_and_no_error():
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("buy", {"card": "1234"})
    assert response.meta.response_type == 3
    result = as_dict(response.result)
    assert result["isError"] is True
    assert result["error"] == {
        "code": "CARD_DECLINED",
        "message": "Card was declined",
        "retryable": False,
        "details": {"card": "1234"},
    }


async def test_ml_28_a_request_for_more_of_a_resource_has_an_enum_value_of_its_own():
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("summarise")
        strict = await peer.call("summarise", metadata=STRICT_METADATA)
    assert response.meta.response_type == 4
    assert strict.meta.response_type == 2
    for one in (response, strict):
        [resource] = as_dict(one.result)["resource_request"]["resources"]
        assert resource == {"kind": "tokens", "required": 60000, "available": 20000}


@pytest.mark.parametrize("place", ["meta", "arguments"])
async def test_ml_25_a_question_is_answered_by_calling_again(place):
    async with serve_grpc(make_server(), metrics=None) as peer:
        asked = await peer.call("ask")
        assert asked.meta.response_type == 2
        assert asked.meta.expires_at_ms > time.time() * 1000
        assert as_dict(asked.result)["elicitation"]["questions"][0]["id"] == "city"
        answers = {"answers": {"city": "Oslo"}, "request_state": asked.meta.request_state}
        given = {"meta": answers} if place == "meta" else {"arguments": {"_meta": answers}}
        response = await peer.call("ask", **given)
    assert response.meta.response_type == 0
    assert as_dict(response.result)["content"][0]["text"] == "Going to Oslo."


# Numbers and sizes


async def test_integers_beyond_doubles_are_strings_with_pointers():
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("large", {"exponent": 60})
        exact = await peer.call("large", {"exponent": 60}, metadata=JSON_METADATA)
    assert as_dict(response.result)["structuredContent"] == {"list": [1, str(2**60)]}
    assert as_dict(response.meta.extra)["stringified"] == ["/structuredContent/list/1"]
    assert json.loads(exact.result_json)["structuredContent"] == {"list": [1, 2**60]}
    assert not exact.HasField("result") and not exact.meta.HasField("extra")


async def test_digits_are_an_integer_where_the_schema_wants_one():
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("double", {"number": str(2**60)})
    assert as_dict(response.result)["content"][0]["text"] == str(2**61)


@pytest.mark.parametrize("number", [math.nan, math.inf])
async def test_a_number_that_is_not_finite_is_invalid(number):
    request = MESSAGES.ToolRequest(name="echo")
    request.arguments.fields["n"].number_value = number
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(Exception) as caught:
            await peer.raw_call(request.SerializeToString())
    found = refusal(caught.value)
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "INVALID_PARAMS")


async def test_a_result_that_is_too_deep_is_a_failure_unless_it_is_json():
    async with serve_grpc(make_server()) as peer:
        fits = await peer.call("deep", {"levels": MAX_DEPTH - 1})
        response = await peer.call("deep", {"levels": MAX_DEPTH})
        whole = await peer.call("deep", {"levels": 100}, metadata=JSON_METADATA)
    assert fits.meta.response_type == 0
    assert response.meta.response_type == 3
    assert as_dict(response.result)["error"]["code"] == "RESULT_TOO_DEEP"
    assert whole.meta.response_type == 0 and whole.result_json.count(b'"v":') >= 99


async def test_a_result_larger_than_a_message_is_a_failure():
    async with serve_grpc(make_server(limits=Limits(message_bytes=100_000))) as peer:
        response = await peer.call("long_text", {"size": 100_000})
        assert (await peer.call("long_text", {"size": 90_000})).meta.response_type == 0
    assert response.meta.response_type == 3
    assert as_dict(response.result)["error"]["code"] == "RESULT_TOO_LARGE"


# Errors


async def test_ml_109_an_unknown_tool_is_not_found_with_details():
    async with serve_grpc(make_server()) as peer:
        found = await peer.refused("search_document")
    assert (found.code, found.text) == ("NOT_FOUND", "Tool not found: search_document")
    info = found.details["ErrorInfo"]
    assert (info["reason"], info["domain"]) == ("TOOL_NOT_FOUND", "mcplite")
    assert info["metadata"]["requested_tool"] == "search_document"
    assert "search_documents" in info["metadata"]["suggestion"]
    assert "search_documents" in info["metadata"]["available_tools"].split(",")
    assert found.details["ResourceInfo"] == {"resourceType": "tool", "resourceName": "search_document"}


async def test_ml_108_wrong_arguments_are_invalid_with_their_places():
    server = make_server()
    async with serve_grpc(server) as peer:
        found = await peer.refused("search_documents", {"limit": "many"})
    assert found.code == "INVALID_ARGUMENT" and found.reason == "INVALID_PARAMS"
    violations = {one["field"]: one["reason"] for one in found.details["BadRequest"]["fieldViolations"]}
    assert violations == {"/query": "required", "/limit": "type"}
    assert server.seen == []  # type: ignore[attr-defined]


async def test_ml_111_a_crash_is_internal_and_tells_nothing(caplog):
    async with serve_grpc(make_server()) as peer:
        found = await peer.refused("crash")
    assert found.code == "INTERNAL" and found.reason == "INTERNAL"
    assert "secret" not in str(found)
    assert found.details["ErrorInfo"]["metadata"]["error_id"] in caplog.text
    assert set(found.details) == {"ErrorInfo"}


async def test_a_tools_own_deadline_is_a_timeout():
    async with serve_grpc(make_server()) as peer:
        found = await peer.refused("endless")
    assert (found.code, found.reason) == ("DEADLINE_EXCEEDED", "TIMEOUT")
    assert "RetryInfo" in found.details


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x12\x02\x0a\x09", b"\x0a\x01\xff"])
async def test_malformed_bytes_are_invalid(data):
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(Exception) as caught:
            await peer.raw_call(data)
    found = refusal(caught.value)
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "PARSE_ERROR")


async def test_arguments_that_protobuf_refuses_for_their_depth_are_invalid():
    value = b""
    for _ in range(60):  # a Struct with a field "a" that is a Struct
        inner = b"\x2a" + varint(len(value)) + value
        entry = b"\x0a\x01a\x12" + varint(len(inner)) + inner
        value = b"\x0a" + varint(len(entry)) + entry
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(Exception) as caught:
            await peer.raw_call(b"\x0a\x04echo\x12" + varint(len(value)) + value)
    assert refusal(caught.value).code == "INVALID_ARGUMENT"


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


async def test_a_message_that_is_too_large_is_exhausted():
    async with serve_grpc(make_server(limits=Limits(message_bytes=10_000))) as peer:
        found = await peer.refused("echo", {"value": "x" * 20_000})
    assert found.code == "RESOURCE_EXHAUSTED"


async def test_a_message_of_too_many_values_is_exhausted():
    async with serve_grpc(make_server(limits=Limits(values=100))) as peer:
        found = await peer.refused("echo", {"value": list(range(200))})
        assert (await peer.call("echo", {"value": list(range(90))})).meta.response_type == 0
    assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE")


async def test_an_unknown_method_is_unimplemented():
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(Exception) as caught:
            await peer.channel.unary_unary("/mcplite.MCPLite/Nothing")(b"")
    assert refusal(caught.value).code == "UNIMPLEMENTED"


async def test_long_details_stay_below_what_clients_take():
    server = DeltaServer("long")
    for number in range(30):

        async def tool() -> str:
            return ""

        server.tool(tool, name=f"tool_{number}_{'x' * 100}")
    async with serve_grpc(server) as peer:
        found = await peer.refused("tool" * 2000)
    assert found.code == "NOT_FOUND" and "ErrorInfo" in found.details


async def test_details_stay_below_what_clients_take_whatever_the_letters():
    async with serve_grpc(make_server()) as peer:
        found = await peer.refused("double", {"\N{HERB}" * 100 + str(number): 1 for number in range(40)})
    percent_encoded = 3 * len(found.text.encode())
    base64 = math.ceil(len(found.trailing["grpc-status-details-bin"]) / 3) * 4
    assert found.code == "INVALID_ARGUMENT" and found.details["BadRequest"]["fieldViolations"]
    assert percent_encoded + base64 < 8000


# Parity


async def both_results(server: DeltaServer, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """The results of one call over HTTP and over gRPC."""
    async with serve_grpc(server) as peer, lite_client(server) as http:
        over_http = (await http.call(name, arguments)).result()
        response = await peer.call(name, arguments)
    assert over_http.pop("_meta")["response_type"] == "answer" and response.meta.response_type == 0
    return over_http, as_dict(response.result)


def test_ml_113_the_same_call_has_the_same_content_on_both_bindings():
    server = make_server()
    with asyncio.Runner() as runner:

        @settings(max_examples=40, deadline=None)
        @given(value=any_json)
        def check(value: Any) -> None:
            over_http, over_grpc = runner.run(both_results(server, "echo", {"value": as_sent(value)}))
            for result in (over_http, over_grpc):  # a Struct has no order
                [block] = result["content"]
                block["text"] = json.loads(block["text"])
            assert over_http == over_grpc

        check()


def as_sent(value: Any) -> Any:
    """A value of which both bindings carry every number exactly."""
    if isinstance(value, dict):
        return {key: as_sent(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_sent(item) for item in value]
    if type(value) is int and abs(value) > LARGEST_INTEGER:
        return str(value)
    if type(value) is float and value.is_integer() and abs(value) <= LARGEST_INTEGER:
        return int(value)
    return value
