"""A two-way connection: what it holds for its client is bounded, whatever the client sends or does not read."""

import json
from typing import Any

from deltamcp import DeltaServer
from deltamcp.transports import asgi_messages
from deltamcp.transports.subscription import Subscription
from deltamcp.values import Filter, Request
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
        link.send(line("resources/subscribe", 1, uri="x" * 2049))
        assert b"at most 2048 characters" in await link.receive()
        link.send(line("resources/subscribe", 1, uri="x" * 2048))
        assert b"result" in await link.receive()


def test_a_subscription_does_not_hold_its_request():
    request = Request(1, "subscriptions/listen", {"extra": HUGE, "_meta": META})
    server = DeltaServer("x")
    subscription = Subscription(server.engine.dialects.newest, request, "2026-07-28", Filter(), lambda message: None)
    assert subscription._request == Request(1, "subscriptions/listen", {})


def test_long_headers_are_no_keys_of_a_cache():
    asgi_messages._accepted_types.cache_clear()
    long = b"application/json, " + b"x" * 30_000
    assert asgi_messages.read_accept(long) == asgi_messages.read_accept(b"application/json, x")
    assert asgi_messages.read_accept(b"x" * 30_000) is None
    assert asgi_messages._accepted_types.cache_info().currsize == 1
