"""Catalogs of principals: made at the first request, shared where they are equal, with few fetches."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.items.remote_items import RemoteOperation
from deltamcp.errors import UnreachableError, UpstreamError
from deltamcp.gateway import principal_catalogs
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.principal_catalogs import OwnList, OwnLists, PrincipalCatalogs
from deltamcp.runtime.change_hub import OwnChange
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import MissingLoginError
from deltamcp.values import ANONYMOUS, LOCAL, Kind, Principal
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.listing_upstream import tool

ALICE, BOB, CAROL = (Principal(name, issuer="https://issuer.example") for name in ("alice", "bob", "carol"))


class Upstreamlike:
    """Lists to each principal what a test says; who is not named has no login."""

    has_logins = True

    def __init__(self, **lists: list[str]) -> None:
        self.lists = lists
        self.fetches: list[str] = []
        self.compared: list[str] = []
        self.gate: asyncio.Event | None = None
        self.is_down = False

    def note_comparison(self, principal: Principal) -> None:
        self.compared.append(principal.id)

    async def fetch_listing(self, principal: Principal) -> UpstreamListing:
        self.fetches.append(principal.id)
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise UnreachableError("It is down.")
        if principal.id not in self.lists:
            raise MissingLoginError("The user has not logged in.")
        return UpstreamListing({}, "2026-07-28", [tool(name) for name in self.lists[principal.id]])


class Reviewslike:
    async def review(self, config: Any, principal: Any, listing: Any, again: Any) -> dict[str, Any]:
        return {}

    def stamp(self, config: Any) -> tuple[object, ...]:
        return ()


async def _nothing(arguments: Any, context: Any) -> Any:
    raise AssertionError("nothing is called here")


class Made:
    """Catalogs of one upstream, how many were made, and what was announced."""

    def __init__(self, upstream: Upstreamlike, wait_seconds: float = HANG_SECONDS, **options: Any) -> None:
        self.count, self.announced = 0, list[OwnChange]()
        config = UpstreamConfig(name="notes", entry={"url": "https://notes.example"}, auth="oauth", **options)
        upstreams: Any = {"notes": SimpleNamespace(name="notes", config=config, connection=upstream)}
        reviews: Any = Reviewslike()
        self.local = Catalog()
        self.principals = PrincipalCatalogs(
            upstreams, reviews, self.local, self.make, self.announced.append, lambda owner: None, lambda: wait_seconds
        )
        self.count = 0

    def make(self, lists: OwnLists) -> Catalog:
        self.count += 1
        catalog = Catalog()
        for one in lists.values():
            for item in one.listing.tools:
                catalog.add(RemoteOperation(_nothing, item, name=item["name"]))
        return catalog

    async def names(self, principal: Principal) -> set[str]:
        await self.principals.prepare(principal)
        return set(self.principals.of(principal).operations)


async def test_each_principal_sees_its_own_list_and_who_has_no_login_sees_none():
    made = Made(Upstreamlike(alice=["a"], bob=["b"]))
    assert [await made.names(one) for one in (ALICE, BOB, CAROL, ANONYMOUS)] == [{"a"}, {"b"}, set(), set()]
    assert made.principals.of(LOCAL) is made.local


async def test_principals_that_are_listed_the_same_share_one_catalog():
    upstream = Upstreamlike(alice=["a"], bob=["a"], carol=["c"])
    made = Made(upstream)
    for _ in range(3):
        for one in (ALICE, BOB, CAROL):
            await made.names(one)
    assert made.principals.of(ALICE) is made.principals.of(BOB) is not made.principals.of(CAROL)
    assert (made.count, sorted(upstream.fetches)) == (2, ["alice", "bob", "carol"])


async def test_many_first_requests_at_once_are_one_fetch():
    upstream = Upstreamlike(alice=["a"])
    made = Made(upstream)
    found = await asyncio.gather(*(made.names(ALICE) for _ in range(50)))
    assert found == [{"a"}] * 50
    assert (upstream.fetches, made.count) == (["alice"], 1)


async def test_a_request_waits_a_bounded_time_once_and_the_list_is_announced_when_it_comes():
    upstream = Upstreamlike(alice=["a"])
    upstream.gate = asyncio.Event()
    made = Made(upstream, wait_seconds=0.01)
    assert await made.names(ALICE) == set()
    assert await made.names(ALICE) == set()
    upstream.gate.set()
    await wait_until(lambda: bool(made.announced))
    assert made.announced == [OwnChange(ALICE.owner, Kind.TOOLS)]
    assert await made.names(ALICE) == {"a"}
    assert upstream.fetches == ["alice"]


async def test_an_upstream_that_is_down_is_not_asked_by_every_request():
    upstream = Upstreamlike(alice=["a"])
    upstream.is_down = True
    made = Made(upstream)
    for _ in range(20):
        assert await made.names(ALICE) == set()
    assert upstream.fetches == ["alice"]


async def test_a_list_that_cannot_be_fetched_again_stays_and_that_of_a_login_that_is_gone_does_not():
    upstream = Upstreamlike(alice=["a"])
    made = Made(upstream)
    assert await made.names(ALICE) == {"a"}
    upstream.is_down = True
    await refresh(made, upstream)
    assert await made.names(ALICE) == {"a"}
    upstream.is_down = False
    del upstream.lists["alice"]
    await refresh(made, upstream)
    assert await made.names(ALICE) == set()


async def refresh(made: Made, upstream: Upstreamlike) -> None:
    fetched = len(upstream.fetches)
    made.principals.refresh("notes", ALICE)
    fetch = made.principals._owns[ALICE.owner].fetches["notes"]
    await wait_until(lambda: len(upstream.fetches) > fetched and fetch.task is None)


async def test_announcements_without_end_are_fetches_with_longer_and_longer_pauses(monkeypatch):
    pauses, ended = list[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            ended.set()
            await asyncio.Event().wait()

    class Announcing(Upstreamlike):
        async def fetch_listing(self, principal: Principal) -> UpstreamListing:
            made.principals.refresh("notes", principal)
            return await super().fetch_listing(principal)

    made = Made(Announcing(alice=["a"]))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert await made.names(ALICE) == {"a"}
    await ended.wait()
    made.principals.close()
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4] and pauses[-5:] == [60.0] * 5


async def test_a_change_of_what_all_share_makes_catalogs_anew_at_the_next_request():
    made = Made(Upstreamlike(alice=["a"]))
    await made.names(ALICE)
    made.principals.share({})
    assert made.count == 1
    await made.names(ALICE)
    assert made.count == 2


@pytest.mark.parametrize("shared_login", [False, True])
async def test_who_is_not_authenticated_has_the_operators_lists_only_where_its_login_is_shared(shared_login):
    made = Made(Upstreamlike(), shared_login=shared_login)
    made.principals.share({"notes": OwnList(UpstreamListing({}, "", [tool("mine")]), {})})
    assert await made.names(ANONYMOUS) == ({"mine"} if shared_login else set())
    assert await made.names(ALICE) == set()


@pytest.mark.parametrize("bound", ["_MAX_PRINCIPALS", "_MAX_BYTES"])
async def test_only_the_principals_that_asked_last_are_kept(monkeypatch, bound):
    monkeypatch.setattr(principal_catalogs, bound, 1)
    upstream = Upstreamlike(alice=["a"], bob=["b"])
    made = Made(upstream)
    for one, name in ((ALICE, "a"), (BOB, "b"), (ALICE, "a")):
        assert await made.names(one) == {name}
    assert upstream.fetches == ["alice", "bob", "alice"]
    assert set(made.principals.of(BOB).operations) == set()


async def test_requests_over_a_new_connection_wait_for_one_comparison_together():
    upstream = Upstreamlike(alice=["a"])
    made = Made(upstream)
    found = await asyncio.gather(*(made.principals.compare("notes", ALICE) for _ in range(5)))
    assert found == [{}] * 5
    fetched = len(upstream.fetches)
    assert await made.principals.compare("notes", ALICE) == {}
    assert len(upstream.fetches) == fetched + 1
    upstream.is_down = True
    with pytest.raises(UpstreamError, match="does not list what it has"):
        await made.principals.compare("notes", ALICE)
