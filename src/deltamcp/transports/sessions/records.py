"""The records of handshake sessions in the store that the replicas of a server share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from deltamcp.dialects.dialect import Agreement
from deltamcp.runtime.change_hub import Position
from deltamcp.stores.store import SharedStore, StoreUnreachableError
from deltamcp.values import Response

_MAX_SECONDS = 30 * 24 * 3600.0
"""How long a session lasts that is used all the time; its client then opens another."""
_LOCK_SECONDS = 5.0
"""How long a replica that dies while it changes a record keeps others from changing it."""
_LOCK_RETRY_SECONDS = 0.005
_RESPONSE_SECONDS = 60.0
"""How long a client's response waits for the replica that asked."""


class SessionRecord(Struct):
    """What every replica knows of a session."""

    principal: str
    """The key of the principal that opened the session, which alone may use it."""
    account: str
    dialect: str
    agreement: Agreement
    heard: Position
    """The position in the log of changes up to which the client has heard of them."""
    listens: int = 0
    """How many streams for messages outside requests the client has opened."""
    watches: bool = False
    """Whether the client watches resources; their URIs are an entry of their own, as they may be long."""


class SessionRecords:
    """Reads and writes records. Every method may raise `StoreError`."""

    def __init__(self, store: SharedStore, server: str, idle_seconds: float) -> None:
        self._store = store
        self._idle_seconds = idle_seconds
        self._sessions = f"{server} session"
        self._watched = f"{server} watched"
        self._locks = f"{server} session lock"
        self._responses = f"{server} response"
        self._decoder = msgspec.msgpack.Decoder(SessionRecord)

    async def write(self, id_: str, record: SessionRecord) -> None:
        data = msgspec.msgpack.encode(record)
        await self._store.put(self._sessions, id_, data, *self._lifetimes(), _account(record))

    async def read(self, id_: str) -> SessionRecord | None:
        """Returns the record and restarts the session's idle time; None if the session has ended."""
        data = await self._store.get(self._sessions, id_)
        if data is None:
            return None
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError:
            return None  # another version of this library wrote it

    async def delete(self, id_: str) -> None:
        """Ends the session."""
        async with self.locked(id_):
            await self._store.delete(self._sessions, id_)
            await self._store.delete(self._watched, id_)

    @contextlib.asynccontextmanager
    async def locked(self, id_: str) -> AsyncIterator[None]:
        """Keeps all replicas from changing the record meanwhile, which must take less time than the lock lasts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * _LOCK_SECONDS
        while True:
            ends_at = loop.time() + _LOCK_SECONDS  # at the latest then another replica may have the lock
            if await self._store.add(self._locks, id_, b"", _LOCK_SECONDS, _LOCK_SECONDS, self._locks):
                break
            if loop.time() > deadline:
                raise StoreUnreachableError("Other replicas are changing the session all the time.")
            await asyncio.sleep(_LOCK_RETRY_SECONDS)
        try:
            async with asyncio.timeout_at(ends_at):
                yield
        except TimeoutError:
            raise StoreUnreachableError("The store took too long to change a session.") from None
        finally:
            if loop.time() < ends_at:
                await self._store.delete(self._locks, id_)

    async def read_watched(self, id_: str) -> set[str]:
        """Returns the URIs of the resources that the client watches."""
        data = await self._store.get(self._watched, id_)
        return set() if data is None else msgspec.msgpack.decode(data, type=set[str])

    async def write_watched(self, id_: str, record: SessionRecord, uris: set[str]) -> None:
        await self._store.put(self._watched, id_, msgspec.msgpack.encode(uris), *self._lifetimes(), _account(record))

    async def put_response(self, id_: str, response: Response, account: str) -> None:
        """Stores a client's response for the replica that waits for it."""
        data = msgspec.json.encode(response)  # MessagePack's integers have 64 bits
        name = f"{id_} {response.id}"
        await self._store.put(self._responses, name, data, _RESPONSE_SECONDS, _RESPONSE_SECONDS, f"sessions {account}")

    async def take_response(self, id_: str, request: str) -> Response | None:
        """Returns and deletes the client's response to a request; None if there is none."""
        data = await self._store.get(self._responses, f"{id_} {request}")
        if data is None:
            return None
        await self._store.delete(self._responses, f"{id_} {request}")
        return msgspec.json.decode(data, type=Response)

    def _lifetimes(self) -> tuple[float, float]:
        return self._idle_seconds, max(self._idle_seconds, _MAX_SECONDS)


def _account(record: SessionRecord) -> str:
    # Not the account itself, whose stored results would displace its sessions.
    return f"sessions {record.account}"
