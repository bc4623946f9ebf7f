"""A store in this process, which ends with it."""

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
    """See `Store`. Keeps the very object it is given, and gives it back."""

    private = True

    def __init__(self, max_bytes: int = 256 * 1024 * 1024, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._total_bytes = 0
        self._entries: OrderedDict[_Key, _MemoryEntry] = OrderedDict()  # what was read last stands last
        # When to look whether something has expired. One look each is enough to begin with, as lives only grow
        # longer; looks for what was forgotten before go when their time comes, or when they are the most.
        self._expiry_queue: list[tuple[float, _Key]] = []

    async def put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> None:
        check_size(data, self._max_bytes)
        now, key = self._clock(), (owner, name)
        self._forget_stale(now)
        self._forget(key)
        self._entries[key] = kept = _MemoryEntry(
            data, idle_seconds, now + max_seconds, now + min(idle_seconds, max_seconds)
        )
        self._total_bytes += len(data) + ENTRY_BYTES
        while self._total_bytes > self._max_bytes:
            self._forget(next(iter(self._entries)))
        heapq.heappush(self._expiry_queue, (kept.expires_at, key))
        if len(self._expiry_queue) > 2 * len(self._entries) + 64:
            self._expiry_queue = [(kept.expires_at, key) for key, kept in self._entries.items()]
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
        kept = self._entries.get((owner, name))
        if kept is None:
            return None
        self._entries.move_to_end((owner, name))
        kept.expires_at = min(now + kept.idle_seconds, kept.ends_at)
        return kept.data

    async def forget(self, owner: str, name: str) -> None:
        self._forget((owner, name))

    async def close(self) -> None:
        self._entries.clear()
        self._expiry_queue.clear()
        self._total_bytes = 0

    def _forget_stale(self, now: float) -> None:
        while self._expiry_queue and self._expiry_queue[0][0] <= now:
            _, key = heapq.heappop(self._expiry_queue)
            kept = self._entries.get(key)
            if kept is not None and kept.expires_at > now:
                heapq.heappush(self._expiry_queue, (kept.expires_at, key))
            else:
                self._forget(key)

    def _forget(self, key: _Key) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._total_bytes -= len(kept.data) + ENTRY_BYTES
