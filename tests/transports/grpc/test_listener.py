"""Calls by frames that are written by hand, which no client of gRPC sends: the server serves on."""

import asyncio
import logging

import pytest
from grpc._cython import cygrpc

from bench.hostile.http2 import Http2Connection, StreamReply, grpc_headers, grpc_message
from deltamcp import DeltaServer
from deltamcp.runtime.log import WARNING_FILTER
from tests.support.conditions import HANG_SECONDS
from tests.support.grpc_peer import as_dict, serve_grpc

NAMES = ["/x\xcd(y/z", "/\xff", "/mcplite.MCPLite/CallTool\xcd", "/mcplite.MCPLite/Other", "/", ""]


def call_method(port: int, path: str) -> StreamReply:
    with Http2Connection(port, seconds=HANG_SECONDS) as connection:
        return connection.wait(connection.call(path, b""))


@pytest.mark.parametrize("path", NAMES)
async def test_a_method_of_any_name_leaves_the_server_and_calls_under_way(path, caplog):
    server = DeltaServer("names")
    started, ending = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait to be told."""
        started.set()
        await ending.wait()
        return "done"

    async with serve_grpc(server) as peer:
        under_way = asyncio.ensure_future(peer.call("wait"))
        await asyncio.wait_for(started.wait(), HANG_SECONDS)
        for _ in range(3):
            reply = await asyncio.to_thread(call_method, peer.server.port, path)
            assert path == "" or reply.status == "12 Method not found!"
        ending.set()
        for response in (await under_way, await peer.call("wait")):
            assert as_dict(response.result)["content"][0]["text"] == "done"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def call_with_metadata(port: int, metadata: list[tuple[str, str]]) -> StreamReply:
    with Http2Connection(port, seconds=HANG_SECONDS) as connection:
        stream = connection.open_stream(grpc_headers(port, "/mcplite.MCPLite/GetTools", metadata))
        connection.send_data(stream, grpc_message(b""))
        return connection.wait(stream)


async def test_metadata_that_is_no_utf_8_is_one_line_of_the_log_without_what_was_sent(caplog, monkeypatch):
    monkeypatch.setattr(WARNING_FILTER, "_next", {})
    monkeypatch.setattr(WARNING_FILTER, "_left_out", {})
    monkeypatch.setattr("deltamcp.runtime.log.time.monotonic", lambda: 1_000.0)
    metadata = [("authorization", "Bearer secret\xcd("), ("x-other", "\xff"), *[(f"x-{n}", "\xcd(") for n in range(20)]]
    async with serve_grpc(DeltaServer("metadata")) as peer:
        for _ in range(3):
            reply = await asyncio.to_thread(call_with_metadata, peer.server.port, metadata)
            assert reply.status == "0"
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.levelname == "WARNING" and record.getMessage() == "Metadata of a gRPC call is no UTF-8"
    assert "Traceback" not in caplog.text and "secret" not in caplog.text


def test_a_call_that_its_client_left_is_one_line_and_an_authors_error_keeps_its_traceback(caplog, monkeypatch):
    monkeypatch.setattr(WARNING_FILTER, "_next", {})
    monkeypatch.setattr(WARNING_FILTER, "_left_out", {})
    monkeypatch.setattr("deltamcp.runtime.log.time.monotonic", lambda: 1_000.0)
    logger = logging.getLogger("grpc._cython.cygrpc")
    for error in (cygrpc.ExecuteBatchError("x"), cygrpc.ExecuteBatchError("y"), UnicodeError("author")):
        try:
            raise error
        except Exception:
            logger.exception("raised by servicer method [x]")
    assert caplog.messages == ["A gRPC call ended before its response was sent", "raised by servicer method [x]"]
    assert [record.exc_info is None for record in caplog.records] == [True, False]
