"""Calls that servers of this library go on with, over every protocol that has a way to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest

from deltamcp import Context, DeltaServer
from deltamcp.client.client import DeltaClient, connect
from deltamcp.errors import CallFailedError, DeadlineError, PeerError, ToolFailure
from tests.support.conditions import wait_until
from tests.support.http_server import serve_http
from tests.support.lite_address import serve_lite

pytest.importorskip("docket")

MakeClient: TypeAlias = Callable[..., DeltaClient]


class Desk:
    """A server with promises, and what its functions did."""

    def __init__(self) -> None:
        self.server = DeltaServer("desk")
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.may_end = asyncio.Event()

        @self.server.tool(promise="always")
        async def work(number: int, ctx: Context) -> dict[str, Any]:
            """Works until it may end."""
            self.begun.append(number)
            await ctx.report_progress(1, 2, "half")
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
            self.ended.append(number)
            return {"number": number}

        @self.server.tool(promise="always")
        async def ask(ctx: Context) -> str:
            """Asks for a name."""
            answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
            return f"Hello {(answer.content or {}).get('name')}"

        @self.server.tool(promise="always")
        async def fail() -> str:
            """Fails."""
            raise ToolFailure("NO_PAPER", "There is no paper")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@contextlib.asynccontextmanager
async def clients(desk: Desk, protocol: str) -> AsyncIterator[MakeClient]:
    """Makes clients of the server that speak a protocol."""
    if protocol in ("http", "grpc"):
        async with serve_lite(desk.server, protocol) as address:  # type: ignore[arg-type]
            yield lambda **options: connect(address, **options)
    else:
        async with serve_http(desk.server) as url:
            yield lambda **options: connect(url, speak=protocol, **options)  # type: ignore[arg-type]


PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc", "modern", "handshake"])


@PROTOCOLS
async def test_ml_36_a_call_waits_for_its_result(desk, protocol):
    async with clients(desk, protocol) as make, make() as client:
        call = asyncio.create_task(client.call("work", number=7))
        await wait_until(lambda: desk.begun == [7], "the work")
        desk.may_end.set()
        assert await call == {"number": 7}
    assert desk.ended == [7]


@PROTOCOLS
async def test_ml_37_another_client_takes_a_call_up_by_its_token(desk, protocol):
    async with clients(desk, protocol) as make:
        async with make() as client:
            pending = await client.start("work", number=8)
            assert pending.token and not pending.state.is_final
        desk.may_end.set()
        async with make() as other:
            again = other.pending(pending.token)
            assert await again.result() == {"number": 8}
            assert (await other.pending(pending.token).status()).status == "completed"
    assert desk.begun == [8]


@PROTOCOLS
async def test_ml_38_a_failure_is_that_of_the_call(desk, protocol):
    async with clients(desk, protocol) as make, make() as client:
        with pytest.raises(CallFailedError, match="no paper"):
            await client.call("fail")


@PROTOCOLS
async def test_ml_39_questions_are_answered(desk, protocol):
    async with clients(desk, protocol) as make, make(on_elicitation=lambda params: {"name": "Ada"}) as client:
        assert await client.call("ask") == "Hello Ada"


@PROTOCOLS
async def test_ml_41_a_call_is_cancelled_with_its_caller(desk, protocol):
    async with clients(desk, protocol) as make, make() as client:
        call = asyncio.create_task(client.call("work", number=9))
        await wait_until(lambda: desk.begun == [9], "the work")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until(lambda: desk.cancelled == [9], "the cancellation")


@PROTOCOLS
async def test_ml_41_a_started_call_is_cancelled_by_hand_only(desk, protocol):
    async with clients(desk, protocol) as make, make() as client:
        pending = await client.start("work", number=3)
        await wait_until(lambda: desk.begun == [3], "the work")
        with pytest.raises(DeadlineError, match="it goes on"):
            await pending.result(timeout=0.3)
        assert not desk.cancelled
        await pending.cancel()
        await wait_until(lambda: desk.cancelled == [3], "the cancellation")
        with pytest.raises(CallFailedError, match="cancelled") as caught:
            await pending.result()
    assert caught.value.code in ("CANCELLED", None)


@PROTOCOLS
async def test_an_unknown_token_is_an_error(desk, protocol):
    async with clients(desk, protocol) as make, make() as client:
        with pytest.raises(PeerError) as caught:
            await client.pending("prom_" + "0" * 26).result()
    assert caught.value.code == -32602


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_progress_of_a_promise_is_reported(desk, protocol):
    told: list[Any] = []
    async with clients(desk, protocol) as make, make() as client:
        pending = await client.start("work", number=1)

        def note(*report: Any) -> None:
            told.append(report)
            desk.may_end.set()

        assert await pending.result(progress=note) == {"number": 1}
    assert told[0] == (0.5, 1, "half")


async def test_a_call_made_over_one_protocol_is_redeemed_over_the_others(desk):
    async with serve_http(desk.server) as url, serve_lite(desk.server, "grpc") as grpc_address:
        async with connect(f"mcplite+{url.removesuffix('/mcp')}") as lite:
            pending = await lite.start("work", number=5)
        assert pending.token is not None
        desk.may_end.set()
        for target, speak in ((grpc_address, "auto"), (url, "modern"), (url, "handshake")):
            async with connect(target, speak=speak) as client:  # type: ignore[arg-type]
                assert await client.pending(pending.token).result() == {"number": 5}
    assert desk.begun == [5]


async def test_ml_35_a_promise_survives_a_server_that_is_away_for_a_while(desk):
    """The engine goes on; only the port is closed and opened again."""
    first = desk.server.grpc(port=0)
    await first.start()
    async with connect(first.address) as client, contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(desk.server.engine.lifespan.running())
        call = asyncio.create_task(client.call("work", number=4))
        await wait_until(lambda: desk.begun == [4], "the work")
        await first.stop(0.1)
        desk.may_end.set()
        again = desk.server.grpc(port=first.port)
        await again.start()
        stack.push_async_callback(again.stop)
        assert await call == {"number": 4}
    assert desk.begun == [4]
