"""The media that stores share in the tests: memory, a file, a Redis server."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from deltamcp.stores.redis import RedisStore
from deltamcp.stores.sqlite import SqliteStore
from deltamcp.stores.store import DEFAULT_QUOTAS, MemoryStore, Quotas, SharedStore
from tests.support.conditions import HANG_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    """Waits for what must come, however slow the machine is."""
    end = time.monotonic() + HANG_SECONDS
    while not await happened():
        assert time.monotonic() < end, "the condition did not come to hold"
        await asyncio.sleep(0.05)


class Medium:
    """A medium that several stores share."""

    def __init__(self, kind: str, path: Path, url: str) -> None:
        self.kind = kind
        self.clock = Clock()
        self.prefix = f"{path}:"
        self._path = path
        self._url = url
        self._opened: list[SharedStore] = []

    def open(self, quotas: Quotas = DEFAULT_QUOTAS) -> SharedStore:
        store: SharedStore
        match self.kind:
            case "memory":
                # Replicas of a store in one process are the store.
                store = self._opened[0] if self._opened else MemoryStore(quotas, self.clock)
            case "sqlite":
                store = SqliteStore(self._path / "store.db", quotas, clock=self.clock)
            case _:
                store = RedisStore(self._url, quotas, prefix=self.prefix)
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
