"""Who wants to hear of which change."""

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
    """A session or a subscription."""

    def wants(self, change: Kind | str) -> bool:
        """Whether to tell it of a changed list, or of a changed resource by its URI."""
        ...

    def hear(self, method: str, params: dict[str, JSON]) -> None:
        """Must not block and must not raise."""
        ...


class Hub:
    """Tells listeners of changes, each change once however often it was made in one turn of the loop."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._changes: dict[Kind | str, None] = {}

    def join(self, listener: Listener) -> None:
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def publish(self, change: Kind | str, loop: asyncio.AbstractEventLoop | None) -> None:
        """From any thread; without a loop nobody can be listening yet."""
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._note, change, loop)

    def _note(self, change: Kind | str, loop: asyncio.AbstractEventLoop) -> None:
        if not self._listeners:
            return
        if not self._changes:
            loop.call_soon(self._tell)
        self._changes[change] = None

    def _tell(self) -> None:
        changes, self._changes = self._changes, {}
        told: dict[tuple[str, str], Kind | str] = {}
        for change in changes:
            method = LIST_CHANGED[change] if isinstance(change, Kind) else "notifications/resources/updated"
            told.setdefault((method, "" if isinstance(change, Kind) else change), change)
        for (method, uri), change in told.items():
            for listener in tuple(self._listeners):
                if listener.wants(change):
                    listener.hear(method, {"uri": uri} if uri else {})
