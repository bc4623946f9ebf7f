"""A stream that runs at another replica, or ran at one: its events come from the copies in the store."""

import asyncio
from collections.abc import Callable

from deltamcp.stores.store import StoreError
from deltamcp.transports.sessions.copies import StreamCopies
from deltamcp.transports.sessions.streams import EventStream
from deltamcp.values import RequestId
from deltamcp.wire import sse

_MIN_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 1.0
"""How often the store is asked for new events; the longer there are none, the less often."""
_MAX_UNSENT = 16
"""The events that are read ahead of a slow client."""


class RelayedStream(EventStream):
    """Reads the events of a stream after a number. If the replica that ran it is dead, an error is the last one."""

    __slots__ = ("_copies", "_error", "_events", "_is_over", "_name", "_next", "_replica_id", "_task")

    def __init__(
        self, id_: str, session: str, after: int, copies: StreamCopies, error: Callable[[RequestId], bytes]
    ) -> None:
        """`error` returns the response to a request whose replica is dead."""
        super().__init__(id_)
        self._copies = copies
        self._name = f"{session} {id_}"
        self._replica_id = id_.partition("-")[0]
        self._next = after + 1
        self._error = error
        self._is_over = False
        self._events: list[tuple[int, bytes]] = []
        self._task: asyncio.Task[None] | None = None

    async def exists(self) -> bool:
        """Whether there are events to read, or there will be.

        Raises:
            StoreError: the store does not answer.
        """
        if await self._copies.read_request(self._name) is not None or await self._copies.read_end(self._name):
            return True
        return self._replica_id != self._copies.replica.id and await self._copies.replica.is_alive(self._replica_id)

    def start(self) -> None:
        """Reads events from now on."""
        self._task = asyncio.get_running_loop().create_task(self._read())

    def stop(self) -> None:
        """Reads no further events."""
        if self._task is not None:
            self._task.cancel()

    def _store(self, event: bytes) -> bool:
        raise AssertionError("another replica adds the events")

    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        events, self._events = self._events, []
        return events

    async def _read(self) -> None:
        pause = _MIN_PAUSE_SECONDS
        while not self.ended:
            try:
                is_new = len(self._events) < _MAX_UNSENT and await self._read_next()
            except StoreError:
                is_new = False
            pause = _MIN_PAUSE_SECONDS if is_new else min(1.5 * pause, _MAX_PAUSE_SECONDS)
            if not is_new:
                await asyncio.sleep(pause)

    async def _read_next(self) -> bool:
        """Reads the next event or the end; returns False if there is none yet."""
        found = await self._copies.read_event(self._name, self._next)
        if found is not None and found.number == self._next:
            self._push(found.event)
            return True
        if found is not None and found.number > self._next:
            self._next = max(self._next + 1, found.number - self._copies.places + 1)  # those between are forgotten
            return True
        # Asked first, because a replica may write the end and stop between the two questions.
        is_alive = await self._copies.replica.is_alive(self._replica_id)
        end = await self._copies.read_end(self._name)
        if end is not None:
            if end.number > self._next:
                if self._is_over:
                    self._next = max(self._next + 1, end.number - self._copies.places + 1)
                self._is_over = True  # events may have been written since they were looked for
                return True
            if end.number == self._next and end.event is not None:
                self._push(end.event)
            self.end()
            return True
        if not is_alive:
            await self._push_error()
            return True
        return False

    async def _push_error(self) -> None:
        request = await self._copies.read_request(self._name)
        if request is not None:
            self._push(sse.encode_event(self._error(request), self.event_id(self._next)))
        self.end()

    def _push(self, event: bytes) -> None:
        self._events.append((self._next, event))
        self._next += 1
        if self.follower is not None:
            self.follower.wake()
