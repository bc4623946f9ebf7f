"""Subscriptions reach the upstream that has the resource while a client has one; notices come back to that client."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.catalog.items.resource import MAX_URI_CHARS
from deltamcp.errors import PeerError, UnreachableError
from deltamcp.gateway import upstream_resources
from deltamcp.gateway.upstream_resources import ResourceSubscriptions
from deltamcp.runtime.change_hub import Change, ChangeHub, OwnChange
from deltamcp.values import LOCAL, Kind, Principal
from deltamcp.work import Work
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS
from tests.support.listing_upstream import ListingUpstream, gateway, tool

ALICE, BOB = (Principal(name, issuer="https://issuer.example") for name in ("alice", "bob"))
LISTS = {"resources": [{"uri": "note://1", "name": "note"}], "tools": [tool("touch")]}


class Watcher:
    """A client of a principal that watches some resources."""

    def __init__(self, *uris: str, principal: Principal = LOCAL) -> None:
        self.uris, self.principal = {*uris}, principal

    def wants(self, change: Kind | str) -> bool:
        return change in self.uris

    def watched_uris(self) -> Collection[str]:
        return self.uris

    def notify(self, method: str, params: dict[str, Any], position: object = None) -> None:
        raise AssertionError("nothing is published here")


class Upstreamlike:
    """What subscriptions ask of an upstream; each principal has a login of its own there."""

    name = "one"

    def __init__(self) -> None:
        self.held: set[tuple[str, str]] = set()
        self.asked = self.at_once = self.most_at_once = 0

    def login_of(self, principal: Principal) -> Principal:
        return principal

    async def subscribe(self, uri: str, principal: Principal) -> None:
        await self._answer()
        self.held.add((principal.owner, uri))

    async def unsubscribe(self, uri: str, principal: Principal) -> None:
        await self._answer()
        self.held.remove((principal.owner, uri))

    async def _answer(self) -> None:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1


@contextlib.asynccontextmanager
async def subscriptions(upstream: Any, steps: int = 1, **options: Any) -> AsyncIterator[tuple[ChangeHub, Any]]:
    """Subscriptions at an upstream that has any URI, which takes some steps to find out."""
    hub, told = ChangeHub(), list[Change]()

    def find(uri: str, principal: Principal, work: Work) -> Any:
        work.spend(steps)
        return SimpleNamespace(upstream=upstream, uri_there=lambda uri: uri)

    made = ResourceSubscriptions(hub, find, told.append, **options)
    async with made.running():
        yield hub, SimpleNamespace(made=made, told=told)


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
        await wait_until(lambda: made.upstreams["two"].connection.state.subscriptions == 1)
        assert made.upstreams["one"].connection.state.subscriptions == 0
        while "note://two/1" not in changes:  # the upstream may not have it yet
            await other.call_tool("two_touch", {"uri": "note://1"})
            await asyncio.sleep(0)
        assert "note://two/1" not in others and "note://1" not in changes
        await client.unsubscribe("note://two/1")
        await wait_until(lambda: made.upstreams["two"].connection.state.subscriptions == 0)


@pytest.mark.parametrize(("error", "attempts"), [(UnreachableError("It is down."), 3), (PeerError(-32602, "No."), 1)])
async def test_an_upstream_that_is_down_is_asked_again_and_one_that_refuses_is_not(monkeypatch, error, attempts):
    monkeypatch.setattr(upstream_resources, "_FIRST_PAUSE", 0)
    asked: list[str] = []

    class Down(Upstreamlike):
        async def subscribe(self, uri, principal):
            asked.append(uri)
            if len(asked) < 3:
                raise error

    async with subscriptions(Down()) as (hub, _):
        hub.subscribe(Watcher("note://1"))
        await wait_until(lambda: len(asked) == attempts)
        for _ in range(20):
            await asyncio.sleep(0)
    assert asked == ["note://1"] * attempts


async def test_a_subscription_ends_with_the_connection_of_its_client(tmp_path):
    made = gateway(tmp_path, ListingUpstream(tmp_path, "one", **LISTS).config())
    async with connect(made.server) as staying:
        async with connect(made.server, on_change=lambda change: None) as client:
            await client.subscribe("note://1")
            await wait_until(lambda: made.upstreams["one"].connection.state.subscriptions == 1)
        await wait_until(lambda: made.upstreams["one"].connection.state.subscriptions == 0)
        assert await staying.list_resources()


async def test_a_uri_that_is_too_long_to_be_read_is_not_subscribed_to_either(tmp_path):
    made = gateway(tmp_path, ListingUpstream(tmp_path, "one", **LISTS).config())
    async with connect(made.server) as client:
        assert await client.list_resources()
        longest = "note://".ljust(MAX_URI_CHARS, "x")
        assert made._catalog._find_resource(longest, LOCAL, Work(1000)) is not None
        assert made._catalog._find_resource(longest + "x", LOCAL, Work(1000)) is None


async def test_many_clients_that_watch_the_same_are_one_subscription_and_each_uri_is_looked_for_once():
    upstream, uris = Upstreamlike(), [f"note://{number}" for number in range(100)]
    watchers = [Watcher(*uris) for _ in range(30)]
    async with subscriptions(upstream) as (hub, _):
        for watcher in watchers:
            hub.subscribe(watcher)
        await wait_until(lambda: len(upstream.held) == len(uris))
        for watcher in watchers[1:]:
            hub.unsubscribe(watcher)
        for _ in range(500):
            await asyncio.sleep(0)
        assert (len(upstream.held), upstream.asked) == (len(uris), len(uris))
        hub.unsubscribe(watchers[0])
        await wait_until(lambda: not upstream.held)
    assert upstream.asked == 2 * len(uris)
    assert upstream.most_at_once <= 4


async def test_the_loop_serves_others_between_any_two_uris():
    upstream, turns = Upstreamlike(), list[int]()
    found = 0

    def find(uri: str, principal: Principal, work: Work) -> Any:
        nonlocal found
        found += 1

    hub = ChangeHub()
    async with ResourceSubscriptions(hub, find, lambda change: None).running():
        hub.subscribe(Watcher(*(f"note://{number}" for number in range(1_000))))
        while found < 1_000:
            turns.append(found)
            await asyncio.sleep(0)
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 1
    assert not upstream.held


async def test_what_is_watched_and_left_at_once_costs_the_upstream_nothing():
    upstream = Upstreamlike()
    async with subscriptions(upstream) as (hub, _):
        for _ in range(100):
            watcher = Watcher(*(f"note://{number}" for number in range(100)))
            hub.subscribe(watcher)
            hub.unsubscribe(watcher)
        hub.subscribe(Watcher("last://one"))
        await wait_until(lambda: bool(upstream.held))
    assert upstream.asked == 1


async def test_the_templates_that_fit_the_uris_of_one_request_are_searched_with_bounded_steps():
    upstream, spent = Upstreamlike(), 0

    def find(uri: str, principal: Principal, work: Work) -> Any:
        nonlocal spent
        left = work.left
        try:
            work.spend(9_999)
        finally:
            spent += left - work.left
        return SimpleNamespace(upstream=upstream, uri_there=lambda uri: uri)

    hub = ChangeHub()
    async with ResourceSubscriptions(hub, find, lambda change: None).running():
        hub.subscribe(Watcher(*(f"note://{number}" for number in range(1_000))))
        await wait_until(lambda: len(upstream.held) == 22)
        for _ in range(2_000):
            await asyncio.sleep(0)
    assert len(upstream.held) == 22  # the others are not notified of
    assert spent <= 20_000 + 1_000 * 200


async def test_a_notice_is_looked_up_and_told_to_the_principal_whose_login_it_came_by():
    upstream = Upstreamlike()
    async with subscriptions(upstream, tells_principals_apart=True) as (hub, out):
        for principal in (ALICE, BOB):
            hub.subscribe(Watcher("note://1", "note://2", principal=principal))
        await wait_until(lambda: len(upstream.held) == 4)
        out.made.receive(upstream, ALICE, "note://1")
        out.made.receive(upstream, BOB, "note://3")
        out.made.receive(upstream, LOCAL, "note://1")
    assert out.told == [OwnChange(ALICE.owner, "note://1")]


async def test_without_logins_all_share_a_subscription_and_its_notices():
    class Shared(Upstreamlike):
        def login_of(self, principal: Principal) -> Principal:
            return LOCAL

    upstream = Shared()
    async with subscriptions(upstream) as (hub, out):
        for principal in (ALICE, BOB):
            hub.subscribe(Watcher("note://1", principal=principal))
        await wait_until(lambda: bool(upstream.held))
        out.made.receive(upstream, LOCAL, "note://1")
    assert (upstream.asked, out.told) == (1, ["note://1"])


async def test_a_uri_that_nobody_has_is_looked_for_again_when_lists_change():
    upstream, has = Upstreamlike(), set[str]()

    def find(uri: str, principal: Principal, work: Work) -> Any:
        return SimpleNamespace(upstream=upstream, uri_there=lambda uri: uri) if uri in has else None

    hub = ChangeHub()
    made = ResourceSubscriptions(hub, find, lambda change: None)
    async with made.running():
        hub.subscribe(Watcher("note://1", "note://2"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not upstream.held
        has.add("note://2")
        made.look_again()
        await wait_until(lambda: bool(upstream.held))
    assert upstream.held == {(LOCAL.owner, "note://2")}
