"""Calls over gRPC that hold a place of the server without credentials or without a message."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from deltamcp import DeltaServer, Limits, StaticTokens
from deltamcp.auth.static_tokens import make_token
from tests.support.conditions import HANG_SECONDS
from tests.support.grpc_peer import GrpcPeer, as_dict, refusal, serve_grpc, tool_request

OPEN_CALLS = 8


def make_server(**limits: Any) -> DeltaServer:
    server = DeltaServer("places", limits=Limits(calls=OPEN_CALLS, account_share=0.5, **limits))

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


@contextlib.asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Several connections, because each may have only some calls at once."""
    async with contextlib.AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        yield [
            await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options))
            for _ in range(count)
        ]


async def assert_serves(peer: GrpcPeer, **options: Any) -> None:
    response = await peer.call("add", {"a": 1, "b": 2}, timeout=HANG_SECONDS, **options)
    assert as_dict(response.result)["content"][0]["text"] == "3"


async def silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def read_all(call: Any) -> grpc.StatusCode:
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for _ in call:
            return grpc.StatusCode.OK
    code: grpc.StatusCode = await call.code()
    return code


async def test_watches_of_the_health_leave_room_for_calls():
    async with serve_grpc(make_server()) as peer, connections(peer.server.port, OPEN_CALLS) as channels:
        watches = [channel.unary_stream("/grpc.health.v1.Health/Watch")(b"") for channel in channels for _ in range(2)]
        codes = await asyncio.gather(*map(read_all, watches))
        assert codes.count(grpc.StatusCode.OK) == 1 and set(codes) == {
            grpc.StatusCode.OK,
            grpc.StatusCode.UNAVAILABLE,
        }
        await assert_serves(peer)
        for watch in watches:
            watch.cancel()


async def test_dialogs_of_reflection_leave_room_for_calls():
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    async with serve_grpc(make_server()) as peer, connections(peer.server.port, OPEN_CALLS) as channels:
        dialogs = [channel.stream_stream(method)(silence()) for channel in channels for _ in range(2)]
        reading = [asyncio.ensure_future(read_all(dialog)) for dialog in dialogs]
        while sum(task.done() for task in reading) < len(reading) - 1:
            await asyncio.wait([task for task in reading if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        await assert_serves(peer)
        for dialog in dialogs:
            dialog.cancel()
        await asyncio.wait(reading)


@pytest.fixture
def tokens(tmp_path):
    """The metadata of two principals, and who knows them."""
    (ada, ada_line), (bob, bob_line) = make_token("ada"), make_token("bob")
    path = tmp_path / "tokens"
    path.write_text(f"{ada_line}\n{bob_line}\n")
    path.chmod(0o600)
    return (("authorization", f"Bearer {ada}"),), (("authorization", f"Bearer {bob}"),), StaticTokens(path)


async def test_calls_without_a_message_hold_only_the_share_of_their_caller(tokens):
    ada, bob, auth = tokens
    async with serve_grpc(make_server(), auth=auth) as peer, connections(peer.server.port, OPEN_CALLS) as channels:
        method = "/mcplite.MCPLite/CallTool"
        calls = [channel.stream_unary(method)(silence(), metadata=ada) for channel in channels for _ in range(2)]
        codes = [asyncio.ensure_future(call.code()) for call in calls]
        while sum(task.done() for task in codes) < len(codes) - OPEN_CALLS // 2:
            await asyncio.wait([task for task in codes if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in codes if task.done()} == {grpc.StatusCode.UNAVAILABLE}
        await assert_serves(peer, metadata=bob)
        for call in calls:
            call.cancel()
        await asyncio.wait(codes)


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def unreading_client(calls: int, metadata: tuple[tuple[str, str], ...]) -> bytes:
    """What a client of HTTP/2 sends that calls `add` so often and allows no byte of a response."""
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcplite.MCPLite/CallTool"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *metadata,
    )
    block = b"".join(
        b"\x00%c%b%c%b" % (len(name), name.encode(), len(value), value.encode()) for name, value in headers
    )
    message = tool_request("add", {"a": 1, "b": 2}).SerializeToString()
    data = struct.pack(">BI", 0, len(message)) + message
    no_window = struct.pack(">HI", 4, 0)  # SETTINGS_INITIAL_WINDOW_SIZE
    frames = [http2_frame(4, 0, 0, no_window)]
    for number in range(calls):
        stream = 2 * number + 1
        frames += http2_frame(1, 4, stream, block), http2_frame(0, 1, stream, data)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(frames)


async def test_unread_responses_hold_only_the_share_of_their_caller(tokens):
    ada, bob, auth = tokens
    async with serve_grpc(make_server(), auth=auth) as peer, contextlib.AsyncExitStack() as stack:
        for _ in range(OPEN_CALLS):
            reader, writer = await asyncio.open_connection("127.0.0.1", peer.server.port)
            stack.callback(writer.close)
            writer.write(unreading_client(2, ada))
            heads = 0
            async with asyncio.timeout(HANG_SECONDS):
                while heads < 2:  # those of responses, or of refusals
                    length, kind, _, _ = struct.unpack(">IBBI", b"\0" + await reader.readexactly(9))
                    await reader.readexactly(length)
                    heads += kind == 1
        await assert_serves(peer, metadata=bob)


@pytest.mark.parametrize(
    "method", ["mcplite.MCPLite/CallTool", "mcplite.MCPLite/GetTools", "grpc.health.v1.Health/Check"]
)
async def test_a_message_that_does_not_come_ends_the_call(method):
    async with serve_grpc(make_server(body_seconds=0.05)) as peer:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peer.channel.stream_unary(f"/{method}")(silence(), timeout=HANG_SECONDS)
        assert refusal(caught.value).code == "DEADLINE_EXCEEDED" and refusal(caught.value).reason == "TIMEOUT"


async def test_a_call_that_ends_without_a_message_is_invalid():
    async def nothing() -> AsyncIterator[bytes]:
        return
        yield

    async with serve_grpc(make_server()) as peer:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peer.channel.stream_unary("/mcplite.MCPLite/CallTool")(nothing(), timeout=HANG_SECONDS)
        assert refusal(caught.value).reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (health_pb2.HealthCheckRequest(service="x" * 5000).SerializeToString(), "PAYLOAD_TOO_LARGE"),
        (b"\xff", "PARSE_ERROR"),
    ],
    ids=["large", "malformed"],
)
async def test_large_and_malformed_requests_to_the_health_are_refused(data, reason):
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peer.channel.unary_unary("/grpc.health.v1.Health/Check")(data, timeout=HANG_SECONDS)
        assert refusal(caught.value).reason == reason
