"""A store in the memory of this process."""

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable

from msgspec import Struct

from deltamcp.stores.store import DEFAULT_QUOTAS, ENTRY_BYTES, Quotas, TokenBuckets

_STALE_AT_ONCE = 128
"""The number of expired entries that one call deletes, so that it takes no longer than a millisecond or two."""

_SWEEP_SECONDS = 1.0
"""The time between deletions of expired entries while no call deletes them."""

_MAX_UNREAD = 10_000
"""The messages that wait for one subscriber; it is told that it misses further ones."""

_Key = tuple[str, str]


class _MemoryEntry(Struct):
    data: bytes
    account: str
    idle_seconds: float
    ends_at: float
    expires_at: float

    @property
    def size(self) -> int:
        return len(self.data) + ENTRY_BYTES


class _MemoryAccount:
    """The entries of one account, the most recently read one last, and their size."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: OrderedDict[_Key, _MemoryEntry] = OrderedDict()
        self.size = 0


class MemoryStore:
    """A `SharedStore` in memory. `get` returns the very object that was put."""

    private = True
    shared = False
    redis_url: str | None = None

    def __init__(self, quotas: Quotas = DEFAULT_QUOTAS, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        self._clock = clock
        self._total_bytes = 0
        self._entries: dict[_Key, _MemoryEntry] = {}
        self._accounts: dict[str, _MemoryAccount] = {}
        # When to check whether an entry has expired. A read only moves the expiry later, so one check for each entry is
        # enough. Checks of forgotten entries go when they come due, or when they outnumber the others.
        self._expiry_queue: list[tuple[float, _Key]] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._buckets = TokenBuckets(clock)
        self._subscribers: dict[str, set[asyncio.Queue[bytes | None]]] = {}

    async def put(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> None:
        self._quotas.check_size(data)
        self._put(owner, name, data, idle_seconds, max_seconds, account)

    def _put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str) -> None:
        now, key = self._clock(), (owner, name)
        self._forget_stale(now)
        entry = _MemoryEntry(data, account, idle_seconds, now + max_seconds, now + min(idle_seconds, max_seconds))
        self._make_room(key, entry)
        self._entries[key] = entry
        own = self._accounts.setdefault(account, _MemoryAccount())
        own.entries[key] = entry
        own.size += entry.size
        self._total_bytes += entry.size
        heapq.heappush(self._expiry_queue, (entry.expires_at, key))
        if len(self._expiry_queue) > 2 * len(self._entries) + 64:
            self._expiry_queue = [(entry.expires_at, key) for key, entry in self._entries.items()]
            heapq.heapify(self._expiry_queue)
        if self._sweep_timer is None:
            self._set_sweep_timer(asyncio.get_running_loop())

    async def add(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> bool:
        self._quotas.check_size(data)
        if self._find((owner, name), self._clock()) is not None:
            return False
        self._put(owner, name, data, idle_seconds, max_seconds, account)
        return True

    async def replace(
        self,
        owner: str,
        name: str,
        expected: bytes,
        data: bytes,
        idle_seconds: float,
        max_seconds: float,
        account: str,
    ) -> bool:
        self._quotas.check_size(data)
        found = self._find((owner, name), self._clock())
        if found is None or found.data != expected:
            return False
        self._put(owner, name, data, idle_seconds, max_seconds, account)
        return True

    async def get(self, owner: str, name: str) -> bytes | None:
        now, key = self._clock(), (owner, name)
        self._forget_stale(now)
        entry = self._find(key, now)
        if entry is None:
            return None
        self._accounts[entry.account].entries.move_to_end(key)
        entry.expires_at = min(now + entry.idle_seconds, entry.ends_at)
        return entry.data

    async def delete(self, owner: str, name: str) -> None:
        self._forget((owner, name))

    async def take_token(self, bucket: str, rate: float, burst: int) -> float:
        return self._buckets.take(bucket, rate, burst)

    async def publish(self, channel: str, message: bytes) -> None:
        for subscriber in self._subscribers.get(channel, ()):
            if subscriber.qsize() < _MAX_UNREAD:
                subscriber.put_nowait(message)
            elif subscriber.qsize() == _MAX_UNREAD:
                subscriber.put_nowait(None)

    async def subscribe(self, channel: str) -> AsyncGenerator[bytes | None, None]:
        unread: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._subscribers.setdefault(channel, set()).add(unread)
        try:
            yield None
            while True:
                yield await unread.get()
        finally:
            self._subscribers[channel].discard(unread)
            if not self._subscribers[channel]:
                del self._subscribers[channel]

    async def close(self) -> None:
        self._entries.clear()
        self._accounts.clear()
        self._expiry_queue.clear()
        self._total_bytes = 0
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _set_sweep_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deletes expired entries, so that a server without calls does not keep them."""
        self._forget_stale(self._clock())
        self._sweep_timer = None
        if self._expiry_queue:
            self._set_sweep_timer(loop)

    def _make_room(self, key: _Key, entry: _MemoryEntry) -> None:
        """Forgets what the entry replaces, and what its account has to give up for it.

        Raises:
            StoreFullError: the entry does not fit all the same.
        """
        replaced, own = self._entries.get(key), self._accounts.get(entry.account)
        doomed = {} if replaced is None else {key: replaced}
        excess = 0 if own is None else own.size + entry.size - self._quotas.per_account
        if replaced is not None and replaced.account == entry.account:
            excess -= replaced.size
        for other, oldest in () if own is None else own.entries.items():
            if excess <= 0:
                break
            if other != key:
                doomed[other] = oldest
                excess -= oldest.size
        if self._total_bytes + entry.size - sum(old.size for old in doomed.values()) > self._quotas.total:
            raise self._quotas.full_error()
        for old_key in doomed:
            self._forget(old_key)

    def _find(self, key: _Key, now: float) -> _MemoryEntry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.expires_at > now else None

    def _forget_stale(self, now: float) -> None:
        for _ in range(_STALE_AT_ONCE):
            if not self._expiry_queue or self._expiry_queue[0][0] > now:
                return
            _, key = heapq.heappop(self._expiry_queue)
            entry = self._entries.get(key)
            if entry is not None and entry.expires_at > now:
                heapq.heappush(self._expiry_queue, (entry.expires_at, key))
            else:
                self._forget(key)

    def _forget(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            own = self._accounts[entry.account]
            del own.entries[key]
            own.size -= entry.size
            self._total_bytes -= entry.size
            if not own.entries:
                del self._accounts[entry.account]
