"""Upstreams over HTTP, new and old, of the official SDK: they are killed, missed for a while, and come back."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp.errors import UpstreamError
from deltamcp.upstreams.client import Phase
from deltamcp.upstreams.upstream import Upstream
from tests.support.conditions import advance_clock, wait_until
from tests.support.fork_server import ForkedProcess, Start, fork
from tests.support.forwarded_call import call
from tests.support.paths import ROOT, SDK_PEER
from tests.support.processes import free_port, wait_until_it_listens


@contextlib.asynccontextmanager
async def sdk_server(port: int, transport: str) -> AsyncIterator[None]:
    """Runs a server, and kills it. The event loop goes on meanwhile, and sees that connections close."""
    process = await asyncio.to_thread(start, [str(port), transport])
    try:
        await asyncio.to_thread(wait_until_it_listens, process, port)
        yield
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def start(words: list[str]) -> ForkedProcess:
    with Path(os.devnull).open("r+b") as nowhere:
        return fork(Start(words, str(ROOT), os.environ, program=str(SDK_PEER)), *3 * [nowhere.fileno()])


@pytest.mark.parametrize(
    ("transport", "path", "options"),
    [
        ("streamable-http", "mcp", {}),
        ("streamable-http", "mcp", {"speak": "handshake"}),
        ("sse", "sse", {}),
    ],
    ids=["modern", "sessions", "sse"],
)
async def test_a_server_that_goes_and_comes_back(transport, path, options: dict[str, Any]):
    port = free_port()
    upstream = Upstream("sdk", {"url": f"http://127.0.0.1:{port}/{path}"}, **options)
    try:
        async with sdk_server(port, transport):
            assert await call(upstream, "add", a=2, b=3) == {"result": 5}
            assert upstream.state.phase.value == Phase.READY.value
        with pytest.raises(UpstreamError, match="try again later") as caught:
            await call(upstream, "add", a=2, b=3)
        assert caught.value.retryable
        assert upstream.state.phase.value == Phase.BACKING_OFF.value
        async with sdk_server(port, transport):
            advance_clock(60)
            assert await call(upstream, "add", a=3, b=3) == {"result": 6}
            assert upstream.state.restarts == 1
    finally:
        await upstream.close()


async def test_a_session_that_was_forgotten_is_opened_again_and_the_call_is_served():
    port = free_port()
    upstream = Upstream("sdk", {"url": f"http://127.0.0.1:{port}/mcp"}, speak="handshake")
    try:
        async with sdk_server(port, "streamable-http"):
            assert await call(upstream, "add", a=2, b=3) == {"result": 5}
        async with sdk_server(port, "streamable-http"):
            assert await call(upstream, "add", a=3, b=3) == {"result": 6}
    finally:
        await upstream.close()


async def test_the_end_of_an_old_stream_is_noticed_before_anybody_calls():
    port = free_port()
    upstream = Upstream("sdk", {"url": f"http://127.0.0.1:{port}/sse", "type": "sse"})
    try:
        async with sdk_server(port, "sse"):
            assert await call(upstream, "add", a=2, b=3) == {"result": 5}
        await wait_until(lambda: upstream.state.phase is Phase.BACKING_OFF)
    finally:
        await upstream.close()
