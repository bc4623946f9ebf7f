"""The interface of every store, and `open_store`, which opens the store at a URL."""

import hashlib
from typing import Protocol

from deltamcp.errors import ConfigurationError, DeltaError

ENTRY_BYTES = 512
"""The overhead of one entry, measured in memory; the bounds of stores include it."""

_STORE_URLS = 'A store is "memory://", "sqlite:///path", "redis://host:port/0" or "rediss://host:port/0".'


class StoreError(DeltaError):
    """A store cannot be reached or cannot store more. The text is one sentence, for a log rather than for a model."""


class Store(Protocol):
    """Stores bytes under an owner and a name for a limited time. Every method may raise `StoreError`.

    `idle_seconds` and `max_seconds` are finite and above 0. A full store forgets entries early, first the one that was
    not read for the longest time.
    """

    private: bool
    """Whether only the user who runs this process can read the store."""

    async def put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> None:
        """Stores `data` in place of earlier data until it is unread for `idle_seconds`, but at most for `max_seconds`.

        Data that is larger than the whole store raises `StoreError` and leaves the earlier data in place.
        """

    async def add(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> bool:
        """Stores `data` and returns True if the owner has no data under this name; else returns False.

        Of several concurrent calls, in any process, one succeeds. A call that fails does not prolong the life of the
        data it finds.
        """

    async def get(self, owner: str, name: str) -> bytes | None:
        """Returns the data and restarts its `idle_seconds`; None if the owner has none of this name or it expired."""

    async def forget(self, owner: str, name: str) -> None:
        """Deletes the data, if there is any."""

    async def close(self) -> None:
        """Releases connections, files and memory; a later call opens them again."""


def open_store(url: str) -> Store:
    """Opens the store at `url`; a store on disk or in a network connects at the first call.

    A path after `sqlite:///` is relative unless it begins with one more slash.

    Raises:
        ConfigurationError: the url does not name a store.
    """
    if not isinstance(url, str):
        raise ConfigurationError(_STORE_URLS)
    scheme, _, rest = url.partition("://")
    if url == "memory://":
        from deltamcp.stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        from deltamcp.stores.sqlite import SqliteStore

        return SqliteStore(rest[1:])
    if scheme in ("redis", "rediss"):
        from deltamcp.stores.redis import RedisStore

        return RedisStore(url)
    raise ConfigurationError(_STORE_URLS)  # without the url, which may contain a password


def hash_key(owner: str, name: str) -> str:
    """Hashes an owner and a name into one key, which reveals neither to other readers of the medium."""
    inner = hashlib.sha256(owner.encode(errors="surrogatepass")).digest()
    return hashlib.sha256(inner + name.encode(errors="surrogatepass")).hexdigest()


def check_size(data: bytes, max_bytes: int) -> None:
    """Checks that `data` fits into an empty store of `max_bytes`.

    Raises:
        StoreError: `data` is too large.
    """
    if len(data) + ENTRY_BYTES > max_bytes:
        raise StoreError(f"The store keeps {max_bytes:,} bytes in all, too few for one result of {len(data):,}.")
