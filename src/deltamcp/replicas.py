"""What the replicas of a server share through its store: who is alive, messages to all, and the log of changes.

An entry is what changed within a moment. Entries have numbers without gaps, because a replica adds the next one under
the first number that nobody has. The numbers go on from the clock, so that they do not start anew if the store loses
its data.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from deltamcp.runtime.change_hub import LAST, Change, ChangeHub, OwnChange, Position, positions
from deltamcp.stores.store import SharedStore, StoreError
from deltamcp.values import Kind, RequestId


class ResponseStored(Struct, frozen=True, tag="response"):
    """The client has answered a request that a replica sent in a session; the answer is in the store."""

    session: str
    request: str


class RequestCancelled(Struct, frozen=True, tag="cancelled"):
    """The client has cancelled a request of a session."""

    session: str
    request: RequestId


class SessionChanged(Struct, frozen=True, tag="changed"):
    """The record of a session has changed."""

    session: str


class SessionEnded(Struct, frozen=True, tag="ended"):
    """The client has ended a session."""

    session: str


class StreamMoved(Struct, frozen=True, tag="moved"):
    """The client has opened a new stream for messages outside requests; those with a lower number end."""

    session: str
    number: int


class ChangesMade(Struct, frozen=True, tag="changes"):
    """Lists or resources have changed. The log has this message under its number."""

    number: int
    kinds: list[Kind]
    uris: list[str]
    everything: bool = False
    """Whether there were too many to list."""
    own_kinds: list[tuple[str, Kind]] = []
    """Lists that have changed for one principal, each after its owner."""
    own_uris: list[tuple[str, str]] = []

    @property
    def changes(self) -> list[Change]:
        own_kinds, own_uris = (OwnChange(*one) for one in self.own_kinds), (OwnChange(*one) for one in self.own_uris)
        return [*self.kinds, *self.uris, *own_kinds, *own_uris]


class PromiseChanged(Struct, frozen=True, tag="promise"):
    """The record of a promise has changed."""

    key: str
    revision: int


SessionMessage: TypeAlias = ResponseStored | RequestCancelled | SessionChanged | SessionEnded | StreamMoved
ReplicaMessage: TypeAlias = SessionMessage | ChangesMade | PromiseChanged

# Not MessagePack, whose integers have 64 bits: the id of a request may have more.
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ReplicaMessage] = msgspec.json.Decoder(ReplicaMessage)


def encode(message: ReplicaMessage) -> bytes:
    return _encoder.encode(message)


def decode(message: bytes) -> ReplicaMessage | None:
    """Returns a message; None if it is of another version of this library."""
    try:
        return _decoder.decode(message)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def raise_if_cancelled() -> None:
    """Ends a loop that was cancelled while it waited for the store.

    redis-py 8.1 loses a cancellation that comes while it connects: what it was asked for is done all the same.

    Raises:
        CancelledError: the current task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


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

logger: logging.Logger = logging.getLogger("deltamcp")


class ChangeLog:
    """Adds this replica's changes to the log, and passes those of all replicas to the hub in their order."""

    def __init__(
        self, store: SharedStore, server: str, hub: ChangeHub, publish: Callable[[ReplicaMessage], Awaitable[None]]
    ) -> None:
        self.number: int = 0
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
            data = encode(entry)
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
        entry = None if data is None else decode(data)
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


_ALIVE_SECONDS = 15.0
"""How long a replica that gives no sign of life counts as alive."""
_SIGN_SECONDS = 5.0
_LAST_SECONDS = 30.0
"""How long a replica that closes waits for what it still does; its worker ends in less."""
_CHECK_SECONDS = 0.1


Receive = Callable[[SessionMessage | None], Awaitable[None]]
"""Takes a message of any replica, this one included; None where messages may have been missed."""
ReceivePromise = Callable[[PromiseChanged | None], None]
"""Takes the key of a promise whose record has changed; None where messages may have been missed."""


class Replica:
    """Sends messages to all replicas of a server that use the same store, and receives theirs."""

    def __init__(self, store: SharedStore, server: str, hub: ChangeHub) -> None:
        self.id: str = secrets.token_hex(8)
        """Different for each process and each start of it."""
        self.server = server
        """The name of the server, which its entries in the store and its channel have."""
        self.store = store
        self.changes: ChangeLog = ChangeLog(store, server, hub, self.publish)
        hub.relay = self.changes.add
        self._owner = f"{server} replicas"
        self._receivers: list[Receive] = []
        self._promise_receivers: list[ReceivePromise] = []
        self._busy_checks: list[Callable[[], bool]] = []
        self._sent = 0

    def add_receiver(self, receive: Receive) -> None:
        """Passes the messages about sessions to `receive` from now on."""
        self._receivers.append(receive)

    def add_promise_receiver(self, receive: ReceivePromise) -> None:
        """Passes the messages about promises to `receive` from now on."""
        self._promise_receivers.append(receive)

    def add_busy_check(self, is_busy: Callable[[], bool]) -> None:
        """Counts as alive when the server closes, for as long as `is_busy` says that it still has work of others."""
        self._busy_checks.append(is_busy)

    def next_id(self) -> str:
        """Returns an id that no other replica makes and that tells which one made it."""
        self._sent += 1
        return f"{self.id}-{self._sent}"

    async def publish(self, message: ReplicaMessage) -> None:
        """Sends a message to all replicas, this one included.

        Raises:
            StoreError: the store did not take it.
        """
        await self.store.publish(self.server, encode(message))

    async def is_alive(self, replica: str) -> bool:
        """Whether a replica has given a sign of life lately."""
        return replica == self.id or await self.store.get(self._owner, replica) is not None

    async def run(self) -> None:
        """Receives messages and gives signs of life, as long as the server runs."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._give_signs, self._receive, self.changes.write):
                tasks.create_task(_repeat(work))

    async def _give_signs(self) -> None:
        try:
            while True:
                with contextlib.suppress(Exception):  # the circuit breaker logs what is wrong with the store
                    await self._sign()
                raise_if_cancelled()
                await asyncio.sleep(_SIGN_SECONDS)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Says that this replica is gone, once it has ended what others would take over."""
        clock = asyncio.get_running_loop().time
        ends = clock() + _LAST_SECONDS
        next_sign = clock()
        with contextlib.suppress(StoreError):
            while any(is_busy() for is_busy in self._busy_checks) and clock() < ends:
                if clock() >= next_sign:
                    next_sign = clock() + _SIGN_SECONDS
                    await self._sign()
                await asyncio.sleep(_CHECK_SECONDS)
            await self.store.delete(self._owner, self.id)

    async def _sign(self) -> None:
        await self.store.put(self._owner, self.id, b"", _ALIVE_SECONDS, _ALIVE_SECONDS, self._owner)

    async def _receive(self) -> None:
        async with contextlib.aclosing(self.store.subscribe(self.server)) as received:
            async for data in received:
                message = None if data is None else decode(data)
                if data is not None and message is None:
                    continue
                try:
                    await self._pass_on(message)
                except Exception as error:  # one message must not keep this replica from the next
                    logger.warning("a message of another replica was not served: %s", error)
                raise_if_cancelled()

    async def _pass_on(self, message: ReplicaMessage | None) -> None:
        if isinstance(message, ChangesMade):
            await self.changes.receive(message)
            return
        if message is None or isinstance(message, PromiseChanged):
            for receive_promise in self._promise_receivers:
                receive_promise(message)
        if not isinstance(message, PromiseChanged):
            for receive in self._receivers:
                await receive(message)
        if message is None:
            await self.changes.catch_up()


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    """Begins anew what an error has ended: the other replicas would take this one for dead, and its calls for lost."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception("this replica was cut off from the others; it tries again")
        await asyncio.sleep(_SIGN_SECONDS)
