"""Where what outlives a request is kept: what every store promises, and how one is named."""

import hashlib
from typing import Protocol

from deltamcp.errors import ConfigurationError, DeltaError

ENTRY_BYTES = 512
"""What keeping anything takes beside its bytes, measured in memory; bounds count it."""

_STORE_URLS = 'A store is "memory://", "sqlite:///path", "redis://host:port/0" or "rediss://host:port/0".'


class StoreError(DeltaError):
    """What is kept cannot be reached, or no more can be kept. One sentence, for a log rather than a model."""


class Store(Protocol):
    """Bytes under an owner and a name, for a while. Every method may raise `StoreError`.

    `seconds` and `longest` are finite and above 0. What is kept may go early where the store is full: what was
    not read for the longest time goes first.
    """

    private: bool
    """Whether nobody reaches it but who started this process."""

    async def put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> None:
        """Keeps `data` in place of what was there, until it is unread for `seconds`, and `longest` in any case.

        What could never fit raises, and what was there stays.
        """

    async def add(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> bool:
        """`put` where nothing is kept yet, and then True. Of many that add at once, anywhere, one succeeds.

        What is there is not touched by the attempt: its life is no longer than before.
        """

    async def get(self, owner: str, name: str) -> bytes | None:
        """What is kept, for `seconds` more. None where there is none, it is too old, or it is another owner's."""

    async def forget(self, owner: str, name: str) -> None: ...

    async def close(self) -> None:
        """Lets go of connections, files and memory. The next call, if there is one, takes hold of them again."""


def open_store(url: str) -> Store:
    """The store at `url`; one on disk or in a network is reached at the first call.

    A path after `sqlite:///` is relative unless it begins with one more slash.

    Raises:
        ConfigurationError: there can be no such store.
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
    raise ConfigurationError(_STORE_URLS)  # the url may hold a password, so it is not repeated


def hash_key(owner: str, name: str) -> str:
    """One key for both, of which a medium that others read gives away neither."""
    inner = hashlib.sha256(owner.encode(errors="surrogatepass")).digest()
    return hashlib.sha256(inner + name.encode(errors="surrogatepass")).hexdigest()


def check_size(data: bytes, max_bytes: int) -> None:
    """
    Raises:
        StoreError: a store of `most_bytes` could not keep `data` if it kept nothing else.
    """
    if len(data) + ENTRY_BYTES > max_bytes:
        raise StoreError(f"The store keeps {max_bytes:,} bytes in all, too few for one result of {len(data):,}.")
