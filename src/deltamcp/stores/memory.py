"""A store in the memory of this process."""

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from deltamcp.stores.store import ENTRY_BYTES, check_size

_Key = tuple[str, str]


class _MemoryEntry(Struct):
    data: bytes
    idle_seconds: float
    ends_at: float
    expires_at: float


class MemoryStore:
    """A `Store` in memory. `get` returns the very object that was put."""

    private = True

    def __init__(self, max_bytes: int = 256 * 1024 * 1024, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._total_bytes = 0
        self._entries: OrderedDict[_Key, _MemoryEntry] = OrderedDict()  # the most recently read entry comes last
        # When to check whether an entry has expired. A read only moves the expiry later, so one check for each entry is
        # enough. Checks of forgotten entries go when they come due, or when they outnumber the others.
        self._expiry_queue: list[tuple[float, _Key]] = []

    async def put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> None:
        check_size(data, self._max_bytes)
        now, key = self._clock(), (owner, name)
        self._forget_stale(now)
        self._forget(key)
        self._entries[key] = entry = _MemoryEntry(
            data, idle_seconds, now + max_seconds, now + min(idle_seconds, max_seconds)
        )
        self._total_bytes += len(data) + ENTRY_BYTES
        while self._total_bytes > self._max_bytes:
            self._forget(next(iter(self._entries)))
        heapq.heappush(self._expiry_queue, (entry.expires_at, key))
        if len(self._expiry_queue) > 2 * len(self._entries) + 64:
            self._expiry_queue = [(entry.expires_at, key) for key, entry in self._entries.items()]
            heapq.heapify(self._expiry_queue)

    async def add(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> bool:
        check_size(data, self._max_bytes)
        self._forget_stale(self._clock())
        if (owner, name) in self._entries:
            return False
        await self.put(owner, name, data, idle_seconds, max_seconds)
        return True

    async def get(self, owner: str, name: str) -> bytes | None:
        now = self._clock()
        self._forget_stale(now)
        entry = self._entries.get((owner, name))
        if entry is None:
            return None
        self._entries.move_to_end((owner, name))
        entry.expires_at = min(now + entry.idle_seconds, entry.ends_at)
        return entry.data

    async def forget(self, owner: str, name: str) -> None:
        self._forget((owner, name))

    async def close(self) -> None:
        self._entries.clear()
        self._expiry_queue.clear()
        self._total_bytes = 0

    def _forget_stale(self, now: float) -> None:
        while self._expiry_queue and self._expiry_queue[0][0] <= now:
            _, key = heapq.heappop(self._expiry_queue)
            entry = self._entries.get(key)
            if entry is not None and entry.expires_at > now:
                heapq.heappush(self._expiry_queue, (entry.expires_at, key))
            else:
                self._forget(key)

    def _forget(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._total_bytes -= len(entry.data) + ENTRY_BYTES
