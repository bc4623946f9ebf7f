"""The hub of change notifications: passes each change of a list or a resource to the listeners that want it."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from deltamcp.values import JSON, Kind, Principal

LIST_CHANGED: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.TOOLS: "notifications/tools/list_changed",
        Kind.PROMPTS: "notifications/prompts/list_changed",
        Kind.RESOURCES: "notifications/resources/list_changed",
        Kind.TEMPLATES: "notifications/resources/list_changed",
    }
)


class OwnChange(NamedTuple):
    """A change that one principal is told of, and nobody else."""

    owner: str
    """As `Principal.owner`."""
    change: Kind | str


Change: TypeAlias = Kind | str | OwnChange
"""The kind of a list, or the URI of a resource, that has changed."""

Position: TypeAlias = tuple[int, int]
"""The place of a change in the log that replicas share: its number, and its place among those of the same number.

The last of those has the place `LAST`. The place is -1 for a change that may have happened, at this number or before.
"""
LAST = 1 << 20

_Translate: TypeAlias = Callable[[str], str | None]

_STEP_COST = 2_000
"""What one step may cost, in listeners that do not want a change, some 0.3 µs each."""
_NOTICE_COST = 30
"""What a notification costs on the same scale, with the turn of the connection that sends it."""
_DONE = object()


class Listener(Protocol):
    """A client's session or subscription, which sends the client notifications of changes."""

    @property
    def principal(self) -> Principal:
        """Whose it is."""
        ...

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
        self.relay: Callable[[Change], None] | None = None
        """Takes the changes instead of the listeners, where replicas share them; they come back by `deliver`."""
        self._on_watch: Callable[[Principal, Collection[str], bool], None] = _do_nothing
        self._mounted: list[tuple[ChangeHub, _Translate]] = []
        self._outer: list[tuple[ChangeHub, _Translate]] = []
        self._listeners: set[Listener] = set()
        self._watchers: dict[str, set[Listener]] = {}
        """The listeners by the URIs that they watch."""
        self._changes: dict[Change, Position | None] = {}
        self._steps: Iterator[None] | None = None

    def follow_watches(self, receive: Callable[[Principal, Collection[str], bool], None]) -> None:
        """Calls `receive` with the URIs that a listener of a principal watches from now on, or, with False, no longer.

        They are those of this hub and of the hubs of servers that this one is mounted in.

        It replaces the one that was called before.
        """
        self._on_watch = receive

    def add_mounted(self, hub: "ChangeHub", inner_uri: "_Translate") -> None:
        """Tells the hub of a mounted server, from now on, what is watched here; `inner_uri` returns the URI there."""
        self._mounted.append((hub, inner_uri))
        hub.ask_outer(self, inner_uri)

    def ask_outer(self, hub: "ChangeHub", inner_uri: "_Translate") -> None:
        """Counts what is watched at the hub of a server that this one is mounted in among `watches`."""
        self._outer.append((hub, inner_uri))

    def watches(self) -> list[tuple[Principal, str]]:
        """Returns whose listener watches which URI now, here or where this is mounted."""
        own = [(listener.principal, uri) for uri, listeners in self._watchers.items() for listener in listeners]
        for hub, inner_uri in self._outer:
            outer = ((principal, inner_uri(uri)) for principal, uri in hub.watches())
            own += [(principal, uri) for principal, uri in outer if uri is not None]
        return own

    def tell_watched(self, principal: Principal, uris: Collection[str], is_watched: bool) -> None:
        """Tells who follows watches, here and in mounted servers, what somebody watches, or no longer does."""
        self._on_watch(principal, uris, is_watched)
        for hub, inner_uri in self._mounted:
            inner = [one for one in map(inner_uri, uris) if one is not None]
            if inner:
                hub.tell_watched(principal, inner, is_watched)

    def subscribe(self, listener: Listener) -> None:
        if listener not in self._listeners:
            self._listeners.add(listener)
            self.watch(listener, listener.watched_uris())

    def unsubscribe(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.discard(listener)
            self._unwatch(listener, listener.watched_uris())

    def watch(self, listener: Listener, uris: Collection[str]) -> None:
        """Takes note of whether a listener watches some URIs now; its other ones are as before."""
        if listener not in self._listeners:
            return
        watched = [uri for uri in uris if listener.wants(uri)]
        added = [uri for uri in watched if listener not in self._watchers.get(uri, ())]
        for uri in added:
            self._watchers.setdefault(uri, set()).add(listener)
        if added:
            self.tell_watched(listener.principal, added, True)
        if len(watched) < len(uris):
            self._unwatch(listener, {*uris}.difference(watched))

    def _unwatch(self, listener: Listener, uris: Collection[str]) -> None:
        gone = [uri for uri in uris if listener in self._watchers.get(uri, ())]
        for uri in gone:
            watchers = self._watchers[uri]
            watchers.discard(listener)
            if not watchers:
                del self._watchers[uri]
        if gone:
            self.tell_watched(listener.principal, gone, False)

    def publish(self, change: Change, loop: asyncio.AbstractEventLoop | None) -> None:
        """Notifies the listeners on `loop`. The caller may use any thread; without a loop there are no listeners."""
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._schedule, change, loop)

    def deliver(self, number: int, changes: Sequence[Change]) -> None:
        """Notifies the listeners of changes that have a number in the replicas' log."""
        for position, change in positions(number, changes):
            self._put_last(change, position)

    def deliver_all(self, number: int) -> None:
        """Notifies the listeners of all that they subscribed to, where changes up to a number may have been missed."""
        for change in (*Kind, *sorted(self._watchers)):
            self._put_last(change, (number, -1))

    def _put_last(self, change: Change, position: Position) -> None:
        # A listener takes no change whose position is before one that it has.
        self._changes.pop(change, None)
        self._add(change, position, asyncio.get_running_loop())

    def _schedule(self, change: Change, loop: asyncio.AbstractEventLoop) -> None:
        if self.relay is not None:
            self.relay(change)
        else:
            self._add(change, None, loop)

    def _add(self, change: Change, position: Position | None, loop: asyncio.AbstractEventLoop) -> None:
        what = change.change if isinstance(change, OwnChange) else change
        if not self._listeners or (not isinstance(what, Kind) and what not in self._watchers):
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
        notices: dict[tuple[str, str, str], tuple[Kind | str, Position | None]] = {}
        for change, position in changes.items():
            owner, what = change if isinstance(change, OwnChange) else ("", change)
            method = LIST_CHANGED[what] if isinstance(what, Kind) else "notifications/resources/updated"
            notices.setdefault((owner, method, "" if isinstance(what, Kind) else what), (what, position))
        listeners = tuple(self._listeners)
        cost = 0
        for (owner, method, uri), (what, position) in notices.items():
            for listener in listeners if isinstance(what, Kind) else tuple(self._watchers.get(uri, ())):
                if cost >= _STEP_COST:
                    cost = 0
                    yield
                cost += 1
                is_told = not owner or listener.principal.owner == owner
                if is_told and listener in self._listeners and listener.wants(what):
                    cost += _NOTICE_COST
                    listener.notify(method, {"uri": uri} if uri else {}, position)


def _do_nothing(principal: Principal, uris: Collection[str], is_watched: bool) -> None:
    """Nobody follows what is watched."""


def positions(number: int, changes: Sequence[Change]) -> list[tuple[Position, Change]]:
    """Returns changes of one number with their positions."""
    last = len(changes) - 1
    return [((number, LAST if place == last else place), change) for place, change in enumerate(changes)]
