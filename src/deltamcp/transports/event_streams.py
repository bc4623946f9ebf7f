"""Event streams (SSE): their events, the connection that sends them, and events stored for clients that reconnect."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from deltamcp.limits import Limits
from deltamcp.wire import sse


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


class EventStream:
    """A sequence of events. A stream with an id stores the newest events for a client that reconnects."""

    __slots__ = ("_count", "_events", "_limit", "ended", "follower", "id", "sent")

    def __init__(self, id_: str | None, limits: Limits) -> None:
        self.id = id_
        self.ended = False
        self.follower: StreamFollower | None = None
        self._limit = limits.replay_events
        self._events: deque[tuple[int, bytes]] | None = None
        self._count = 0
        self.sent = 0
        """The number of the newest event that was sent to a follower."""

    def event_id(self, number: int) -> str:
        return f"{self.id}.{number}"

    def append(self, message: bytes) -> bytes:
        """Adds a message and returns its event. A stream without an id ends if its client reads too slowly."""
        self._count += 1
        event = sse.encode_event(message, None if self.id is None else self.event_id(self._count))
        if self._events is None:
            self._events = deque(maxlen=self._limit if self.id is not None else None)
        self._events.append((self._count, event))
        if self.id is None and len(self._events) > self._limit:
            self.ended = True
        if self.follower is not None:
            self.follower.wake()
        return event

    def end(self) -> None:
        self.ended = True
        if self.follower is not None:
            self.follower.wake()

    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        """Returns the events after a number; a stream without an id then forgets them."""
        events = [event for event in self._events or () if event[0] > number]
        if self.id is None:
            self._events = None  # most streams are idle most of the time, and an empty deque takes 600 bytes
        return events

    def follow(self) -> StreamFollower:
        """Returns a new follower, which replaces the one before."""
        if self.follower is not None:
            self.follower.wake()
        self.follower = StreamFollower()
        return self.follower

    def unfollow(self, follower: StreamFollower) -> None:
        if self.follower is follower:
            self.follower = None


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
    """The event streams of one handshake session."""

    __slots__ = ("_limits", "_opened", "_streams", "standalone")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: dict[str, EventStream] | None = None
        self._opened = 0
        self.standalone: EventStream | None = None
        """The GET stream; None until the client opens it."""

    @property
    def is_followed(self) -> bool:
        return self._streams is not None and any(stream.follower for stream in self._streams.values())

    def open(self) -> EventStream:
        """Opens a stream for the response to one request, and forgets the oldest finished ones above the limit."""
        if self._streams is None:
            self._streams = {}
        finished = [stream for stream in self._streams.values() if stream.ended]
        for stream in finished[: max(0, len(finished) - self._limits.replay_streams + 1)]:
            del self._streams[str(stream.id)]
        self._opened += 1
        stream = self._streams[str(self._opened)] = EventStream(str(self._opened), self._limits)
        return stream

    def open_standalone(self) -> EventStream:
        if self.standalone is None or self.standalone.ended:
            self.standalone = self.open()
        return self.standalone

    def resume(self, event_id: str) -> tuple[EventStream, int] | None:
        """Returns the stream of an event and the event's number; None if the stream is forgotten."""
        name, _, number = event_id.rpartition(".")
        stream = (self._streams or {}).get(name)
        if stream is None or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        return stream, int(number)

    def end(self) -> None:
        for stream in (self._streams or {}).values():
            stream.end()
