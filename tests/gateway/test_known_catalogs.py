"""What upstreams list is fetched when it may differ, however often they say so, and none spoils what others list."""

import asyncio
import contextlib
from typing import Any, cast

import pytest

from deltamcp import connect
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.gateway_upstream import GatewayUpstream, ListingCache, wait_for_first_lists
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.gateway.trust.quarantine import Quarantine
from deltamcp.upstreams.listing import UpstreamListing
from tests.support.conditions import wait_until
from tests.support.listing_upstream import ListingUpstream, gateway, tool

ODD_TOOLS = [
    tool("number", description=7, annotations=[]),
    tool("large", inputSchema={"type": "object", "maximum": 10**400}),
    {"name": "bare"},
]


@pytest.mark.parametrize("disclosure", ["full", "meta"])
async def test_definitions_of_wrong_types_are_offered_without_what_is_wrong(tmp_path, disclosure):
    odd = ListingUpstream(tmp_path, "odd", tools=ODD_TOOLS, prompts=[None, {"name": "ask"}], resources=[None, 5])
    other = ListingUpstream(tmp_path, "other", tools=[tool("a")])
    served = gateway(tmp_path, odd.config(pinned=("*",)), other.config(pinned=("*",)), disclosure=disclosure).server
    async with connect(served, progressive=False) as client:
        listed = {one["name"]: one for one in (await client.request("tools/list"))["tools"]}
        assert {"odd_number", "odd_large", "odd_bare", "other_a"} <= listed.keys()
        assert "description" not in listed["odd_number"] and listed["odd_number"]["annotations"] == []
        assert listed["odd_large"]["inputSchema"]["maximum"] == 10**400
        assert [one["name"] for one in await client.list_prompts()] == ["odd_ask"]


class Connectionlike:
    def __init__(self, fetch):
        self.fetch_listing = fetch

    def open(self):
        pass

    def note_comparison(self):
        pass


class Known:
    """Upstreams whose lists a function makes, and which are offered by another."""

    def __init__(self, folder, fetch, offer, *names):
        self._offer = offer

        def connect(config, listener):
            return Connectionlike(lambda: fetch(config.name))

        quarantine, user = Quarantine(Approvals(folder / "approvals")), cast(Any, self)
        self.upstreams = {
            name: GatewayUpstream(
                UpstreamConfig(name=name, entry={"command": name}),
                cast(Any, connect),
                ListingCache(folder),
                quarantine,
                user,
            )
            for name in names
        }

    async def replace_listing(self, upstream, listing, announced):
        known = upstream.use_listing(listing)
        try:
            await self._offer()
        except BaseException:
            upstream.use_listing(known)
            raise

    @contextlib.asynccontextmanager
    async def running(self):
        for one in self.upstreams.values():
            one.load(max_age_seconds=1e9)
            one.start()
        yield
        for one in self.upstreams.values():
            await one.stop_listing()


async def offer_at_once():
    pass


async def test_an_upstream_that_announces_changes_without_end_is_asked_less_and_less_often(tmp_path, monkeypatch):
    loop, pauses, sleep = asyncio.get_running_loop(), [], asyncio.sleep
    done, began = asyncio.Event(), loop.time()
    monkeypatch.setattr(loop, "time", lambda: began)  # offering takes no time, on a busy machine either

    async def note_pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 12:
            done.set()
        await sleep(0)

    async def fetch(name):
        made.upstreams[name].refresh()
        return UpstreamListing({}, "2025-11-25", [tool(f"a{len(pauses)}")])

    monkeypatch.setattr(asyncio, "sleep", note_pause)
    made = Known(tmp_path, fetch, offer_at_once, "one")
    async with made.running():
        await done.wait()
    assert pauses[2:8] == [2 * pause for pause in pauses[1:7]] and pauses[1] > 0


async def test_lists_that_take_long_to_be_offered_have_a_tenth_of_the_time(tmp_path, monkeypatch):
    loop, sleep, late = asyncio.get_running_loop(), asyncio.sleep, 0.0
    time, pauses, done = loop.time, list[float](), asyncio.Event()

    async def note_pause(seconds):
        nonlocal late
        late += 1000.0  # nothing was announced for long
        pauses.append(seconds)
        if len(pauses) == 4:
            done.set()
        await sleep(0)

    async def fetch(name):
        made.upstreams[name].refresh()
        return UpstreamListing({}, "2025-11-25", [tool(f"a{len(pauses)}")])

    async def offer():
        nonlocal late
        late += 2.0

    monkeypatch.setattr(asyncio, "sleep", note_pause)
    monkeypatch.setattr(loop, "time", lambda: time() + late)
    made = Known(tmp_path, fetch, offer, "one")
    async with made.running():
        await done.wait()
    assert pauses[0] == 0 and all(20 <= pause < 60 for pause in pauses[1:])


async def test_lists_that_cannot_be_offered_do_not_keep_others_from_being_offered(tmp_path, caplog):
    async def fetch(name):
        return UpstreamListing({}, "2025-11-25", [tool(name)])

    async def offer():
        if made.upstreams["bad"].listing is not None:
            raise RuntimeError("a fault")
        offered.append(made.upstreams["good"].listing)

    offered: list[UpstreamListing | None] = []
    made = Known(tmp_path, fetch, offer, "bad", "good")
    async with made.running():
        await wait_for_first_lists(made.upstreams.values(), 60)
        await wait_until(lambda: offered[-1:] not in ([], [None]))
    assert "bad: what it lists cannot be offered" in caplog.text and made.upstreams["bad"].listing is None
