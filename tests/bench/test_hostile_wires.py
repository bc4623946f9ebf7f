"""What the attacks write by hand: HTTP/2, protobuf, and many connections of HTTP."""

import asyncio
import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from bench.hostile import http2, protobuf, search
from bench.hostile.endpoints import GRPC_CALL, Endpoint
from bench.hostile.flood import Flood, write_request
from bench.hostile.grpc_frame_attacks import FRAME_ATTACKS, FrameFlood, OtherGrpcCaller
from bench.hostile.http2 import Http2Connection
from bench.hostile.search import Candidate, FilledField
from bench.hostile.shapes import SHAPES, protobuf_value
from bench.ports import find_free_port
from deltamcp import DeltaServer
from deltamcp.transports.grpc.requests import lite_messages
from deltamcp.values import Era
from tests.support.conditions import HANG_SECONDS
from tests.support.grpc_peer import GrpcPeer, serve_grpc

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def parse(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(lite_messages().ToolRequest.FromString(message))
    return found


# Protobuf


@given(st.dictionaries(st.text(), JSON))
def test_protobuf_reads_what_was_written_by_hand(arguments):
    written = protobuf.call_request({"name": "é", "arguments": arguments}, {})
    assert parse(written) == {"name": "é", "arguments": arguments}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_a_value_of_about_its_size(shape):
    value = protobuf_value(shape, 9_999)
    if shape not in ("deep lists", "too deep", "a negative number", "line breaks", "escapes", "escaped pairs"):
        assert 7_000 < len(value) < 12_000
    if shape != "too deep":
        assert list(parse(protobuf.tool_request("echo", protobuf.entry("text", value)))["arguments"]) == ["text"]


def test_a_candidate_is_a_message_with_fields_filled_in():
    endpoint = Endpoint(Era.MODERN, "tools/call", {"name": "echo", "arguments": {"text": "x"}}, (), "echo", GRPC_CALL)
    filled = (FilledField(("arguments", "text"), "nulls", 8), FilledField(("meta", "answers"), "letters", 3))
    message = search.encode_grpc(Candidate(0, filled), endpoint.message())
    assert parse(message) == {"name": "echo", "arguments": {"text": [None, None]}, "meta": {"answers": "xxx"}}


# HTTP/2


def test_integers_and_headers_are_those_of_hpack():
    assert http2.write_headers([("a", "b")]) == b"\x00\x01a\x01b"
    long = http2.write_headers([("a", "b" * 1_337)])  # RFC 7541, C.1.2, with a prefix of seven bits
    assert long[:5] == b"\x00\x01a\x7f\xba" and long[5:6] == b"\x09"


def make_server() -> DeltaServer:
    server = DeltaServer("wires")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def test_calls_by_hand_are_answered_and_their_status_is_read():
    async with serve_grpc(make_server()) as peer:
        port = peer.server.port

        def call() -> list[http2.StreamReply]:
            with Http2Connection(port) as connection:
                text = protobuf.entry("text", protobuf.text_value("x" * 200_000))  # more than a window
                streams = [
                    connection.call(GRPC_CALL, protobuf.tool_request("echo", text)),
                    connection.call(GRPC_CALL, protobuf.tool_request("ech")),
                ]
                return [connection.wait(stream) for stream in streams]

        answered, refused = await asyncio.to_thread(call)
    response = lite_messages().ToolResponse.FromString(answered.data[5:])
    assert response.result["content"][0]["text"] == "x" * 200_000
    assert refused.data == b"" and "5" in refused.status.split()


@pytest.mark.parametrize("attack", FRAME_ATTACKS, ids=lambda one: one.name)
async def test_frames_of_every_kind_reach_a_server_that_serves_on(attack, caplog):
    async with serve_grpc(make_server()) as peer:
        said = await asyncio.to_thread(FrameFlood(peer.server.port, attack, 2).run, 0.1)
        assert said and "not connected" not in said
        assert await until_answered(peer) == "still here"
    tracebacks = [one for one in caplog.records if one.exc_info and not is_of_other_loops(one.exc_info[1])]
    assert [record.getMessage() for record in tracebacks] == []


def is_of_other_loops(error: BaseException | None) -> bool:
    """The poller of grpc.aio wakes all event loops of a process, as only tests have several.

    Most find nothing, and one of an earlier test is closed.
    """
    return isinstance(error, BlockingIOError) or str(error) == "Event loop is closed"


async def until_answered(peer: GrpcPeer) -> str:
    """What a call is answered once the server has got over what was sent before: until then it may refuse calls."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                text: str = (await peer.call("echo", {"text": "still here"})).result["content"][0]["text"]
                return text


def test_calls_of_another_client_that_fail_are_told():
    with OtherGrpcCaller(find_free_port()) as other:  # where nobody listens
        while not other.failures:
            threading.Event().wait(0.01)
    assert other.broken.endswith("calls of another client failed: ConnectionRefusedError")


# Many connections


@pytest.fixture
def port() -> Iterator[int]:
    """An HTTP server that answers in chunks at one path, and closes the connection at another."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/closed":
                self.close_connection = True
                return
            self.send_response(201 if sent else 200)
            if self.path == "/chunks":
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"3\r\nabc\r\n0\r\n\r\n")
            else:
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"01234")

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/", "/chunks"])
def test_a_flood_sends_as_many_requests_as_it_is_told(port, path):
    found = Flood(port, lambda number: write_request("POST", path), 4).run(20, 30)
    assert dict(found.statuses) == {"200": 30}
    assert found.answered == 30 and found.text.startswith("30 × 200 in ")


def test_connections_that_are_closed_are_counted_and_opened_again(port):
    found = Flood(port, lambda number: write_request("POST", "/closed" if number % 2 else "/"), 3).run(20, 20)
    assert dict(found.statuses) == {"200": 10, "closed": 10}
    assert found.answered == 10


def test_a_request_may_follow_from_the_reply_before(port):
    def follow(head: bytes) -> bytes | None:
        return write_request("POST", "/", b"more") if b" 200 " in head else None

    found = Flood(port, lambda _: write_request("POST", "/"), 2, follow).run(20, 10)
    assert dict(found.statuses) == {"200": 10, "201": 10}
