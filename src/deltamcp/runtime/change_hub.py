"""The hub of change notifications: passes each change of a list or a resource to the listeners that want it."""

import asyncio
from collections.abc import Mapping
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


class Listener(Protocol):
    """A client's session or subscription, which sends the client notifications of changes."""

    def wants(self, change: Kind | str) -> bool:
        """Whether the client subscribed to the changes of a list, or of the resource with a URI."""
        ...

    def notify(self, method: str, params: dict[str, JSON]) -> None:
        """Sends a notification to the client. It must not block and must not raise."""
        ...


class ChangeHub:
    """Notifies listeners of changes. A change that is published several times in one turn of the loop is sent once."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._changes: dict[Kind | str, None] = {}

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
        if not self._changes:
            loop.call_soon(self._send)
        self._changes[change] = None

    def _send(self) -> None:
        changes, self._changes = self._changes, {}
        notices: dict[tuple[str, str], Kind | str] = {}
        for change in changes:
            method = LIST_CHANGED[change] if isinstance(change, Kind) else "notifications/resources/updated"
            notices.setdefault((method, "" if isinstance(change, Kind) else change), change)
        for (method, uri), change in notices.items():
            for listener in tuple(self._listeners):
                if listener.wants(change):
                    listener.notify(method, {"uri": uri} if uri else {})
