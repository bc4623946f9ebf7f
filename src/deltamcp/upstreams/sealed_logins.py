"""Logins of one principal at upstreams, sealed in the server's store: requests of no other principal reach them."""

import asyncio
from contextlib import AbstractAsyncContextManager

from deltamcp.runtime.seal import Seal
from deltamcp.stores.store import SharedStore
from deltamcp.values import Principal

KEEP_SECONDS = 90 * 86_400.0
"""How long a login is kept that nobody uses."""


class SealedLogins:
    """A `TokenStorage` in the store of a server: encrypted with its state key, and bound to the principal."""

    def __init__(self, store: SharedStore, seal: Seal, server: str, principal: Principal) -> None:
        """`server` is the name of the server that the store belongs to."""
        self._store = store
        self._seal = seal
        self._owner = f"{server} upstream logins {principal.key}"
        self._locks: dict[str, asyncio.Lock] = {}

    async def load(self, server: str) -> bytes | None:
        sealed = await self._store.get(self._owner, server)
        record = None if sealed is None else self._seal.open(sealed.decode(), self._binding(server))
        return record.encode() if isinstance(record, str) else None

    async def save(self, server: str, record: bytes) -> None:
        sealed = self._seal.close(record.decode(), self._binding(server)).encode()
        await self._store.put(self._owner, server, sealed, KEEP_SECONDS, KEEP_SECONDS, self._owner)

    async def delete(self, server: str) -> None:
        await self._store.delete(self._owner, server)

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(server, asyncio.Lock())

    def _binding(self, server: str) -> bytes:
        return f"{self._owner}\n{server}".encode(errors="surrogatepass")
