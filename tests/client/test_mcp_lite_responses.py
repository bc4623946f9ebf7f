"""What the client makes of each response type of MCP-lite."""

import json
from typing import Any

import pytest

from deltamcp.client.client import connect
from deltamcp.errors import CallFailedError, ConfigurationError, PeerError, ResourceNeededError, ResponseTypeError
from tests.support.fake_http import FakeConnection, FakeRequest, serve_fake
from tests.support.fake_lite import FakeLite, lite_result

QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which city?",
        "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.mark.parametrize("meta", [{}, {"_meta": {}}, {"_meta": {"timestamp": "2026-11-15T12:00:00Z"}}])
async def test_ml_21_a_result_without_a_response_type_is_an_answer(meta):
    async with serve_fake(FakeLite({**lite_result({"n": 1}, None), **meta})) as fake, connect(fake.lite_url) as client:
        assert await client.call("buy") == {"n": 1}


@pytest.mark.parametrize("kind", ["Answer", "ANSWER", "answer"])
async def test_ml_29_response_types_are_compared_without_their_case(kind):
    async with serve_fake(FakeLite(lite_result({"n": 1}, kind))) as fake, connect(fake.lite_url) as client:
        assert await client.call("buy") == {"n": 1}


@pytest.mark.parametrize("kind", ["rumour", "", 5, ["answer"]])
async def test_ml_29_an_unknown_response_type_is_an_error_that_has_it(kind):
    answers = lite_result({}, kind), lite_result({"n": 1})
    async with serve_fake(FakeLite(*answers)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(ResponseTypeError) as caught:
            await client.call("buy")
        assert caught.value.response_type == kind
        assert await client.call("buy") == {"n": 1}


async def test_a_failure_has_its_code_and_details():
    error = {"code": "CARD_DECLINED", "message": "Card was declined", "retryable": True, "details": {"bank": "x"}}
    failed = {**lite_result("Card was declined", "Failure"), "error": error}
    async with serve_fake(FakeLite(failed)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(CallFailedError, match="Card was declined") as caught:
            await client.call("buy")
    assert (caught.value.code, caught.value.retryable, caught.value.details) == ("CARD_DECLINED", True, {"bank": "x"})


async def test_a_failure_without_content_has_the_text_of_its_error():
    failed = {"error": {"message": "Nothing found"}, "_meta": {"response_type": "failure"}}
    async with serve_fake(FakeLite({"content": [], **failed})) as fake, connect(fake.lite_url) as client:
        with pytest.raises(CallFailedError, match="Nothing found") as caught:
            await client.call("buy")
    assert caught.value.code is None


async def test_a_question_is_answered_by_sending_the_call_again():
    asked = {**lite_result("Which city?", "elicitation", request_state="sealed"), "elicitation": {"requests": {}}}
    asked["elicitation"]["requests"] = {"q1": QUESTION}
    fake = FakeLite(asked, lite_result("sunny"))
    async with serve_fake(fake), connect(fake.lite_url, on_elicitation=lambda params: {"city": "Oslo"}) as client:
        assert await client.call("buy", days=2) == "sunny"
    first, second = fake.calls
    assert first["arguments"] == second["arguments"] == {"days": 2}
    assert second["inputResponses"] == {"q1": {"action": "accept", "content": {"city": "Oslo"}}}
    assert second["requestState"] == "sealed"


async def test_a_client_that_answers_no_questions_says_so():
    async with serve_fake(FakeLite(lite_result(1))) as fake:
        async with connect(fake.lite_url) as client:
            await client.call("buy")
        async with connect(fake.lite_url, on_elicitation=lambda params: None) as client:
            await client.call("buy")
    without, with_answers = (call["_meta"].get("accept_response_types") for call in fake.calls)
    assert "elicitation" not in without and {"answer", "promise", "failure"} <= set(without)
    assert with_answers is None


async def test_a_request_for_more_of_a_resource_is_an_error_that_says_what_is_needed():
    needed = [{"kind": "tokens", "required": 60_000, "available": 20_000, "unit": "token"}]
    asked = lite_result("Needs more", "request-for-more-resource", request_state="sealed")
    asked["resource_request"] = {"message": "Needs 40k more tokens", "resources": needed}
    async with serve_fake(FakeLite(asked)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(ResourceNeededError, match="Needs 40k more tokens") as caught:
            await client.call("buy")
    assert caught.value.resources == needed
    assert caught.value.state == "sealed"


async def test_an_error_of_the_protocol_has_its_code_and_data():
    data = {"reason": "TOOL_NOT_FOUND", "retryable": False}
    error = {"error": {"code": -32601, "message": "Tool not found", "data": data}}
    async with serve_fake(FakeLite(error)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(PeerError, match="Tool not found") as caught:
            await client.call("nothing")
    assert (caught.value.code, caught.value.data) == (-32601, data)


# Paths and lists


@pytest.mark.parametrize("shape", ["rpc", "object", "array"])
@pytest.mark.parametrize("paths", [("tools", "rpc"), ("listtools", "calltools")])
async def test_tools_are_listed_whichever_path_and_shape_the_server_has(shape, paths):
    fake = FakeLite(lite_result("done"), paths=paths, shape=shape)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        assert [tool.name for tool in await client.tools()] == ["buy", "render"]
        assert await client.call("buy") == "done"
        assert await client.call("buy") == "done"
    assert len(fake.of("tools/list")) == len(set(paths) - {"tools", "rpc"}) // 2 + 1
    assert client.server.is_lite


async def test_an_address_and_speak_name_the_same_server():
    fake = FakeLite(lite_result("done"))
    async with serve_fake(fake):
        origin = fake.url.removesuffix("/mcp")
        targets: list[Any] = [
            f"mcplite+{origin}/",
            f"mcplite+{origin}/mcp-lite/v1",
            {"url": origin, "type": "mcp-lite"},
        ]
        for client in (*map(connect, targets), connect(origin, speak="mcp-lite")):
            async with client:
                assert await client.call("buy") == "done"


def test_an_address_of_mcp_lite_is_for_no_other_protocol():
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        connect("mcplite+http://localhost:1", speak="modern")


# Streams


async def test_ml_79_84_a_call_with_progress_is_a_stream_whose_heartbeats_are_ignored():
    fake = FakeLite(lite_result("unused"))
    told: list[Any] = []

    async def stream(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        for kind, data in (
            ("heartbeat", '{"ts": "2026-11-15T12:00:00Z"}'),
            ("message", '{"partial": "Hel", "seq": 1}'),
            ("heartbeat", "no JSON at all"),
            ("heartbeat", '{"ts": "2026-11-15T12:00:01Z", "progress": 1, "total": 2, "message": "Half"}'),
        ):
            await wire.chunk(f"event: {kind}\ndata: {data}\n\n".encode())
        await _terminal(wire, "done", asked, {"result": lite_result("Hello")})

    fake.once("tools/call", stream)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        reply = await client.call_tool("buy", progress=lambda *report: told.append(report))
        assert reply.value == "Hello"
        assert told == [(1, 2, "Half")]
        await client.call("buy")
    assert [asked.headers["accept"] for asked in fake.of("tools/call")] == [
        "text/event-stream, application/json;q=0.5",
        "application/json, text/event-stream",
    ]


async def test_ml_82_83_a_stream_ends_with_done_or_error():
    fake = FakeLite(lite_result("unused"))
    error = {"error": {"code": -32603, "message": "It broke.", "data": {"reason": "INTERNAL"}}}

    async def fail(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        await _terminal(wire, "error", asked, error)

    fake.once("tools/call", fail)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        with pytest.raises(PeerError, match="It broke") as caught:
            await client.call_tool("buy", progress=lambda *_: None)
    assert caught.value.data == {"reason": "INTERNAL"}


async def _terminal(wire: FakeConnection, kind: str, asked: FakeRequest, answer: dict[str, Any]) -> None:
    data = json.dumps({"_meta": {"response_type": "answer"}, "jsonrpc": "2.0", "id": asked.id, **answer})
    await wire.chunk(f"event: {kind}\ndata: {data}\n\n".encode())
    await wire.end()
