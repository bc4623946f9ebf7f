"""The interface of stores, how a URL opens one, and the token buckets that they hold.

A bucket is one number: when it will be full if nobody takes from it. Each token that is taken moves that by the time
that a token takes to be refilled.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.limits import Limits

ENTRY_BYTES = 4096
"""What one entry counts beside its data. In memory it takes some 500 bytes; the rest bounds the number of entries that
have to go at once for a large one."""

_STORE_URLS = 'A store is "memory://", "sqlite:///path", "redis://host:port/0" or "rediss://host:port/0".'


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
        from deltamcp.stores.memory import MemoryStore

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
