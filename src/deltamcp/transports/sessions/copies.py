"""Copies of event streams in the store, so that a client can resume a stream at another replica than the one it ran at.

A stream's events have as many places in the store as the stream has stored events, and each event takes the place of
the one that many before it. One entry more says what the stream responds to, and another how it ended.
"""

import asyncio
import logging
from collections import deque

import msgspec
from msgspec import Struct

from deltamcp.limits import Limits
from deltamcp.replicas.replica import Replica
from deltamcp.stores.store import StoreError
from deltamcp.values import RequestId

logger = logging.getLogger("deltamcp.http")


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
        self.places = limits.replay_events
        self._owner = f"{replica.server} stream"
        self._seconds = limits.session_idle_seconds
        self.is_closed = False
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
