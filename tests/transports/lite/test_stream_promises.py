"""Event streams of calls that become promises, and of redeeming them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import uvicorn

from deltamcp import Context, DeltaServer
from deltamcp.auth.authenticator import Credentials
from deltamcp.limits import Limits
from deltamcp.transports.http.server import make_server
from deltamcp.values import Principal
from tests.support.conditions import wait_until
from tests.support.http_server import serve_uvicorn
from tests.support.lite_client import PREFIX
from tests.support.lite_stream import LiteEvent, lite_stream
from tests.support.promise_queue import queue_for


class Orders:
    """Tools behind promises, whose end a test decides."""

    def __init__(self, **options: Any) -> None:
        self.server = server = DeltaServer("orders", **options)
        self.began, self.may_end, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.queue = queue_for(server)

        @server.tool(promise="auto", sync_seconds=0.05)
        async def slow(ctx: Context) -> str:
            """Becomes a promise."""
            await ctx.report_progress(1, 4, "begun")
            await self._wait()
            return "made"

        @server.tool(promise="auto", sync_seconds=60)
        async def patient(ctx: Context) -> str:
            """Keeps its client waiting."""
            await ctx.report_progress(1, 4, "begun")
            await self._wait()
            return "made"

        @server.tool(promise="always")
        async def ask(ctx: Context) -> str:
            """Asks."""
            city = await ctx.elicit("Which city?", {"properties": {"city": {"type": "string"}}, "required": ["city"]})
            return f"To {city.content['city']}."

    async def _wait(self) -> None:
        self.began.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    @contextlib.asynccontextmanager
    async def serve(self, **options: Any) -> AsyncIterator[tuple[str, uvicorn.Server]]:
        uvicorn_server = make_server(self.server.engine, port=0, **options)
        async with serve_uvicorn(uvicorn_server) as address:
            yield address, uvicorn_server
            await self.queue.kill()


def token_of(event: LiteEvent) -> str:
    assert (event.kind, event.data["_meta"]["response_type"]) == ("done", "promise"), event
    token: str = event.data["_meta"]["promise_token"]
    assert event.data["result"]["promise"]["token"] == token
    return token


async def test_ml_82_a_stream_may_end_with_a_promise_and_redeeming_it_goes_on():
    orders = Orders()
    async with orders.serve() as (address, _):
        async with lite_stream(address, "slow") as stream:
            token = token_of(await stream.last())
        async with lite_stream(address, "redeem", {"promise": token}) as stream:
            first = await stream.next()
            assert first is not None and first.kind == "heartbeat"
            orders.may_end.set()
            done = await stream.last()
    assert done.data["_meta"]["response_type"] == "answer"
    assert done.data["result"]["content"][0]["text"] == "made"


async def test_progress_of_a_promised_call_goes_to_the_stream_that_waits_for_it():
    orders = Orders()
    async with orders.serve() as (address, _), lite_stream(address, "patient") as stream:
        events: list[LiteEvent] = []
        while not events or "progress" not in events[-1].data:
            event = await stream.next()
            assert event is not None
            events.append(event)
        assert events[-1].kind == "heartbeat"
        assert (events[-1].data["progress"], events[-1].data["total"]) == (1, 4)
        orders.may_end.set()
        assert (await stream.last()).kind == "done"


async def test_redeeming_with_a_time_to_wait_ends_with_the_promise():
    orders = Orders()
    async with orders.serve() as (address, _):
        async with lite_stream(address, "slow") as stream:
            token = token_of(await stream.last())
        async with lite_stream(address, "redeem", {"promise": token, "wait_ms": 10}) as stream:
            assert token_of(await stream.last()) == token


async def test_ml_52_leaving_a_stream_that_redeems_does_not_cancel_the_call():
    orders = Orders()
    async with orders.serve() as (address, _):
        async with lite_stream(address, "slow") as stream:
            token = token_of(await stream.last())
        async with lite_stream(address, "redeem", {"promise": token}) as stream:
            assert await stream.next() is not None
        orders.may_end.set()
        async with lite_stream(address, "redeem", {"promise": token}) as stream:
            assert (await stream.last()).data["result"]["content"][0]["text"] == "made"
    assert not orders.cancelled.is_set()


async def test_ml_52_leaving_a_stream_that_has_no_token_yet_cancels_the_call():
    orders = Orders()
    async with orders.serve() as (address, _):
        async with lite_stream(address, "patient") as stream:
            await orders.began.wait()
            assert await stream.next() is not None
        await wait_until(orders.cancelled.is_set, "the call was cancelled")


async def test_ml_39_questions_are_asked_and_answered_through_redeem():
    orders = Orders()
    async with orders.serve() as (address, _), httpx2.AsyncClient() as http:

        async def redeem(**arguments: Any) -> Any:
            call = {"name": "redeem", "arguments": {"promise": token, "wait_ms": 20_000, **arguments}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            return (await http.post(f"{address}{PREFIX}/rpc", json=body)).json()["result"]

        async with lite_stream(address, "ask") as stream:
            token = token_of(await stream.last())
        async with lite_stream(address, "redeem", {"promise": token}) as stream:
            asked = await stream.last()
        assert asked.data["_meta"]["response_type"] == "elicitation"
        assert [one["id"] for one in asked.data["result"]["elicitation"]["questions"]] == ["city"]
        again = await redeem(input={})
        assert again["_meta"]["response_type"] == "elicitation"
        answered = await redeem(input={"city": "Oslo"})
        assert answered["content"][0]["text"] == "To Oslo."


# Shutdown


async def test_ml_52_at_shutdown_a_call_that_may_be_promised_ends_with_its_promise(tmp_path: Path):
    orders = Orders(store=f"sqlite:///{tmp_path}/store.db", limits=Limits(drain_seconds=60))
    async with orders.serve() as (address, uvicorn_server), lite_stream(address, "patient") as stream:
        await orders.began.wait()
        uvicorn_server.should_exit = True
        assert token_of(await stream.last())


async def test_ml_52_at_shutdown_a_stream_that_redeems_ends_with_the_promise(tmp_path: Path):
    orders = Orders(store=f"sqlite:///{tmp_path}/store.db", limits=Limits(drain_seconds=60))
    async with orders.serve() as (address, uvicorn_server):
        async with lite_stream(address, "slow") as stream:
            token = token_of(await stream.last())
        async with lite_stream(address, "redeem", {"promise": token}) as stream:
            assert await stream.next() is not None
            uvicorn_server.should_exit = True
            assert token_of(await stream.last()) == token


async def test_a_promise_that_would_end_with_the_process_is_not_given_out_at_shutdown():
    orders = Orders(limits=Limits(drain_seconds=1))
    async with orders.serve() as (address, uvicorn_server), lite_stream(address, "patient") as stream:
        await orders.began.wait()
        uvicorn_server.should_exit = True
        last = await stream.last()
    assert last.data["error"]["data"]["reason"] == "SERVER_SHUTDOWN"


class ShortLived:
    """Admits every caller for a moment."""

    documents: Mapping[str, bytes] = MappingProxyType({})

    async def authenticate(self, credentials: Credentials) -> Principal:
        return Principal("ada", expires_at=time.time() + 0.1)

    def challenge(self, failure: Any) -> None:
        return None

    async def close(self) -> None: ...


async def test_a_stream_ends_with_the_promise_when_the_token_of_its_caller_expires():
    orders = Orders()
    async with orders.serve(auth=ShortLived()) as (address, _):
        async with lite_stream(address, "slow") as events:
            token = token_of((await events.rest())[-1])
        async with lite_stream(address, "redeem", {"promise": token}) as events:
            assert token_of((await events.rest())[-1]) == token
