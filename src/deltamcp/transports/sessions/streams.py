"""Event streams (SSE): their events, the connection that sends them, and events stored for clients that reconnect."""

import abc
import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.transports.sessions.records import StreamCopies, StreamCopy
from deltamcp.wire import frames

_SESSION_BYTES = 1024 * 1024
"""The events that one session stores; ten large results. A larger event cannot be sent again."""


class StreamFollower:
    """A connection that sends the events of a stream; it waits here for new events."""

    __slots__ = ("_future", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[bool] | None = None
        self._woken = False

    async def wait(self, seconds: float) -> bool:
        """Returns True when the stream has changed, False if it has not after `seconds`."""
        if self._woken:
            self._woken = False
            return True
        loop = asyncio.get_running_loop()
        # Not asyncio.wait_for, which makes a task for every wait: 2 kB for each idle stream.
        self._future = loop.create_future()
        timer = loop.call_later(seconds, self._set_result, False)
        try:
            return await self._future
        finally:
            timer.cancel()
            self._future = None

    def wake(self) -> None:
        """Makes `wait` return True, now or at its next call."""
        self._woken = not self._set_result(True)

    def _set_result(self, value: bool) -> bool:
        if self._future is None or self._future.done():
            return False
        self._future.set_result(value)
        return True


class EventStream(abc.ABC):
    """A sequence of events, which at most one connection follows."""

    __slots__ = ("_count", "ended", "follower", "id", "sent")

    def __init__(self, id_: str | None = None) -> None:
        self.id: str | None = id_
        self.ended: bool = False
        self.follower: StreamFollower | None = None
        self._count = 0
        self.sent: int = 0
        """The number of the newest event that was sent to a follower."""

    def event_id(self, number: int) -> str:
        return f"{self.id}.{number}"

    def append(self, message: bytes, instead: bytes | None = None) -> bytes:
        """Adds a message and returns its event. If the stream cannot store it, it stores the message `instead`."""
        self._count += 1
        event = self._encode(message)
        if not self._store(event) and instead is not None:
            self._store(self._encode(instead))
        if self.follower is not None:
            self.follower.wake()
        return event

    def _encode(self, message: bytes) -> bytes:
        return frames.encode_event(message, None if self.id is None else self.event_id(self._count))

    @abc.abstractmethod
    def _store(self, event: bytes) -> bool:
        """Stores the newest event; returns False if there is no room for it."""

    @abc.abstractmethod
    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        """Returns the stored events after a number."""

    def end(self) -> None:
        self.ended = True
        if self.follower is not None:
            self.follower.wake()

    def follow(self) -> StreamFollower:
        """Returns a new follower, which replaces the one before."""
        if self.follower is not None:
            self.follower.wake()
        self.follower = StreamFollower()
        return self.follower

    def unfollow(self, follower: StreamFollower) -> None:
        if self.follower is follower:
            self.follower = None


class SubscriptionStream(EventStream):
    """A stream whose events are forgotten once they are sent. It ends if its client reads too slowly."""

    __slots__ = ("_account", "_bytes", "_events", "_limits", "_quota")

    def __init__(self, limits: Limits, quota: Quota, account: str) -> None:
        super().__init__()
        self._limits = limits
        self._quota = quota
        self._account = account
        self._events: list[tuple[int, bytes]] | None = None
        self._bytes = 0

    def _store(self, event: bytes) -> bool:
        if self.ended:
            return False
        if self._events is None:
            self._events = []
        full = len(self._events) >= self._limits.replay_events or self._bytes + len(event) > self._limits.unsent_bytes
        if full or not self._quota.take(self._account, len(event)):
            self.ended = True
            return False
        self._bytes += len(event)
        self._events.append((self._count, event))
        return True

    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        events = self._events or []
        self.forget()
        return events

    def forget(self) -> None:
        """Forgets the events that were not sent."""
        self._events = None  # most streams are idle most of the time, and an empty list takes 60 bytes
        if self._bytes:
            self._quota.give_back(self._account, self._bytes)
            self._bytes = 0


class StoredStream(EventStream):
    """A stream of a session, which stores its newest events for a client that reconnects."""

    __slots__ = ("_events", "_session", "copy")

    def __init__(self, id_: str, session: "SessionStreams", copy: StreamCopy | None = None) -> None:
        super().__init__(id_)
        self._session = session
        self.copy: StreamCopy | None = copy
        """The copy for other replicas, if the session has any."""
        self._events: deque[tuple[int, bytes]] | None = None

    def _store(self, event: bytes) -> bool:
        if not self._session.make_room(self, len(event)):
            return False
        if self._events is None:
            self._events = deque()
        self._events.append((self._count, event))
        if len(self._events) > self._session.limits.replay_events:
            self.forget_oldest()
        if self.copy is not None:
            self.copy.add(self._count, event)
        return True

    def end(self) -> None:
        if self.copy is not None and not self.ended:
            self.copy.end(self._count)
        super().end()

    def forget_oldest(self) -> bool:
        """Forgets the oldest stored event; returns False if there is none."""
        if not self._events:
            return False
        self._session.release(len(self._events.popleft()[1]))
        return True

    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        return [event for event in self._events or () if event[0] > number]


def _do_nothing() -> None:
    return None


class FollowedStream(NamedTuple):
    """A stream whose events are the response to an HTTP request, starting after the event `after`."""

    stream: EventStream
    after: int
    primed: bool = False
    """Whether the response begins with an empty event, by whose id the client can reconnect."""
    close: Callable[[], None] = _do_nothing
    """Ends a stream that does not end by itself."""
    on_leave: Callable[[], None] = _do_nothing
    """Called when the response ends."""


class SessionStreams:
    """The event streams of one handshake session, and the bytes that it stores of them."""

    __slots__ = (
        "_account",
        "_bytes",
        "_copies",
        "_opened",
        "_quota",
        "_session",
        "_streams",
        "is_closed",
        "limits",
        "standalone",
    )

    def __init__(
        self, limits: Limits, quota: Quota, account: str, copies: StreamCopies | None = None, session: str = ""
    ) -> None:
        """Streams that respond to requests are copied to `copies`, under the id of the session, if there are any."""
        self.limits: Limits = limits
        self.is_closed: bool = False
        """Whether the session has ended; a stream that opens later stores nothing."""
        self._quota = quota
        self._account = account
        self._streams: dict[str, StoredStream] | None = None
        self._copies = copies
        self._session = session
        self._opened = 0
        self._bytes = 0
        self.standalone: StoredStream | None = None
        """The GET stream; None until the client opens it."""

    def open(self) -> StoredStream:
        """Opens a stream for the response to one request, and forgets the oldest finished ones above the limit."""
        if self._streams is None:
            self._streams = {}
        finished = [stream for stream in self._streams.values() if stream.ended]
        for stream in finished[: max(0, len(finished) - self.limits.replay_streams + 1)]:
            self._forget(stream)
        self._opened += 1
        id_ = str(self._opened) if self._copies is None else self._copies.replica.next_id()
        copy = None if self._copies is None else StreamCopy(self._copies, f"{self._session} {id_}", self._account)
        opened = StoredStream(id_, self, copy)
        if not self.is_closed:
            self._streams[id_] = opened
        return opened

    def open_standalone(self) -> StoredStream:
        if self.standalone is None or self.standalone.ended:
            self.standalone = self.open()
        return self.standalone

    def resume(self, event_id: str) -> tuple[StoredStream, int] | None:
        """Returns the stream of an event and the event's number; None if the stream is forgotten."""
        event = read_event_id(event_id)
        stream = None if event is None else (self._streams or {}).get(event[0])
        return None if event is None or stream is None else (stream, event[1])

    def make_room(self, stream: StoredStream, size: int) -> bool:
        """Makes room for an event of a stream: forgets first finished streams, then older events of the stream."""
        if self._streams is None or stream.id not in self._streams or size > _SESSION_BYTES:
            return False
        while self._bytes + size > _SESSION_BYTES or not self._quota.take(self._account, size):
            finished = next((one for one in self._streams.values() if one.ended), None)
            if finished is not None:
                self._forget(finished)
            elif not stream.forget_oldest():
                return False
        self._bytes += size
        return True

    def release(self, size: int) -> None:
        """Gives back the room of an event that is forgotten."""
        self._bytes -= size
        self._quota.give_back(self._account, size)

    def _forget(self, stream: StoredStream) -> None:
        if self._streams is not None:
            self._streams.pop(str(stream.id), None)
        while stream.forget_oldest():
            pass

    def close(self) -> None:
        """Ends the streams and forgets what is stored of them."""
        self.is_closed = True
        for stream in tuple((self._streams or {}).values()):
            stream.end()
            self._forget(stream)


def read_event_id(event_id: str) -> tuple[str, int] | None:
    """Returns the id of an event's stream and the event's number; None if it is no event id."""
    stream, _, number = event_id.rpartition(".")
    return (stream, int(number)) if number.isascii() and number.isdigit() and len(number) < 16 else None
