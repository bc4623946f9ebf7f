"""The hub of change notifications: passes each change of a list or a resource to the listeners that want it."""

import asyncio
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from deltamcp.values import JSON, Kind

LIST_CHANGED: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.TOOLS: "notifications/tools/list_changed",
        Kind.PROMPTS: "notifications/prompts/list_changed",
        Kind.RESOURCES: "notifications/resources/list_changed",
        Kind.TEMPLATES: "notifications/resources/list_changed",
    }
)

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

    def notify(self, method: str, params: dict[str, JSON]) -> None:
        """Sends a notification to the client. It must not block and must not raise."""
        ...


class ChangeHub:
    """Notifies listeners of changes. A change that is published again before its turn comes is sent once.

    Many listeners are notified in steps, between which the event loop serves others.
    """

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._changes: dict[Kind | str, None] = {}
        self._steps: Iterator[None] | None = None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.add(listener)

    def unsubscribe(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def publish(self, change: Kind | str, loop: asyncio.AbstractEventLoop | None) -> None:
        """Notifies the listeners on `loop`. The caller may use any thread; without a loop there are no listeners."""
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._schedule, change, loop)

    def _schedule(self, change: Kind | str, loop: asyncio.AbstractEventLoop) -> None:
        if not self._listeners:
            return
        if not self._changes and self._steps is None:
            loop.call_soon(self._step, loop)
        self._changes[change] = None

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._steps is None:
            self._steps = self._send()
        if next(self._steps, _DONE) is _DONE:
            self._steps = None
        if self._steps is not None or self._changes:
            loop.call_soon(self._step, loop)

    def _send(self) -> Iterator[None]:
        changes, self._changes = self._changes, {}
        notices: dict[tuple[str, str], Kind | str] = {}
        for change in changes:
            method = LIST_CHANGED[change] if isinstance(change, Kind) else "notifications/resources/updated"
            notices.setdefault((method, "" if isinstance(change, Kind) else change), change)
        listeners = tuple(self._listeners)
        cost = 0
        for (method, uri), change in notices.items():
            for listener in listeners:
                if cost >= _STEP_COST:
                    cost = 0
                    yield
                cost += 1
                if listener in self._listeners and listener.wants(change):
                    cost += _NOTICE_COST
                    listener.notify(method, {"uri": uri} if uri else {})
