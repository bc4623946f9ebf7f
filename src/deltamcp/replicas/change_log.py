"""The log of changes that the replicas of a server share, so that a client hears of each from whichever it listens to.

An entry is what changed within a moment. Entries have numbers without gaps, because a replica adds the next one under
the first number that nobody has. The numbers go on from the clock, so that they do not start anew if the store loses
its data.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from deltamcp.replicas import messages
from deltamcp.replicas.cancellation import raise_if_cancelled
from deltamcp.replicas.messages import ChangesMade, ReplicaMessage
from deltamcp.runtime.change_hub import LAST, Change, ChangeHub, OwnChange, Position, positions
from deltamcp.stores.store import SharedStore
from deltamcp.values import Kind

_ENTRY_SECONDS = 300.0
"""How long an entry can be read; a client that comes back later is told that everything may have changed."""
_NEWEST_SECONDS = 30 * 24 * 3600.0
_MAX_CHANGES = 100
"""The changes in one entry, which is one message to the other replicas."""
_MAX_WAITING = 10_000
"""The changes that wait for the store; where there are more, clients are told that everything may have changed."""
_PAUSE_SECONDS = 0.05
"""The time between two entries; what changes meanwhile goes into the next one."""
_RETRY_SECONDS = 1.0
_MAX_MISSED = 256
"""The entries that are read for a client that missed them; for more it is told that everything may have changed."""
_NEWEST = "newest"
_ACCOUNT = "changes"

logger = logging.getLogger("deltamcp")


class ChangeLog:
    """Adds this replica's changes to the log, and passes those of all replicas to the hub in their order."""

    def __init__(
        self, store: SharedStore, server: str, hub: ChangeHub, publish: Callable[[ReplicaMessage], Awaitable[None]]
    ) -> None:
        self.number = 0
        """The newest entry that the hub has delivered; 0 before the log was read."""
        self._store = store
        self._owner = f"{server} changes"
        self._hub = hub
        self._publish = publish
        self._waiting: dict[Change, None] = {}
        self._is_too_much = False
        self._is_waiting: asyncio.Event | None = None
        self._recent: OrderedDict[int, ChangesMade] = OrderedDict()

    # Changes of this replica

    def add(self, change: Change) -> None:
        """Adds a change to the log, soon."""
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.clear()
            self._is_too_much = True
        self._waiting[change] = None
        if self._is_waiting is not None:
            self._is_waiting.set()

    async def write(self) -> None:
        """Writes the changes that wait, as long as the server runs; those that the store did not take wait on."""
        self._is_waiting = asyncio.Event()
        while True:
            if not self._waiting:
                self._is_waiting.clear()
                await self._is_waiting.wait()
            changes, everything = list(self._waiting)[:_MAX_CHANGES], self._is_too_much
            try:
                await self._append(changes, everything)
            except Exception as error:
                logger.debug("changes wait for the store: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            for change in changes:
                self._waiting.pop(change, None)
            self._is_too_much = self._is_too_much and not everything
            raise_if_cancelled()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _append(self, changes: list[Change], everything: bool) -> None:
        own = [(one.owner, one.change) for one in changes if isinstance(one, OwnChange)]
        own_kinds = [(owner, change) for owner, change in own if isinstance(change, Kind)]
        own_uris = [(owner, change) for owner, change in own if not isinstance(change, Kind)]
        kinds = [change for change in changes if isinstance(change, Kind)]
        uris = [change for change in changes if isinstance(change, str)]
        number = self.number or await self._newest()
        while True:
            number += 1
            entry = ChangesMade(number, kinds, uris, everything, own_kinds, own_uris)
            data = messages.encode(entry)
            if await self._store.add(self._owner, str(number), data, _ENTRY_SECONDS, _ENTRY_SECONDS, _ACCOUNT):
                break
        await self._put_newest(number)
        await self._publish(entry)

    # The log

    async def receive(self, entry: ChangesMade) -> None:
        """Delivers an entry that a replica has published, after those before it."""
        if entry.number == self.number + 1:
            self._deliver(entry)
        elif entry.number > self.number:
            await self.catch_up()

    async def catch_up(self) -> None:
        """Delivers the entries that this replica has not heard of."""
        newest = await self._newest()
        if newest - self.number > _MAX_MISSED:
            self._deliver_all(newest)  # also where this replica reads the log for the first time
        while (entry := await self._read(self.number + 1)) is not None or self.number < newest:
            if entry is None:
                self._deliver_all(newest)  # at least one entry is forgotten
            else:
                self._deliver(entry)

    @property
    def position(self) -> Position:
        """The position after everything that the hub has delivered."""
        return self.number, LAST

    async def missed_since(self, position: Position) -> list[tuple[Position, Change]] | None:
        """Returns the delivered changes after a position; None if the log does not have all of them any more."""
        first, place = position
        if self.number - first > _MAX_MISSED:
            return None
        missed: list[tuple[Position, Change]] = []
        number = first + 1 if place >= LAST else first
        while number <= self.number:
            entry = self._recent.get(number) or await self._read(number)
            if entry is None or entry.everything:
                return None
            missed.extend(found for found in positions(number, entry.changes) if found[0] > position)
            number += 1
        return missed

    def _deliver(self, entry: ChangesMade) -> None:
        if entry.everything:
            self._deliver_all(entry.number)
            return
        self.number = entry.number
        self._recent[entry.number] = entry
        if len(self._recent) > _MAX_MISSED:
            self._recent.popitem(last=False)
        self._hub.deliver(entry.number, entry.changes)

    def _deliver_all(self, number: int) -> None:
        self.number = number
        self._recent.clear()
        self._hub.deliver_all(number)

    async def _read(self, number: int) -> ChangesMade | None:
        data = await self._store.get(self._owner, str(number))
        entry = None if data is None else messages.decode(data)
        return entry if isinstance(entry, ChangesMade) else None

    async def _newest(self) -> int:
        """Returns the newest number, or one before it: two replicas may write it in the wrong order."""
        data = await self._store.get(self._owner, _NEWEST)
        if data is None:
            first = b"%d" % (time.time() * 1000)
            await self._store.add(self._owner, _NEWEST, first, _NEWEST_SECONDS, _NEWEST_SECONDS, _ACCOUNT)
            data = await self._store.get(self._owner, _NEWEST) or first
        return int(data)

    async def _put_newest(self, number: int) -> None:
        await self._store.put(self._owner, _NEWEST, b"%d" % number, _NEWEST_SECONDS, _NEWEST_SECONDS, _ACCOUNT)
