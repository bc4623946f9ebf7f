"""Promises in the store that replicas share: their records, their calls, their outcomes; and waiting for changes.

Nobody polls for one promise. Whoever waits for it has a `PromiseWatch` in the table of its process, and a change wakes
the watches: a change by this process directly, one by another by a message between replicas. A message can be lost, so
that a watch also looks by itself every few seconds.
"""

import asyncio
import contextlib
import hashlib
import logging
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from deltamcp.limits import Limits
from deltamcp.promises import record
from deltamcp.promises.record import PromisedCall, PromiseRecord, decode_call, decode_outcome
from deltamcp.replicas import PromiseChanged, Replica
from deltamcp.stores.store import SharedStore, StoreError, StoreFullError, hash_key
from deltamcp.values import Outcome

_BACKSTOP_SECONDS = 5.0
"""How often a watch looks at its record although nothing was heard of it."""


class PromiseWatch:
    """Waits for changes of one record. It misses none from its beginning on."""

    def __init__(self, key: str, read: Callable[[str], Awaitable[PromiseRecord | None]]) -> None:
        self._key = key
        self._read = read
        self._known: PromiseRecord | None = None
        self._is_stale = True
        self._woken = asyncio.Event()
        self.is_stopped: bool = False
        """Whether nobody should wait any longer."""

    def stop(self) -> None:
        """Ends the wait for a change."""
        self.is_stopped = True
        self._woken.set()

    def wake(self, changed: PromiseRecord | None) -> None:
        """Says that the record has changed, and to what; None if only the store knows."""
        if changed is None:
            self._is_stale = True
        elif self._known is None or changed.revision > self._known.revision:
            self._known, self._is_stale = changed, False
        self._woken.set()

    @property
    def known(self) -> PromiseRecord | None:
        """The record as far as this process knows; None if it may be outdated."""
        return None if self._is_stale else self._known

    def is_behind(self, revision: int) -> bool:
        """Whether it has yet to hear of a revision."""
        return self._known is None or self._known.revision < revision

    async def read(self) -> PromiseRecord | None:
        """Returns the record as it is now; None if there is none."""
        if self._is_stale:
            self._is_stale = False
            try:
                found = await self._read(self._key)
            except BaseException:
                self._is_stale = True
                raise
            if found is None or self.is_behind(found.revision):
                self._known = found
        return self._known

    async def next(self, revision: int, seconds: float) -> PromiseRecord | None:
        """Returns the record once it is newer than `revision`, or, after so many seconds or a stop, as it is then.

        Raises:
            StoreError: the store cannot be read.
        """
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        while True:
            self._woken.clear()
            found = await self.read()
            left = ends - clock()
            if found is None or found.revision > revision or left <= 0 or self.is_stopped:
                return found
            try:
                async with asyncio.timeout(min(left, _BACKSTOP_SECONDS)):
                    await self._woken.wait()
            except TimeoutError:
                self._is_stale = True


_MAX_PLACES_TRIED = 32
_MIN_SECONDS = 1.0
_MAX_RECENT = 64
_MAX_UNENDED = 10_000
_RECENT_BYTES = 64 * 1024

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("deltamcp")


class PromiseQueue(Protocol):
    """Carries calls behind promises to workers, by keys alone."""

    @property
    def lost_seconds(self) -> float:
        """After how long a key that nobody runs may be lost, so that whoever asks for its call queues it again."""

    async def enqueue(self, key: str) -> None:
        """Has some worker call `PromiseCalls.run(key)` soon. A key that is queued already is queued once."""


class Update(NamedTuple):
    """What came of an attempt to change a record."""

    record: PromiseRecord
    """The record after the change, or as it was found."""
    is_changed: bool


class PromiseName(msgspec.Struct, frozen=True):
    """What a client's name for a call stands for."""

    call: str
    """The digest of the tool and its arguments."""
    salt: bytes
    token: bytes
    """The token, which only those who know the name can read."""


class RecentValues(Generic[T]):
    """The last few small values that this process has stored, which it need not read again."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, T] = OrderedDict()

    def add(self, name: str, value: T, size: int) -> None:
        if size <= _RECENT_BYTES:
            self._values[name] = value
            if len(self._values) > _MAX_RECENT:
                self._values.popitem(last=False)

    def get(self, name: str) -> T | None:
        return self._values.get(name)

    def delete(self, name: str) -> None:
        self._values.pop(name, None)


class PromiseStore:
    """Creates, reads and changes promises. Every method may raise `StoreError`."""

    def __init__(
        self,
        store: SharedStore,
        server: str,
        limits: Limits,
        replica: Replica | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            server: The name of the server, which its entries in the store have.
            replica: This process among the replicas; None if the store is this process's alone.
            clock: The time in seconds since 1970.
        """
        self.clock = clock
        self.worker: str = secrets.token_hex(8) if replica is None else replica.id
        """The name of this process in the records of the calls that it runs."""
        self._store = store
        self._server = server
        self._owner = f"{server} promises"
        self._limits = limits
        self._replica = replica
        self.unended: dict[str, PromiseRecord] = {}
        """The promises of this process whose calls have not ended, as far as it knows, by their keys."""
        self._watches: dict[str, set[PromiseWatch]] = {}
        self._recent_calls: RecentValues[PromisedCall] = RecentValues()
        self._recent_outcomes: RecentValues[Outcome] = RecentValues()
        if replica is not None:
            replica.add_promise_receiver(self._receive)

    async def is_alive(self, worker: str) -> bool:
        """Whether the process that has a run may still be at it."""
        return worker == self.worker or (self._replica is not None and await self._replica.is_alive(worker))

    def add_busy_check(self, is_busy: Callable[[], bool]) -> None:
        """Has other replicas take this process for alive while it closes, for as long as `is_busy` says so."""
        if self._replica is not None:
            self._replica.add_busy_check(is_busy)

    # Records

    async def create(
        self, key: str, new: PromiseRecord, call: PromisedCall, data: bytes, idle_seconds: float
    ) -> PromiseRecord | None:
        """Stores a new promise with its call and returns the record; None if its account has too many.

        Args:
            data: The encoded call.
            idle_seconds: How long the call stays after it was last read.
        """
        seconds = new.latest_expiry - self.clock()
        idle_seconds = max(idle_seconds, new.expires_at - self.clock())
        count = self._limits.promises_per_account
        for place in random.sample(range(count), min(count, _MAX_PLACES_TRIED)):
            name = str(place)
            if await self._store.add(
                self._place_owner(new), name, data, idle_seconds, seconds, self._account("promised calls", new)
            ):
                new = replace(new, place=name)
                try:
                    stored = await self._store.add(
                        self._owner, key, record.encode(new), *self._lifetimes(new), self._record_account(key, new)
                    )
                except StoreFullError:
                    await self.delete_call(key, new)
                    raise
                assert stored, "130 random bits do not occur twice"
                self._recent_calls.add(key, call, len(data))
                self._note(key, new)
                return new
        return None

    async def read(self, key: str) -> PromiseRecord | None:
        """Returns a record, also an expired one; None if there is none."""
        data = await self._store.get(self._owner, key)
        return None if data is None else record.decode(data)

    async def update(
        self, key: str, change: Callable[[PromiseRecord], PromiseRecord | None], is_news: bool = True
    ) -> Update | None:
        """Changes a record by a function of it, which returns the next record or None; returns None if there is none.

        The function may be called several times. `is_news` says whether others wait for such a change.
        """
        known = next((watch.known for watch in self._watches.get(key, ()) if watch.known is not None), None)
        if known is not None:
            update = await self._try(key, known, record.encode(known), change, is_news)
            if update is not None and update.is_changed:
                return update
        while True:
            data = await self._store.get(self._owner, key)
            found = None if data is None else record.decode(data)
            if data is None or found is None:
                return None
            update = await self._try(key, found, data, change, is_news)
            if update is not None:
                return update

    async def _try(
        self,
        key: str,
        old: PromiseRecord,
        data: bytes,
        change: Callable[[PromiseRecord], PromiseRecord | None],
        is_news: bool,
    ) -> Update | None:
        """Changes a record that is stored as `data`; returns None if it is not."""
        new = change(old)
        if new is None:
            return Update(old, False)
        if new.status is not old.status:
            assert new.status in record.NEXT[old.status], f"{old.status} does not become {new.status}"
        new = replace(new, revision=old.revision + 1, updated_at=self.clock())
        if not await self._store.replace(
            self._owner, key, data, record.encode(new), *self._lifetimes(new), self._record_account(key, new)
        ):
            return None
        await self._tell(key, new, is_news)
        return Update(new, True)

    async def forget(self, key: str, ended: PromiseRecord) -> None:
        """Deletes a promise whose token nobody has."""
        self.unended.pop(key, None)
        await self._store.delete(self._owner, key)
        if ended.outcome:
            await self._store.delete(self._owner, _outcome_name(key, ended.outcome))

    # Calls and outcomes

    async def read_call(self, key: str, found: PromiseRecord) -> PromisedCall | None:
        """Returns the call of a promise; None if it is gone."""
        # Of a later run it is read from the store, where it then stays for another while.
        recent = self._recent_calls.get(key) if found.attempt == 1 else None
        if recent is not None:
            return recent
        data = await self._store.get(self._place_owner(found), found.place)
        call = None if data is None else decode_call(data)
        return call if call is not None and call.key == key else None

    async def delete_call(self, key: str, ended: PromiseRecord) -> None:
        """Deletes the call of a promise that has ended, which makes room for another one of its account."""
        self._recent_calls.delete(key)
        await self._store.delete(self._place_owner(ended), ended.place)

    async def put_outcome(self, key: str, running: PromiseRecord, outcome: Outcome, data: bytes) -> str:
        """Stores an outcome, and returns the name for the record: two workers may believe that a run is theirs.

        `data` is the encoded outcome.
        """
        name = secrets.token_hex(8)
        seconds = max(_MIN_SECONDS, running.expires_at - self.clock(), self._limits.promise_result_seconds)
        account = self._account("ended promises", running)
        await self._store.put(self._owner, _outcome_name(key, name), data, seconds, seconds, account)
        self._recent_outcomes.add(name, outcome, len(data))
        return name

    async def read_outcome(self, key: str, ended: PromiseRecord) -> Outcome | None:
        """Returns the outcome of a call that has ended; None if it is gone.

        Raises:
            ValueError: another version of this library wrote it.
        """
        recent = self._recent_outcomes.get(ended.outcome)
        if recent is not None:
            return recent
        data = await self._store.get(self._owner, _outcome_name(key, ended.outcome))
        return None if data is None else decode_outcome(data)

    # Names that clients give to calls

    async def find_name(self, owner: str, name: str) -> tuple[str, str] | None:
        """Returns the token and the digest of the call that a client has named so; None if it has not."""
        data = await self._store.get(f"{self._owner} by name", hash_key(owner, name))
        if data is None:
            return None
        found = msgspec.json.decode(data, type=PromiseName)
        return _mask(found.token, found.salt, owner, name).decode(), found.call

    async def add_name(self, owner: str, name: str, token: str, call: str, new: PromiseRecord) -> bool:
        """Remembers which promise a client has named so; False if the name is taken."""
        salt = secrets.token_bytes(16)
        data = msgspec.json.encode(PromiseName(call, salt, _mask(token.encode(), salt, owner, name)))
        seconds = new.latest_expiry - self.clock()
        account = self._account("promise names", new)
        return await self._store.add(f"{self._owner} by name", hash_key(owner, name), data, seconds, seconds, account)

    async def delete_name(self, owner: str, name: str) -> None:
        """Forgets which promise a client has named so, because its call will not run."""
        await self._store.delete(f"{self._owner} by name", hash_key(owner, name))

    # Watching

    @contextlib.contextmanager
    def watching(self, key: str) -> Iterator[PromiseWatch]:
        """Watches a record inside the `with` block."""
        watch = PromiseWatch(key, self.read)
        self._watches.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            watches = self._watches[key]
            watches.discard(watch)
            if not watches:
                del self._watches[key]

    def _note(self, key: str, changed: PromiseRecord) -> None:
        self.unended.pop(key, None)
        if not changed.status.is_final:
            self.unended[key] = changed
            if len(self.unended) > _MAX_UNENDED:
                del self.unended[next(iter(self.unended))]

    async def _tell(self, key: str, changed: PromiseRecord, is_news: bool) -> None:
        self._note(key, changed)
        for watch in self._watches.get(key, ()):
            watch.wake(changed)
        if is_news and self._replica is not None:
            try:
                await self._replica.publish(PromiseChanged(key, changed.revision))
            except StoreError as error:
                logger.debug("other replicas learn of a change when they look: %s", error)

    def _receive(self, message: PromiseChanged | None) -> None:
        if message is None:
            for watches in self._watches.values():
                for watch in watches:
                    watch.wake(None)
            return
        for watch in self._watches.get(message.key, ()):
            if watch.is_behind(message.revision):
                watch.wake(None)

    # Entries

    def _lifetimes(self, current: PromiseRecord) -> tuple[float, float]:
        seconds = max(_MIN_SECONDS, current.expires_at - self.clock()) + self._limits.promise_total_seconds
        return seconds, seconds

    def _place_owner(self, current: PromiseRecord) -> str:
        return f"{self._server} promised calls, {current.account}"

    def _record_account(self, key: str, current: PromiseRecord) -> str:
        """Until it has ended, a promise has an account of its own, so that nothing displaces it."""
        if current.status.is_final:
            return self._account("ended promises", current)
        return f"{self._server} promise {key}"

    def _account(self, kind: str, current: PromiseRecord) -> str:
        return f"{self._server} {kind}, {current.account}"


def _outcome_name(key: str, name: str) -> str:
    return f"{key} outcome {name}"


def _mask(token: bytes, salt: bytes, owner: str, name: str) -> bytes:
    """Masks a token, or unmasks it: whoever reads the store does not know the name that the client gave."""
    pad = hashlib.sha256(salt + f"{owner}\0{name}".encode(errors="surrogatepass")).digest()
    return bytes(byte ^ mask for byte, mask in zip(token, pad, strict=False))
