"""What the store has of the sessions that replicas share: their records, and copies of their streams."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from deltamcp.dialects.dialect import Agreement
from deltamcp.limits import Limits
from deltamcp.replicas import Replica
from deltamcp.runtime.change_hub import Position
from deltamcp.stores.store import SharedStore, StoreError, StoreUnreachableError
from deltamcp.values import RequestId, Response

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


logger: logging.Logger = logging.getLogger("deltamcp.http")


class StreamStart(Struct, frozen=True):
    """What a stream responds to."""

    request: bytes
    """The id of the request, as JSON: MessagePack's integers have 64 bits, and an id may have more."""


class CopiedEvent(Struct, frozen=True):
    """An event and its number."""

    number: int
    event: bytes


class StreamEnd(Struct, frozen=True):
    """The end of a stream: the number of its last event, and that event unless it has an entry of its own."""

    number: int
    event: bytes | None = None


class StreamCopies:
    """The copies of all sessions' streams, of all replicas."""

    def __init__(self, replica: Replica, limits: Limits) -> None:
        self.replica = replica
        self.places: int = limits.replay_events
        self._owner = f"{replica.server} stream"
        self._seconds = limits.session_idle_seconds
        self.is_closed: bool = False
        """Whether the server has closed, so that nothing more can be written."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, stream: str, place: str, entry: Struct, account: str) -> None:
        """Stores an entry of a stream.

        Raises:
            StoreError: the store did not take it.
        """
        data = msgspec.msgpack.encode(entry)
        name = f"{stream} {place}"
        await self.replica.store.put(self._owner, name, data, self._seconds, self._seconds, f"streams {account}")

    async def read_request(self, stream: str) -> RequestId | None:
        """Returns the id of the request that a stream responds to; None if nobody has stored it."""
        data = await self._read(stream, "start")
        if data is None:
            return None
        request: RequestId = msgspec.json.decode(msgspec.msgpack.decode(data, type=StreamStart).request)
        return request

    async def read_event(self, stream: str, number: int) -> CopiedEvent | None:
        """Returns the event that has the place of a number, which may be an older or a newer one."""
        data = await self._read(stream, str(number % self.places))
        return None if data is None else msgspec.msgpack.decode(data, type=CopiedEvent)

    async def read_end(self, stream: str) -> StreamEnd | None:
        data = await self._read(stream, "end")
        return None if data is None else msgspec.msgpack.decode(data, type=StreamEnd)

    async def _read(self, stream: str, place: str) -> bytes | None:
        return await self.replica.store.get(self._owner, f"{stream} {place}")

    def start(self, copy: "StreamCopy") -> None:
        """Writes what a copy has to write, in the background."""
        if self.is_closed:
            return
        task = asyncio.get_running_loop().create_task(copy.write())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Returns when everything is written; what comes later is not."""
        self.is_closed = True
        await self.finish()

    async def finish(self) -> None:
        """Returns when everything is written."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))


class StreamCopy:
    """Copies one stream as it runs. What the store does not take can only be resumed at this replica."""

    __slots__ = ("_account", "_copies", "_end", "_is_writing", "_stream", "_unwritten")

    def __init__(self, copies: StreamCopies, stream: str, account: str) -> None:
        """`stream` is the name of the stream, with its session."""
        self._copies = copies
        self._stream = stream
        self._account = account
        # One for each place, and the last, which goes with the end: a slow store gets no event whose place is taken.
        self._unwritten: deque[CopiedEvent] = deque(maxlen=copies.places + 1)
        self._end: int | None = None
        self._is_writing = False

    async def begin(self, request: RequestId) -> None:
        """Stores what the stream responds to, so that all replicas know of it before the client does."""
        try:
            await self._put("start", StreamStart(msgspec.json.encode(request)))
        except StoreError as error:
            logger.debug("a stream cannot be resumed at other replicas: %s", error)

    def add(self, number: int, event: bytes) -> None:
        """Copies an event."""
        self._unwritten.append(CopiedEvent(number, event))
        self._write_soon()

    def end(self, number: int) -> None:
        """Copies the end of the stream, whose last event has this number."""
        self._end = number
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._copies.start(self)

    async def write(self) -> None:
        """Writes what is not written yet."""
        try:
            while self._unwritten and (self._end is None or len(self._unwritten) > 1):
                event = self._unwritten.popleft()
                await self._put(str(event.number % self._copies.places), event)
            if self._end is not None:
                last = self._unwritten.pop() if self._unwritten else None
                await self._put("end", StreamEnd(self._end, None if last is None else last.event))
        except StoreError as error:
            logger.debug("a stream cannot be resumed at other replicas: %s", error)
        finally:
            self._is_writing = False

    async def _put(self, place: str, entry: Struct) -> None:
        await self._copies.put(self._stream, place, entry, self._account)
