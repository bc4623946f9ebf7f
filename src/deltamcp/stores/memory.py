"""A store in this process, which ends with it."""

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from deltamcp.stores.store import ENTRY_BYTES, refuse_larger

_Key = tuple[str, str]


class _Kept(Struct):
    data: bytes
    seconds: float
    ends: float
    expires: float


class MemoryStore:
    """See `Store`. Keeps the very object it is given, and gives it back."""

    private = True

    def __init__(self, most_bytes: int = 256 * 1024 * 1024, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._bytes = 0
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()  # what was read last stands last
        # When to look whether something has expired. One look each is enough to begin with, as lives only grow
        # longer; looks for what was forgotten before go when their time comes, or when they are the most.
        self._looks: list[tuple[float, _Key]] = []

    async def put(self, owner: str, name: str, data: bytes, seconds: float, longest: float) -> None:
        refuse_larger(data, self._most_bytes)
        now, key = self._clock(), (owner, name)
        self._forget_stale(now)
        self._forget(key)
        self._kept[key] = kept = _Kept(data, seconds, now + longest, now + min(seconds, longest))
        self._bytes += len(data) + ENTRY_BYTES
        while self._bytes > self._most_bytes:
            self._forget(next(iter(self._kept)))
        heapq.heappush(self._looks, (kept.expires, key))
        if len(self._looks) > 2 * len(self._kept) + 64:
            self._looks = [(kept.expires, key) for key, kept in self._kept.items()]
            heapq.heapify(self._looks)

    async def add(self, owner: str, name: str, data: bytes, seconds: float, longest: float) -> bool:
        refuse_larger(data, self._most_bytes)
        self._forget_stale(self._clock())
        if (owner, name) in self._kept:
            return False
        await self.put(owner, name, data, seconds, longest)
        return True

    async def get(self, owner: str, name: str) -> bytes | None:
        now = self._clock()
        self._forget_stale(now)
        kept = self._kept.get((owner, name))
        if kept is None:
            return None
        self._kept.move_to_end((owner, name))
        kept.expires = min(now + kept.seconds, kept.ends)
        return kept.data

    async def forget(self, owner: str, name: str) -> None:
        self._forget((owner, name))

    async def close(self) -> None:
        self._kept.clear()
        self._looks.clear()
        self._bytes = 0

    def _forget_stale(self, now: float) -> None:
        while self._looks and self._looks[0][0] <= now:
            _, key = heapq.heappop(self._looks)
            kept = self._kept.get(key)
            if kept is not None and kept.expires > now:
                heapq.heappush(self._looks, (kept.expires, key))
            else:
                self._forget(key)

    def _forget(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= len(kept.data) + ENTRY_BYTES
