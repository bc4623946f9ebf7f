"""Changes reach every listener that wants them, many listeners in steps."""

import asyncio
import itertools
from collections.abc import Collection
from typing import Any

from deltamcp.runtime.change_hub import ChangeHub, Position
from deltamcp.values import Kind
from tests.support.conditions import wait_until


class Listener:
    def __init__(self, heard: list[tuple["Listener", str, Any]], wanted: object = None) -> None:
        self._heard = heard
        self._wanted = wanted

    def wants(self, change: Kind | str) -> bool:
        return self._wanted in (None, change)

    def watched_uris(self) -> Collection[str]:
        return [self._wanted] if isinstance(self._wanted, str) else ()

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
    for number in range(3):
        hub.publish(f"a://{number}", asyncio.get_running_loop())
    counts = [0]
    while counts[-1] < 30_000:
        await asyncio.sleep(0)
        counts.append(asked)
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 2_000


async def test_changes_published_meanwhile_are_sent_once_afterwards():
    hub, heard = ChangeHub(), []  # type: ignore[var-annotated]
    for _ in range(500):
        hub.subscribe(Listener(heard))
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
