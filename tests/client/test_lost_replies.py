"""Calls whose connection breaks before the reply, at servers of this library and over every protocol."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.client.client import connect
from deltamcp.errors import ConnectionLostError, DeadlineError
from tests.support.conditions import wait_until
from tests.support.http_server import serve_http
from tests.support.lite_address import serve_lite
from tests.support.tcp_relay import TcpRelay, serve_relay

pytest.importorskip("docket")

PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc", "modern"])


class Press:
    """A server with a tool that gives promises and one that does not; both print once they may."""

    def __init__(self) -> None:
        self.server = DeltaServer("press")
        self.printed: list[str] = []
        self.cancelled: list[str] = []
        self.may_end = asyncio.Event()

        @self.server.tool(promise="auto", sync_seconds=30)
        async def promised(text: str) -> str:
            """Prints, perhaps later."""
            return await self._print(text)

        @self.server.tool
        async def plain(text: str) -> str:
            """Prints."""
            return await self._print(text)

    async def _print(self, text: str) -> str:
        self.printed.append(text)
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.append(text)
            raise
        return f"{text} is printed"


@contextlib.asynccontextmanager
async def relayed(press: Press, protocol: str) -> AsyncIterator[tuple[TcpRelay, str, Any]]:
    """Serves a server behind a relay; yields the relay, its address and the protocol that the client is to speak."""
    served = serve_http(press.server) if protocol == "modern" else serve_lite(press.server, protocol)  # type: ignore[arg-type]
    async with served as address:
        found = re.search(r":(\d+)", address.partition("://")[2])
        assert found is not None
        async with serve_relay(int(found[1])) as relay:
            yield relay, address.replace(found[0], f":{relay.port}"), "modern" if protocol == "modern" else "auto"


@PROTOCOLS
async def test_ml_43_a_call_that_may_be_promised_is_sent_again_and_runs_once(protocol):
    press = Press()
    async with relayed(press, protocol) as (relay, address, speak), connect(address, speak=speak) as client:
        call = asyncio.create_task(client.call("promised", text="a"))
        await wait_until(lambda: bool(press.printed), "the first run")
        relay.cut()
        press.may_end.set()
        assert await call == "a is printed"
        assert await client.call("promised", text="a") == "a is printed"
    assert press.printed == ["a", "a"]


@PROTOCOLS
@pytest.mark.parametrize("tool", ["promised", "plain"])
async def test_a_call_whose_caller_goes_away_before_the_reply_is_cancelled(protocol, tool):
    press = Press()
    async with relayed(press, protocol) as (_, address, speak), connect(address, speak=speak) as client:
        call = asyncio.create_task(client.call(tool, text="c"))
        await wait_until(lambda: bool(press.printed), "the first run")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until(lambda: press.cancelled == ["c"], "the cancellation")
        press.printed.clear()
        with pytest.raises(DeadlineError):
            await client.call_tool(tool, {"text": "d"}, timeout=1)
        await wait_until(lambda: press.cancelled == ["c", "d"], "the cancellation")


@PROTOCOLS
async def test_a_call_of_another_tool_is_not_sent_again(protocol):
    press = Press()
    async with relayed(press, protocol) as (relay, address, speak), connect(address, speak=speak) as client:
        call = asyncio.create_task(client.call("plain", text="b"))
        await wait_until(lambda: bool(press.printed), "the first run")
        relay.cut()
        with pytest.raises(ConnectionLostError, match="may have been done"):
            await call
    assert press.printed == ["b"]
