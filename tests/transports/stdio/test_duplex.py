"""A two-way connection: what it holds for its client is bounded, whatever the client sends or does not read."""

import asyncio
import json
from typing import Any

from deltamcp import DeltaServer, Limits
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.transports.http import exchange
from deltamcp.transports.sessions.session import Subscription
from deltamcp.transports.stdio.duplex import Duplex
from deltamcp.values import ANONYMOUS_CALLER, LOCAL, Filter, Request
from deltamcp.wire.codecs import JSON_CODEC
from tests.support.conditions import HANG_SECONDS
from tests.support.raw_client import META
from tests.support.raw_link import raw_link

HUGE = "x" * 100_000


def line(method: str, id_: int, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


async def test_a_session_subscribes_to_so_many_resources_at_most():
    server = DeltaServer("x")
    async with raw_link(server.engine) as link:
        link.send(line("initialize", 0, protocolVersion="2025-11-25", capabilities={}, clientInfo={}))
        await link.receive()
        for number in range(1000):
            link.send(line("resources/subscribe", number, uri=f"x://{number}"))
            assert b"result" in await link.receive()
        link.send(line("resources/subscribe", 1, uri="x://more"))
        assert b"at most 1000 resources" in await link.receive()
        link.send(line("resources/unsubscribe", 1, uri="x://1"))
        assert b"result" in await link.receive()
        link.send(line("resources/subscribe", 1, uri="x" * 8193))
        assert b"at most 8192 characters" in await link.receive()
        link.send(line("resources/subscribe", 1, uri="x" * 8192))
        assert b"result" in await link.receive()


def test_a_subscription_does_not_hold_its_request():
    request = Request(1, "subscriptions/listen", {"extra": HUGE, "_meta": META})
    server = DeltaServer("x")
    subscription = Subscription(server.engine.dialects.newest, request, "2026-07-28", Filter(), print, LOCAL)
    assert subscription._request == Request(1, "subscriptions/listen", {})


def test_long_headers_are_no_keys_of_a_cache():
    exchange._read_types.cache_clear()
    for accept in (b"application/json, " + b"x" * 30_000, b"application/json, x"):
        headers, quotas = {b"accept": accept, b"content-type": b"application/json"}, HttpQuotas(Limits())
        request = exchange.Exchange({}, headers, "", ANONYMOUS_CALLER, "POST", frozenset(), None, None, quotas)
        assert exchange.choose_codecs(request) is JSON_CODEC
        assert not request.accepts.events
    assert exchange._read_types.cache_info().currsize == 1


class Slow:
    """A server whose tool ends when told, and that counts the calls of another."""

    def __init__(self) -> None:
        self.server = DeltaServer("x")
        self.go_on = asyncio.Event()
        self.calls = 0

        @self.server.tool
        async def wait(text: str) -> int:
            await self.go_on.wait()
            return len(text)

        @self.server.tool
        async def produce(size: int) -> str:
            self.calls += 1
            return "x" * size


def call(id_: int, name: str, **arguments: Any) -> bytes:
    return line("tools/call", id_, name=name, arguments=arguments, _meta=META)


async def test_large_requests_in_progress_are_limited_and_small_ones_go_on():
    slow = Slow()
    async with asyncio.timeout(HANG_SECONDS), raw_link(slow.server.engine) as link:
        for number in range(16):
            link.send(call(number, "wait", text="x" * 4_000_000))
        link.send(call(100, "wait", text="x" * 4_000_000))
        refused = json.loads(await link.receive())
        assert refused["id"] == 100 and "large requests" in refused["error"]["message"]
        link.send(call(101, "produce", size=3))
        assert json.loads(await link.receive())["id"] == 101
        slow.go_on.set()
        assert {json.loads(await link.receive())["id"] for _ in range(16)} == set(range(16))
        link.send(call(102, "wait", text="x" * 4_000_000))
        assert json.loads(await link.receive())["id"] == 102, "what has ended counts no more"


async def test_requests_of_many_values_count_for_the_memory_of_these():
    slow = Slow()
    async with asyncio.timeout(HANG_SECONDS), raw_link(slow.server.engine) as link:
        body = line("tools/call", 0, name="wait", arguments={"text": "x"}, _meta=META, other=[[]] * 40_000)
        for number in range(30):
            link.send(body.replace(b'"id": 0', b'"id": %d' % number))
        refused = json.loads(await link.receive())["id"]
        assert 15 < refused < 25
        slow.go_on.set()


class Unread:
    """The server's end of a connection whose client stops reading."""

    def __init__(self, engine: Any) -> None:
        self.written: list[bytes] = []
        self.writable = asyncio.Event()
        self.duplex = Duplex(engine, self)

    def write(self, message: bytes) -> None:
        self.written.append(message)

    async def wait_writable(self) -> None:
        await self.writable.wait()

    def request_finished(self) -> None: ...


async def test_while_nobody_reads_no_further_results_are_made():
    slow = Slow()
    async with slow.server.engine.lifespan.running():
        end = Unread(slow.server.engine)
        for number in range(50):
            end.duplex.receive(call(number, "produce", size=100_000))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (slow.calls, end.written) == (0, [])
        end.writable.set()
        await end.duplex.drain(HANG_SECONDS)
        assert (slow.calls, len(end.written)) == (50, 50)
