"""Calls by frames that are written by hand, which no client of gRPC sends: the server serves on."""

import asyncio
import logging

import pytest

from bench.hostile.http2 import Http2Connection, StreamReply
from deltamcp import DeltaServer
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
