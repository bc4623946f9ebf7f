"""Subscriptions to resources at a server of 2026-07-28: in groups of bounded size, none of which harms another."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.client import notifications
from deltamcp.client.client import connect
from deltamcp.errors import ClientError
from deltamcp.values import Filter
from tests.support.conditions import HANG_SECONDS, is_listened_to, wait_until
from tests.support.fake_http import META, Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.http_server import serve_http


def make_server() -> DeltaServer:
    server = DeltaServer("notes")

    @server.resource("mem://{n}")
    def note(n: str) -> str:
        """A note."""
        return n

    return server


def count_listens(server: DeltaServer) -> list[Filter]:
    """What the server is asked to notify of from now on, one filter for each request."""
    filters: list[Filter] = []
    engine: Any = server.engine
    accept = engine.accept_filter

    def counted(asked: Filter, *more: Any) -> Any:
        filters.append(asked)
        return accept(asked, *more)

    engine.accept_filter = counted
    return filters


def uris(count: int) -> list[str]:
    return [f"mem://{number}" for number in range(count)]


def watched(server: DeltaServer) -> set[str]:
    """What the clients of a server watch now."""
    return {uri for listener in server.engine.hub._listeners for uri in listener.watched_uris()}


def watches_exactly(server: DeltaServer, wanted: list[str]) -> bool:
    return watched(server) == {*wanted}


@pytest.mark.parametrize("by", ["memory", "http"])
async def test_however_many_resources_are_watched_each_is_told_of(by: str):
    server, heard = make_server(), set[str]()
    async with serve_http(server) as url:
        target: Any = url if by == "http" else server
        async with connect(target, speak="modern", on_change=heard.add) as client:
            for uri in uris(2500):
                await client.subscribe(uri)
            await wait_until(lambda: watched(server) == {*uris(2500)})
            for uri in uris(2500):
                server.resource_updated(uri)
            await wait_until(lambda: heard >= {*uris(2500)})
            for uri in uris(2500):
                await client.unsubscribe(uri)
            await wait_until(lambda: not watched(server))


async def test_a_uri_that_is_too_long_for_the_server_silences_no_other():
    server, heard = make_server(), asyncio.Queue[str]()
    async with connect(server, speak="modern", on_change=heard.put_nowait) as client:
        await client.subscribe("mem://first")
        await client.subscribe("mem://" + "x" * 70_000)
        await client.subscribe("mem://last")
        await wait_until(lambda: watched(server) == {"mem://first", "mem://last"})
        server.resource_updated("mem://first")
        server.resource_updated("mem://last")
        assert {await asyncio.wait_for(heard.get(), HANG_SECONDS) for _ in range(2)} == {"mem://first", "mem://last"}


async def test_subscriptions_of_one_turn_are_sent_once_and_lists_have_a_subscription_of_their_own():
    server = make_server()
    filters = count_listens(server)
    async with connect(server, speak="modern") as client:
        for uri in uris(1000):
            await client.subscribe(uri)
        await wait_until(lambda: len(watched(server)) == 1000)
    assert sorted(len(one.uris) for one in filters) == [0, 250, 250, 250, 250]
    assert [len(one.uris) for one in filters if one.kinds] == [0]


async def test_subscriptions_one_by_one_send_each_uri_no_more_often_than_a_group_has_uris():
    server = make_server()
    filters = count_listens(server)
    async with connect(server, speak="modern") as client:
        for uri in uris(1000):
            await client.subscribe(uri)
            while not is_listened_to(server, uri):  # noqa: ASYNC110 - what happens elsewhere sets no event here
                await asyncio.sleep(0)
    assert sum(len(one.uris) for one in filters) <= 1000 * (notifications.MAX_URIS + 1) / 2
    assert sum(bool(one.kinds) for one in filters) == 1


async def test_a_group_that_changes_is_listened_to_before_its_old_subscription_ends():
    server = make_server()
    hub: Any = server.engine.hub
    unsubscribe: Callable[[Any], None] = hub.unsubscribe
    lost: list[Any] = []
    is_open = True

    def ended(listener: Any) -> None:
        unsubscribe(listener)
        if is_open and "mem://0" in listener.watched_uris() and not is_listened_to(server, "mem://0"):
            lost.append(listener)

    hub.unsubscribe = ended
    async with serve_http(server) as url, connect(url, speak="modern") as client:
        for uri in uris(50):
            await client.subscribe(uri)
            await wait_until(functools.partial(is_listened_to, server, uri))
        for left in range(49, 0, -1):
            await client.unsubscribe(f"mem://{left}")
            await wait_until(functools.partial(watches_exactly, server, uris(left)))
        is_open = False
    assert not lost


async def test_uris_that_come_and_go_leave_no_groups_behind():
    server = make_server()
    async with connect(server, speak="modern") as client:
        await client.subscribe("mem://stays")
        for _ in range(3):
            for uri in uris(600):
                await client.subscribe(uri)
            await wait_until(lambda: len(watched(server)) == 601)
            for uri in uris(600):
                await client.unsubscribe(uri)
            await wait_until(lambda: watched(server) == {"mem://stays"})
        hub = server.engine.hub
        await wait_until(lambda: sum(bool(one.watched_uris()) for one in hub._listeners) == 1)


async def test_more_groups_than_leave_room_for_calls_are_refused_and_told(monkeypatch):
    monkeypatch.setattr(notifications, "_MAX_GROUPS", 2)
    server = make_server()
    async with connect(server, speak="modern") as client:
        for uri in uris(500):
            await client.subscribe(uri)
        with pytest.raises(ClientError, match="unsubscribe"):
            await client.subscribe("mem://more")
        await client.unsubscribe("mem://0")
        await client.subscribe("mem://more")
        await wait_until(lambda: watched(server) == {*uris(500)[1:], "mem://more"})


class RefusingServer:
    """Refuses every subscription that has a URI of one kind, and notifies of the others."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        self.asked: list[set[str]] = []
        self.open: dict[Any, set[str]] = {}
        self.breaking = asyncio.Event()
        fake.always("subscriptions/listen", self.listen)

    async def listen(self, asked: FakeRequest, wire: FakeConnection) -> None:
        wanted = {*asked.params["notifications"].get("resourceSubscriptions", [])}
        if not wanted:
            await self._fake.answer(asked, wire)
            return
        self.asked.append(wanted)
        if any(uri.startswith("bad://") for uri in wanted):
            await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32602, "message": "Not that."}}, 400)
            return
        await wire.events()
        told = {"_meta": {META + "subscriptionId": asked.id}, "notifications": asked.params["notifications"]}
        await wire.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": told})
        self.open[asked.id] = wanted
        try:
            await self.breaking.wait()
        finally:
            del self.open[asked.id]
        wire.close()

    def has_asked(self, uri: str) -> bool:
        return any(uri in wanted for wanted in self.asked)


async def test_what_a_server_refuses_is_put_apart_from_what_it_has_accepted():
    async with serve_fake(Fake(handshake=False)) as fake:
        server = RefusingServer(fake)
        async with connect(fake.url) as client:
            await client.subscribe("mem://1")
            await wait_until(lambda: {"mem://1"} in server.open.values())
            await client.subscribe("bad://1")
            await wait_until(lambda: server.has_asked("bad://1"))
            await client.subscribe("mem://2")
            await wait_until(lambda: any(wanted >= {"mem://2"} for wanted in server.open.values()))
            assert set[str]().union(*server.open.values()) == {"mem://1", "mem://2"}
            await client.subscribe("bad://1")  # whoever asks again has it asked for again
            await wait_until(lambda: sum("bad://1" in wanted for wanted in server.asked) >= 2)
            await client.subscribe("mem://3")
            await wait_until(lambda: any(wanted >= {"mem://3"} for wanted in server.open.values()))
            assert set[str]().union(*server.open.values()) == {"mem://1", "mem://2", "mem://3"}


async def test_what_a_server_refused_is_asked_for_again_on_a_new_connection_and_apart():
    async with serve_fake(Fake(handshake=False)) as fake:
        server = RefusingServer(fake)
        async with connect(fake.url) as client:
            await client.subscribe("mem://1")
            await wait_until(lambda: {"mem://1"} in server.open.values())
            await client.subscribe("bad://1")
            await wait_until(lambda: server.has_asked("bad://1"))
            await client.subscribe("bad://2")
            await wait_until(lambda: server.has_asked("bad://2"))
            await client.unsubscribe("bad://2")
            server.asked.clear()
            client._notifications.restart()  # as after a reconnect
            await client.subscribe("mem://2")
            await wait_until(lambda: server.has_asked("bad://1") and {"mem://1", "mem://2"} in server.open.values())
            assert [wanted for wanted in server.asked if "bad://1" in wanted] == [{"bad://1"}]
            assert not server.has_asked("bad://2")


async def test_resources_whose_subscription_broke_may_have_changed_when_it_is_open_again():
    heard = asyncio.Queue[str]()
    async with serve_fake(Fake(handshake=False)) as fake:
        server = RefusingServer(fake)
        async with connect(fake.url, on_change=heard.put_nowait) as client:
            await client.subscribe("mem://1")
            await client.subscribe("mem://2")
            await wait_until(lambda: {"mem://1", "mem://2"} in server.open.values())
            assert heard.empty()
            server.breaking.set()
            await wait_until(lambda: not server.open)
            server.breaking = asyncio.Event()
            told = {await asyncio.wait_for(heard.get(), HANG_SECONDS) for _ in range(2)}
            assert told == {"mem://1", "mem://2"}
            assert {"mem://1", "mem://2"} in server.open.values()
