"""The link over gRPC at servers that send what they should not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from deltamcp.client.client import connect
from deltamcp.errors import ClientError, DeadlineError, PeerError
from deltamcp.transports.grpc.requests import SERVICE, lite_messages

DETAILS_KEY = "grpc-status-details-bin"


def response(result: dict[str, Any], extra: dict[str, Any] | None = None, **meta: Any) -> bytes:
    message = lite_messages().ToolResponse()
    message.result.update(result)
    message.meta.SetInParent()
    for name, value in meta.items():
        setattr(message.meta, name, value)
    message.meta.extra.update(extra or {})
    encoded: bytes = message.SerializeToString()
    return encoded


def text(value: str, **meta: Any) -> bytes:
    return response({"content": [{"type": "text", "text": value}]}, **meta)


def part(**result: Any) -> bytes:
    message = lite_messages().ToolResponse()
    message.result.update(result)
    encoded: bytes = message.SerializeToString()
    return encoded


@contextlib.asynccontextmanager
async def serve(*answers: "bytes | Refusal", stream: Callable[[], AsyncIterator[bytes]] | None = None) -> Any:
    """The address of a server with the tool `run`; its calls are answered in turn, by the last answer ever after."""
    left = list(answers)

    async def get_tools(data: bytes, context: Any) -> bytes:
        tools = lite_messages().ToolsList()
        tools.tools.add(name="run").input_schema.update({"type": "object"})
        encoded: bytes = tools.SerializeToString()
        return encoded

    async def call_tool(data: bytes, context: Any) -> bytes:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Refusal):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "No.", ((DETAILS_KEY, answer.details),))
        assert isinstance(answer, bytes)
        return answer

    async def call_tool_stream(data: bytes, context: Any) -> Any:
        assert stream is not None
        async for message in stream():
            yield message

    methods = {
        "GetTools": grpc.unary_unary_rpc_method_handler(get_tools),
        "CallTool": grpc.unary_unary_rpc_method_handler(call_tool),
        "CallToolStream": grpc.unary_stream_rpc_method_handler(call_tool_stream),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        await server.stop(0)


class Refusal:
    """Ends a call with details."""

    def __init__(self, *details: Any) -> None:
        status = status_pb2.Status(code=8, message="Not now.")
        for detail in details:
            if isinstance(detail, any_pb2.Any):
                status.details.append(detail)
            else:
                status.details.add().Pack(detail)
        self.details = status.SerializeToString()


def garbage(name: str) -> any_pb2.Any:
    return any_pb2.Any(type_url=f"type.googleapis.com/google.rpc.{name}", value=b"\xff\xff\xff")


@pytest.mark.parametrize(
    "answer",
    [
        response({"content": [{"type": "text", "text": "ok"}], "_meta": "x"}),
        response({"content": [{"type": "text", "text": "ok"}], "_meta": [1]}),
        text("ok", extra={"stringified": 5}),
        text("ok", extra={"stringified": [5, None, "/content/7"]}),
        text("ok", timestamp=2**62, expires_at_ms=-(2**62)),
    ],
    ids=["meta text", "meta list", "pointers number", "pointers mixed", "times"],
)
async def test_what_a_server_adds_in_another_form_is_ignored(answer):
    async with serve(answer) as address, connect(address) as client:
        assert await client.call("run") == "ok"


@pytest.mark.parametrize("name", ["ErrorInfo", "BadRequest", "RetryInfo"])
async def test_details_that_cannot_be_read_leave_the_status(name):
    async with serve(Refusal(garbage(name))) as address, connect(address) as client:
        with pytest.raises(PeerError, match="Not now"):
            await client.call("run")


async def test_a_wait_that_is_no_number_is_none():
    info = error_details_pb2.ErrorInfo(reason="RATE_LIMITED", metadata={"retry_after_ms": "soon"})
    async with serve(Refusal(info), text("ok")) as address, connect(address) as client:
        assert await client.call("run") == "ok"


@pytest.mark.parametrize("progress", [float("nan"), float("inf"), -5.0, 1e308])
async def test_progress_that_is_no_share_is_not_told(progress):
    told: list[Any] = []
    going_on = response({}, response_type=1, promise_token="t", progress=progress)
    async with serve(going_on, going_on, text("ok")) as address, connect(address) as client:
        pending = await client.start("run")
        assert await pending.result(progress=lambda *report: told.append(report)) == "ok"
    assert all(report[0] == -5.0 for report in told)
    assert len(told) <= 1


async def test_the_first_of_two_results_counts_and_the_stream_is_left():
    async def twice() -> AsyncIterator[bytes]:
        yield part(progress={"progress": "much"})
        yield text("first")
        yield text("second")
        await asyncio.sleep(3600)

    async with serve(stream=twice) as address, connect(address) as client:
        reply = await client.call_tool("run", progress=lambda *report: None)
    assert reply.text == "first"


async def test_a_stream_without_end_ends_at_the_deadline():
    async def forever() -> AsyncIterator[bytes]:
        while True:
            yield part(partial="more")
            await asyncio.sleep(0.01)

    async with serve(stream=forever) as address, connect(address) as client:
        with pytest.raises(DeadlineError):
            await client.call_tool("run", progress=lambda *report: None, timeout=0.5)


async def test_a_message_over_max_bytes_is_refused():
    async with serve(text("x" * 200_000)) as address, connect(address, max_bytes=100_000) as client:
        with pytest.raises(ClientError, match="max_bytes"):
            await client.call("run")
