"""The streams of a session that replicas share: that of changes, which may move between them, and relayed ones."""

import asyncio
from collections.abc import Callable, Collection

from deltamcp.dialects.dialect import SessionDialect
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import LIST_CHANGED, Change, OwnChange, Position
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.stores.store import StoreError
from deltamcp.transports.sessions.records import StreamCopies
from deltamcp.transports.sessions.streams import EventStream, SubscriptionStream
from deltamcp.values import JSON, Kind, Principal, RequestId
from deltamcp.wire import frames

_PREFIX = "changes-"
_WATCH_BYTES = 500
"""The memory of a watched resource beside the characters of its URI, in a gateway also for the subscription that it
has there."""


def watched_bytes(uris: Collection[str]) -> int:
    """Returns what counts for an account that watches resources."""
    return sum(map(len, uris)) + _WATCH_BYTES * len(uris)


class ChangeStream(SubscriptionStream):
    """Sends a session's client the changes after a position in the log; it is a `Listener` of the hub."""

    __slots__ = (
        "_dialect",
        "_kinds",
        "_unsent",
        "_watched",
        "_watched_bytes",
        "_watched_quota",
        "heard",
        "number",
        "position",
        "principal",
    )

    def __init__(
        self,
        limits: Limits,
        quotas: HttpQuotas,
        account: str,
        dialect: SessionDialect,
        kinds: Collection[Kind],
        principal: Principal,
    ) -> None:
        """
        Args:
            kinds: The lists that the server has.
            principal: Whose session it is.
        """
        super().__init__(limits, quotas.responses, account)
        self.id: str = "changes"
        self.principal: Principal = principal
        self.number: int = 0
        """Which of the session's streams of this kind it is; a client listens to the newest one."""
        self.position: Position = (0, 0)
        """The position of the newest event; what is not after it is not sent."""
        self.heard: Position = (0, 0)
        """The position of the newest event that was sent to a follower."""
        self._unsent: list[tuple[int, Position]] = []
        self._dialect = dialect
        self._kinds = kinds
        self._watched: set[str] = set()
        self._watched_bytes = 0
        self._watched_quota = quotas.watched

    def watch(self, uris: set[str]) -> bool:
        """Sets the resources that the client watches; returns False if they are too many for its account."""
        size = watched_bytes(uris)
        self._release_watched()
        if size and not self._watched_quota.take(self._account, size):
            return False
        self._watched, self._watched_bytes = uris, size
        return True

    def _release_watched(self) -> None:
        if self._watched_bytes:
            self._watched_quota.give_back(self._account, self._watched_bytes)
        self._watched, self._watched_bytes = set(), 0

    def leave(self) -> None:
        """Forgets what was not sent, and gives back what counted for the account."""
        self._note_sent()
        self.forget()
        self._release_watched()

    def wants(self, change: Kind | str) -> bool:
        return change in (self._kinds if isinstance(change, Kind) else self._watched)

    def watched_uris(self) -> Collection[str]:
        return self._watched

    def notify(self, method: str, params: dict[str, JSON], position: Position | None = None) -> None:
        if position is None or position < self.position or (position == self.position and position[1] >= 0):
            return
        self.position = position
        self.append(self._dialect.notify(method, params))
        self._unsent.append((self._count, position))

    def notify_of(self, change: Change, position: Position) -> None:
        """Sends a change, if the client wants it and may hear of it."""
        if isinstance(change, OwnChange):
            if change.owner != self.principal.owner:
                return
            change = change.change
        if self.wants(change):
            if isinstance(change, Kind):
                self.notify(LIST_CHANGED[change], {}, position)
            else:
                self.notify("notifications/resources/updated", {"uri": change}, position)

    def notify_of_all(self, number: int) -> None:
        """Sends everything that the client wants, because changes up to a number may have been missed."""
        self.position = (number, -1)
        for method in dict.fromkeys(LIST_CHANGED[kind] for kind in Kind if kind in self._kinds):
            self.notify(method, {}, (number, -1))
        for uri in sorted(self._watched):
            self.notify("notifications/resources/updated", {"uri": uri}, (number, -1))

    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        self._note_sent()
        return super().events_after(number)

    def _note_sent(self) -> None:
        while self._unsent and self._unsent[0][0] <= self.sent:
            _, self.heard = self._unsent.pop(0)

    def event_id(self, number: int) -> str:
        at, place = self.position
        # Who got one of these may have missed others, so their ids are no positions.
        return f"{_PREFIX}{at}.{place}" if place >= 0 else f"{_PREFIX}{at}.all{number}"


def read_position(event_id: str) -> Position | None:
    """Returns the position that an event id of a `ChangeStream` names."""
    number, _, place = event_id.removeprefix(_PREFIX).partition(".")
    if not event_id.startswith(_PREFIX) or not _is_number(number) or not _is_number(place):
        return None
    return int(number), int(place)


def is_change_event(event_id: str) -> bool:
    return event_id.startswith(_PREFIX)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


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
            self._push(frames.encode_event(self._error(request), self.event_id(self._next)))
        self.end()

    def _push(self, event: bytes) -> None:
        self._events.append((self._next, event))
        self._next += 1
        if self.follower is not None:
            self.follower.wake()
