"""Changes reach every listener that wants them, many listeners in steps."""

import asyncio
import itertools
from collections.abc import Collection
from typing import Any

from deltamcp.runtime.change_hub import ChangeHub, OwnChange, Position
from deltamcp.values import ANONYMOUS, LOCAL, Kind, Principal
from tests.support.conditions import wait_until


class Listener:
    def __init__(
        self, heard: list[tuple["Listener", str, Any]], *wanted: Kind | str, principal: Principal = LOCAL
    ) -> None:
        self._heard = heard
        self.wanted = {*wanted} or {*Kind}
        self.principal = principal

    def wants(self, change: Kind | str) -> bool:
        return change in self.wanted

    def watched_uris(self) -> Collection[str]:
        return [one for one in self.wanted if isinstance(one, str)]

    def notify(self, method: str, params: dict[str, Any], position: Position | None = None) -> None:
        self._heard.append((self, method, params))


async def test_a_thousand_listeners_are_notified_in_steps():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    listeners = [Listener(heard) for _ in range(1_000)]
    for listener in listeners:
        hub.subscribe(listener)
    hub.publish(Kind.TOOLS, asyncio.get_running_loop())
    counts = [0]
    while counts[-1] < 1_000:
        await asyncio.sleep(0)
        counts.append(len(heard))
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 100
    assert {listener for listener, _, _ in heard} == set(listeners)


async def test_listeners_that_want_no_change_do_not_hold_up_others():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    asked = 0

    class Uninterested(Listener):
        def wants(self, change: Kind | str) -> bool:
            nonlocal asked
            asked += 1
            return False

    for _ in range(10_000):
        hub.subscribe(Uninterested(heard))
    for kind in (Kind.TOOLS, Kind.RESOURCES, Kind.PROMPTS):
        hub.publish(kind, asyncio.get_running_loop())
    counts = [0]
    while counts[-1] < 30_000:
        await asyncio.sleep(0)
        counts.append(asked)
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 2_000


async def test_changes_published_meanwhile_are_sent_once_afterwards():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    for _ in range(500):
        hub.subscribe(Listener(heard, *Kind, "a://b"))
    loop = asyncio.get_running_loop()
    hub.publish(Kind.TOOLS, loop)
    for _ in range(2):
        await asyncio.sleep(0)
    assert 0 < len(heard) < 500
    for _ in range(100):
        hub.publish(Kind.TOOLS, loop)
        hub.publish("a://b", loop)
    await wait_until(lambda: len(heard) == 1_500, "all notifications")
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(heard) == 1_500


async def test_a_listener_that_leaves_meanwhile_hears_nothing():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    listeners = [Listener(heard) for _ in range(500)]
    for listener in listeners:
        hub.subscribe(listener)
    hub.publish(Kind.TOOLS, asyncio.get_running_loop())
    for _ in range(2):
        await asyncio.sleep(0)
    assert 0 < len(heard) < 500
    told = len(heard)
    for listener in listeners:
        hub.unsubscribe(listener)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(heard) == told < 500


async def test_only_those_that_want_a_change_hear_of_it():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    for wanted in ("a://b", "a://c", Kind.TOOLS):
        hub.subscribe(Listener(heard, wanted))
    hub.publish("a://b", asyncio.get_running_loop())
    await wait_until(lambda: bool(heard), "a notification")
    assert [(method, params) for _, method, params in heard] == [("notifications/resources/updated", {"uri": "a://b"})]


async def test_a_change_of_a_resource_is_offered_only_to_those_that_watch_it():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    asked = 0

    class Counting(Listener):
        def wants(self, change: Kind | str) -> bool:
            nonlocal asked
            asked += 1
            return super().wants(change)

    for number in range(1_000):
        hub.subscribe(Counting(heard, f"a://{number}"))
    asked = 0
    hub.publish("a://7", asyncio.get_running_loop())
    await wait_until(lambda: bool(heard), "a notification")
    assert asked == len(heard) == 1


async def test_a_change_of_one_principal_is_told_to_that_one_only():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    users = [Principal("a", issuer="https://one.example"), Principal("a", issuer="https://two.example")]
    users += [Principal("local"), Principal("anonymous"), LOCAL, ANONYMOUS]
    listeners = {user.owner: Listener(heard, Kind.TOOLS, "a://b", principal=user) for user in users}
    assert len(listeners) == len(users)
    for listener in listeners.values():
        hub.subscribe(listener)
    for owner, listener in listeners.items():
        for change in (Kind.TOOLS, "a://b"):
            hub.publish(OwnChange(owner, change), asyncio.get_running_loop())
        await wait_until(lambda: len(heard) == 2, "two notifications")
        assert {told for told, _, _ in heard} == {listener}
        heard.clear()


async def test_who_follows_what_is_watched_is_told_each_uri_once_when_it_begins_and_when_it_ends():
    hub, heard, told = ChangeHub(), [], []  # type: ignore[var-annotated]
    hub.follow_watches(lambda principal, uris, is_watched: told.append((principal.owner, sorted(uris), is_watched)))
    listener = Listener(heard, "a://1", "a://2", Kind.TOOLS)
    hub.watch(listener, ["a://1"])
    assert told == []  # it does not listen yet
    hub.subscribe(listener)
    hub.subscribe(listener)
    hub.watch(listener, ["a://1"])
    listener.wanted ^= {"a://1", "a://3"}
    hub.watch(listener, ["a://1", "a://3"])
    hub.unsubscribe(listener)
    hub.unsubscribe(listener)
    owner = LOCAL.owner
    assert told == [
        (owner, ["a://1", "a://2"], True),
        (owner, ["a://3"], True),
        (owner, ["a://1"], False),
        (owner, ["a://2", "a://3"], False),
    ]
