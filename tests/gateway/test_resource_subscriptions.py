"""Subscriptions reach the upstream that has the resource while a client has one; notices come back to that client."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.errors import PeerError, UnreachableError
from deltamcp.gateway import resource_subscriptions
from deltamcp.gateway.resource_subscriptions import ResourceSubscriptions
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS
from tests.support.listing_upstream import ListingUpstream, gateway, tool

LISTS = {"resources": [{"uri": "note://1", "name": "note"}], "tools": [tool("touch")]}


@pytest.mark.parametrize("speak", ERAS)
async def test_a_notice_comes_back_to_those_that_subscribed(tmp_path, speak):
    configs = [ListingUpstream(tmp_path, name, **LISTS).config() for name in ("one", "two")]
    made = gateway(tmp_path, *configs)
    changes: list[str] = []
    others: list[str] = []
    async with (
        connect(made.server, speak=speak, on_change=changes.append) as client,
        connect(made.server, speak=speak, on_change=others.append) as other,
    ):
        await client.subscribe("note://two/1")
        await wait_until(lambda: made.upstreams["two"].state.subscriptions == 1)
        assert made.upstreams["one"].state.subscriptions == 0
        while "note://two/1" not in changes:  # the upstream may not have it yet
            await other.call_tool("two_touch", {"uri": "note://1"})
            await asyncio.sleep(0)
        assert "note://two/1" not in others and "note://1" not in changes
        await client.unsubscribe("note://two/1")
        await wait_until(lambda: made.upstreams["two"].state.subscriptions == 0)


@pytest.mark.parametrize(("error", "attempts"), [(UnreachableError("It is down."), 3), (PeerError(-32602, "No."), 1)])
async def test_an_upstream_that_is_down_is_asked_again_and_one_that_refuses_is_not(monkeypatch, error, attempts):
    monkeypatch.setattr(resource_subscriptions, "_FIRST_PAUSE", 0)
    asked: list[str] = []

    async def subscribe(uri):
        asked.append(uri)
        if len(asked) < 3:
            raise error

    upstream: Any = SimpleNamespace(name="one", subscribe=subscribe)
    resource: Any = SimpleNamespace(upstream=upstream, uri_there=lambda uri: uri)
    hub: Any = SimpleNamespace(watched_uris=lambda: {"note://1"}, on_watch=None)
    made = ResourceSubscriptions(hub, lambda uri: resource, lambda uri: None)
    async with made.running():
        hub.on_watch()
        await wait_until(lambda: len(asked) == attempts)
        await wait_until(lambda: len(made._tasks) == 1)  # the one that follows
    assert asked == ["note://1"] * attempts


async def test_a_subscription_ends_with_the_connection_of_its_client(tmp_path):
    made = gateway(tmp_path, ListingUpstream(tmp_path, "one", **LISTS).config())
    async with connect(made.server) as staying:
        async with connect(made.server, on_change=lambda change: None) as client:
            await client.subscribe("note://1")
            await wait_until(lambda: made.upstreams["one"].state.subscriptions == 1)
        await wait_until(lambda: made.upstreams["one"].state.subscriptions == 0)
        assert await staying.resources()
