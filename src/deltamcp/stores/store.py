"""The interface of stores, how a URL opens one, the token buckets that they hold, and the store in memory.

A bucket is one number: when it will be full if nobody takes from it. Each token that is taken moves that by the time
that a token takes to be refilled.
"""

import asyncio
import hashlib
import heapq
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

from msgspec import Struct

from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.limits import Limits

ENTRY_BYTES = 4096
"""What one entry counts beside its data. In memory it takes some 500 bytes; the rest bounds the number of entries that
have to go at once for a large one."""

_STORE_URLS = 'A store is "memory://", "sqlite:///path", "redis://host:port/0" or "rediss://host:port/0".'
_STALE_AT_ONCE = 128
"""The number of expired entries that one call deletes, so that it takes no longer than a millisecond or two."""

_SWEEP_SECONDS = 1.0
"""The time between deletions of expired entries while no call deletes them."""

_MAX_UNREAD = 10_000
"""The messages that wait for one subscriber; it is told that it misses further ones."""

_Key = tuple[str, str]


class StoreError(DeltaError):
    """A store cannot be reached or cannot store more. The text is one sentence, for a log rather than for a model."""


class StoreUnreachableError(StoreError):
    """A store does not answer, or not in time. What was asked of it may have happened; a later call may succeed."""


class StoreFullError(StoreError):
    """A store has no room for the data, and has not changed."""


class Quotas(NamedTuple):
    """How many bytes a store holds, `ENTRY_BYTES` for each entry included."""

    total: int
    per_account: int

    def check_size(self, data: bytes) -> None:
        """Checks that `data` fits into an empty account.

        Raises:
            StoreFullError: `data` is too large.
        """
        if len(data) + ENTRY_BYTES > min(self):
            raise StoreFullError(
                f"The store keeps {min(self):,} bytes for one account, too few for one result of {len(data):,}."
            )

    def full_error(self) -> StoreFullError:
        """Returns the error for data that does not fit beside the data of all accounts."""
        return StoreFullError(f"The store keeps {self.total:,} bytes in all, and is full.")


DEFAULT_QUOTAS = Quotas(Limits().stored_bytes, Limits().stored_bytes_per_account)


class Store(Protocol):
    """Stores bytes under an owner and a name for a limited time. Every method may raise `StoreError`.

    The owner says who can read an entry, the account whose quota it counts towards. `idle_seconds` and `max_seconds`
    are finite and above 0. Where an account is full, the store forgets entries of that account early, first the one
    that was not read for the longest time. Where the whole store is full, it stores nothing new: nobody's data
    displaces another's.
    """

    private: bool
    """Whether only the user who runs this process can read the store."""

    async def put(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> None:
        """Stores `data` in place of earlier data until it is unread for `idle_seconds`, but at most for `max_seconds`.

        Data that does not fit raises `StoreFullError` and leaves everything in place.
        """

    async def add(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> bool:
        """Stores `data` and returns True if the owner has no data under this name; else returns False.

        Of several concurrent calls, in any process, one succeeds. A call that fails does not prolong the life of the
        data it finds.
        """

    async def get(self, owner: str, name: str) -> bytes | None:
        """Returns the data and restarts its `idle_seconds`; None if the owner has none of this name or it expired."""

    async def close(self) -> None:
        """Releases connections, files and memory; a later call opens them again."""


class SharedStore(Store, Protocol):
    """A store through which the replicas of a server also share sessions, promises, rate limits and messages.

    Stores of the library have these methods. With a store that has not, each process keeps its own sessions and
    promises, and counts its own rates.
    """

    shared: bool
    """Whether other processes reach what this one stores; else it keeps its sessions to itself."""
    redis_url: str | None
    """The Redis server that has the data, where a queue can be beside it; None for any other store."""

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
        """Stores `data` in place of exactly `expected`, as `put` does; returns False if there is other data or none.

        Of several concurrent calls that expect the same, in any process, one succeeds.
        """

    async def delete(self, owner: str, name: str) -> None:
        """Deletes the data of this name; it is no error if there is none."""

    async def take_token(self, bucket: str, rate: float, burst: int) -> float:
        """Takes a token from a bucket, which holds up to `burst` and is refilled with `rate` tokens a second.

        Returns 0.0, or the seconds until the bucket has a token if it is empty. Of concurrent calls, in any process,
        no more succeed than the bucket has tokens. An unused bucket is forgotten once it is full.
        """

    async def publish(self, channel: str, message: bytes) -> None:
        """Sends a short message to all that subscribe to the channel, in any process, this one included."""

    def subscribe(self, channel: str) -> AsyncGenerator[bytes | None, None]:
        """Yields None once the subscription begins, and then each message that is published from then on.

        It yields None once more wherever messages may have been missed. It may also raise `StoreError`; the server then
        subscribes again.
        """


def open_store(url: str, limits: Limits) -> SharedStore:
    """Opens the store at `url`, with the limits' quotas; one on disk or in a network connects at the first call.

    A path after `sqlite:///` is relative unless it begins with one more slash.

    Raises:
        ConfigurationError: the url does not name a store.
    """
    if not isinstance(url, str):
        raise ConfigurationError(_STORE_URLS)
    scheme, _, rest = url.partition("://")
    quotas = Quotas(limits.stored_bytes, limits.stored_bytes_per_account)
    if url == "memory://":
        return MemoryStore(quotas)
    store: SharedStore
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        from deltamcp.stores.sqlite import SqliteStore

        store = SqliteStore(rest[1:], quotas, limits.store_seconds)
    elif scheme in ("redis", "rediss"):
        from deltamcp.stores.redis import RedisStore

        store = RedisStore(url, quotas, limits.store_seconds)
    else:
        raise ConfigurationError(_STORE_URLS)  # without the url, which may contain a password
    from deltamcp.stores.circuit_breaker import CircuitBreaker

    return CircuitBreaker(store, limits.store_seconds)


def hash_key(owner: str, name: str) -> str:
    """Hashes an owner and a name into one key, which reveals neither to other readers of the medium."""
    return hashlib.sha256(hash_text(owner) + name.encode(errors="surrogatepass")).hexdigest()


def hash_text(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


CLOCK_SECONDS = 1e-6
"""The resolution of clocks; who waited until a bucket had a token again finds it, however the numbers were rounded."""


def take_token(full_at: float, now: float, rate: float, burst: int) -> tuple[float, float]:
    """Takes a token; returns when the bucket is full again, and 0.0 or the seconds until it has a token."""
    # A bucket lacks no more than all its tokens, also if its rate was lower or the clock was ahead before.
    full_at = min(max(full_at, now), now + burst / rate)
    missing = full_at + 1 / rate - now - burst / rate
    return (full_at + 1 / rate, 0.0) if missing <= CLOCK_SECONDS else (full_at, missing)


MAX_BUCKETS = 200_000
"""The buckets of one process, some 250 bytes each; beyond it the next in turn is forgotten, however full it is."""


class TokenBuckets:
    """The buckets of one process by name. Each call forgets one that is full, if there is one next in turn."""

    __slots__ = ("_clock", "_full_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, bucket: str, rate: float, burst: int) -> float:
        """Takes a token; returns 0.0, or the seconds until the bucket has one."""
        now = self._clock()
        full_at = self._full_at.pop(bucket, now)
        # Two for each that is added, so that those which are full go in the end, whatever their rates are.
        for _ in range(min(2, len(self._full_at))):
            other = next(iter(self._full_at))
            others_full_at = self._full_at.pop(other)
            if others_full_at > now and len(self._full_at) < MAX_BUCKETS - 1:
                self._full_at[other] = others_full_at
        self._full_at[bucket], seconds = take_token(full_at, now, rate, burst)
        return seconds


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
