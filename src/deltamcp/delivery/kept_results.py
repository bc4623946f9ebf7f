"""Results of the user who started this process, in a file: a later process finds them by their handles."""

import asyncio
import contextlib
import functools
import hashlib
import hmac
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from deltamcp.limits import Limits
from deltamcp.runtime.own_files import add_own_file, make_own_folder, read_own_file, user_folder
from deltamcp.runtime.seal import KEY_BYTES, Seal
from deltamcp.stores.store import Quotas, StoreError

if TYPE_CHECKING:
    from deltamcp.stores.circuit_breaker import CircuitBreaker

KEPT_SECONDS = 3600.0
_SWEEP_SECONDS = 60.0
"""How often a process deletes what has expired, of its own and of others."""


class KeptResults:
    """Keeps sealed results for an hour, for processes of the same user and of the same identity.

    The results are in the user's folder for caches, which backups leave out, and the key that seals them in that for
    state. What opens them is made of that key and the identity, so that no other identity opens them by mistake.
    """

    def __init__(self, identity: bytes, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            identity: Says for whom the results are, such as a digest of a configuration and a folder.

        Raises:
            ConfigurationError: the user has no home.
        """
        self._identity = hashlib.sha256(identity).hexdigest()
        self._limits = limits
        self._clock = clock
        self._path = user_folder("cache") / "results" / "results.sqlite"
        self._key_path = user_folder("state") / "results.key"

    async def add(self, name: str, packed: bytes) -> bool:
        """Keeps a result under a name; returns False if there is one of this name.

        Raises:
            StoreError: it cannot be kept; also the other methods.
        """
        sealed = await asyncio.to_thread(self._close, name, packed)
        return await self._store.add(self._identity, name, sealed, KEPT_SECONDS, KEPT_SECONDS, self._identity)

    async def replace(self, name: str, packed: bytes) -> None:
        """Keeps a result in place of another one."""
        sealed = await asyncio.to_thread(self._close, name, packed)
        await self._store.put(self._identity, name, sealed, KEPT_SECONDS, KEPT_SECONDS, self._identity)

    async def get(self, name: str) -> bytes | None:
        """Returns the result under a name; None if there is none, or if it was sealed with another key."""
        if not self._path.exists():
            return None
        sealed = await self._store.get(self._identity, name)
        return None if sealed is None else await asyncio.to_thread(self._open, name, sealed)

    async def delete(self, name: str) -> None:
        await self._store.delete(self._identity, name)

    @contextlib.asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """Deletes what has expired, whosever it is, now and every minute in the `with` block."""

        async def sweep() -> None:
            while True:
                if self._path.exists():
                    with contextlib.suppress(StoreError):
                        await self._store.get(self._identity, "")  # the store sweeps before it looks
                await asyncio.sleep(_SWEEP_SECONDS)

        task = asyncio.create_task(sweep())
        try:
            yield
        finally:
            task.cancel()

    async def close(self) -> None:
        if "_store" in vars(self):
            await self._store.close()

    @functools.cached_property
    def _store(self) -> "CircuitBreaker":
        from deltamcp.stores.circuit_breaker import CircuitBreaker
        from deltamcp.stores.sqlite import SqliteStore

        try:
            make_own_folder(self._path.parent)
        except OSError as error:
            raise StoreError(f"{self._path.parent} cannot be made: {error.strerror}.") from None
        quotas = Quotas(self._limits.stored_bytes, self._limits.stored_bytes_per_account)
        return CircuitBreaker(
            SqliteStore(self._path, quotas, self._limits.store_seconds, self._clock), self._limits.store_seconds
        )

    def _close(self, name: str, packed: bytes) -> bytes:
        return self._seal.close_bytes(packed, name.encode())

    def _open(self, name: str, sealed: bytes) -> bytes | None:
        return self._seal.open_bytes(sealed, name.encode(errors="surrogatepass"))

    @functools.cached_property
    def _seal(self) -> Seal:
        """
        Raises:
            StoreError: there is no key, and none can be made, or it is another user's.
        """
        key = read_own_file(self._key_path, KEY_BYTES)
        if not key:
            try:
                add_own_file(self._key_path, os.urandom(KEY_BYTES))
            except OSError as error:
                raise StoreError(f"The key at {self._key_path} cannot be made: {error.strerror}.") from None
            key = read_own_file(self._key_path, KEY_BYTES)
        if key is None or len(key) < KEY_BYTES:
            raise StoreError(f"The key at {self._key_path} is damaged, or another user's; delete it.")
        return Seal([hmac.digest(key, self._identity.encode(), "sha256")], KEPT_SECONDS)
