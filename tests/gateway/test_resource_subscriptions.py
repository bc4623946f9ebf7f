"""Subscriptions reach the upstream that has the resource while a client has one; notices come back to that client."""

import asyncio

import pytest

from deltamcp import connect
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


async def test_a_subscription_ends_with_the_connection_of_its_client(tmp_path):
    made = gateway(tmp_path, ListingUpstream(tmp_path, "one", **LISTS).config())
    async with connect(made.server) as staying:
        async with connect(made.server, on_change=lambda change: None) as client:
            await client.subscribe("note://1")
            await wait_until(lambda: made.upstreams["one"].state.subscriptions == 1)
        await wait_until(lambda: made.upstreams["one"].state.subscriptions == 0)
        assert await staying.resources()
