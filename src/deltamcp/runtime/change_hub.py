"""The hub of change notifications: passes each change of a list or a resource to the listeners that want it."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias

from deltamcp.values import JSON, Kind

LIST_CHANGED: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.TOOLS: "notifications/tools/list_changed",
        Kind.PROMPTS: "notifications/prompts/list_changed",
        Kind.RESOURCES: "notifications/resources/list_changed",
        Kind.TEMPLATES: "notifications/resources/list_changed",
    }
)

Position: TypeAlias = tuple[int, int]
"""The place of a change in the log that replicas share: its number, and its place among those of the same number.

The last of those has the place `LAST`. The place is -1 for a change that may have happened, at this number or before.
"""
LAST = 1 << 20

_STEP_COST = 2_000
"""What one step may cost, in listeners that do not want a change, some 0.3 µs each."""
_NOTICE_COST = 30
"""What a notification costs on the same scale, with the turn of the connection that sends it."""
_DONE = object()


class Listener(Protocol):
    """A client's session or subscription, which sends the client notifications of changes."""

    def wants(self, change: Kind | str) -> bool:
        """Whether the client subscribed to the changes of a list, or of the resource with a URI."""
        ...

    def notify(self, method: str, params: dict[str, JSON], position: Position | None = None) -> None:
        """Sends a notification to the client. It must not block and must not raise.

        Where replicas share a log of changes, `position` is the change's place in it.
        """
        ...

    def watched_uris(self) -> Collection[str]:
        """Returns the URIs of the resources whose changes the client subscribed to."""
        ...


class ChangeHub:
    """Notifies listeners of changes. A change that is published again before its turn comes is sent once.

    Many listeners are notified in steps, between which the event loop serves others.
    """

    def __init__(self) -> None:
        self.relay: Callable[[Kind | str], None] | None = None
        """Takes the changes instead of the listeners, where replicas share them; they come back by `deliver`."""
        self.on_watch: Callable[[], None] = _do_nothing
        """Called when listeners may watch other resources than before."""
        self._listeners: set[Listener] = set()
        self._changes: dict[Kind | str, Position | None] = {}
        self._steps: Iterator[None] | None = None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.add(listener)
        self.on_watch()

    def unsubscribe(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self.on_watch()

    def watched_uris(self) -> set[str]:
        """Returns the URIs of the resources that listeners watch."""
        return {uri for listener in self._listeners for uri in listener.watched_uris()}

    def publish(self, change: Kind | str, loop: asyncio.AbstractEventLoop | None) -> None:
        """Notifies the listeners on `loop`. The caller may use any thread; without a loop there are no listeners."""
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._schedule, change, loop)

    def deliver(self, number: int, changes: Sequence[Kind | str]) -> None:
        """Notifies the listeners of changes that have a number in the replicas' log."""
        for position, change in positions(number, changes):
            self._put_last(change, position)

    def deliver_all(self, number: int) -> None:
        """Notifies the listeners of all that they subscribed to, where changes up to a number may have been missed."""
        for change in (*Kind, *sorted(self.watched_uris())):
            self._put_last(change, (number, -1))

    def _put_last(self, change: Kind | str, position: Position) -> None:
        # A listener takes no change whose position is before one that it has.
        self._changes.pop(change, None)
        self._add(change, position, asyncio.get_running_loop())

    def _schedule(self, change: Kind | str, loop: asyncio.AbstractEventLoop) -> None:
        if self.relay is not None:
            self.relay(change)
        else:
            self._add(change, None, loop)

    def _add(self, change: Kind | str, position: Position | None, loop: asyncio.AbstractEventLoop) -> None:
        if not self._listeners:
            return
        if not self._changes and self._steps is None:
            loop.call_soon(self._step, loop)
        self._changes[change] = position

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._steps is None:
            self._steps = self._send()
        if next(self._steps, _DONE) is _DONE:
            self._steps = None
        if self._steps is not None or self._changes:
            loop.call_soon(self._step, loop)

    def _send(self) -> Iterator[None]:
        changes, self._changes = self._changes, {}
        notices: dict[tuple[str, str], tuple[Kind | str, Position | None]] = {}
        for change, position in changes.items():
            method = LIST_CHANGED[change] if isinstance(change, Kind) else "notifications/resources/updated"
            notices.setdefault((method, "" if isinstance(change, Kind) else change), (change, position))
        listeners = tuple(self._listeners)
        cost = 0
        for (method, uri), (change, position) in notices.items():
            for listener in listeners:
                if cost >= _STEP_COST:
                    cost = 0
                    yield
                cost += 1
                if listener in self._listeners and listener.wants(change):
                    cost += _NOTICE_COST
                    listener.notify(method, {"uri": uri} if uri else {}, position)


def _do_nothing() -> None:
    """Nobody follows what is watched."""


def positions(number: int, changes: Sequence[Kind | str]) -> list[tuple[Position, Kind | str]]:
    """Returns changes of one number with their positions."""
    last = len(changes) - 1
    return [((number, LAST if place == last else place), change) for place, change in enumerate(changes)]
