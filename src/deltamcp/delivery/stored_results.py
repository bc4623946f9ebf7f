"""Whole results in the store, each under a handle that only its caller can use; and those that outlive the process."""

import asyncio
import contextlib
import functools
import hashlib
import hmac
import logging
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.deltas.root import SHORT_DIGITS, root_digits
from deltamcp.errors import MissingScopesError, UsageError
from deltamcp.limits import Limits
from deltamcp.results.shown_result import StoredHeader
from deltamcp.results.stored_result import StoredResult, pack_result
from deltamcp.results.window import Handle
from deltamcp.runtime.files import add_own_file, make_own_folder, read_own_file, user_folder
from deltamcp.runtime.seal import KEY_BYTES, Seal
from deltamcp.stores.store import Quotas, Store, StoreError, StoreFullError, StoreUnreachableError
from deltamcp.values import ANONYMOUS, LOCAL, Caller, ResourceLink

if TYPE_CHECKING:
    from deltamcp.stores.circuit_breaker import CircuitBreaker


KEPT_SECONDS = 3600.0
_SWEEP_SECONDS = 60.0
"""How often a process deletes what has expired, of its own and of others."""


class KeptResults:
    """Keeps sealed results for an hour, for processes of the same user and of the same identity.

    The results are in the user's folder for caches, which backups leave out, and the key that seals them in that for
    state. What opens them is made of that key and the identity, so that no other identity opens them by mistake.
    """

    def __init__(self, identity: bytes, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            identity: Says for whom the results are, such as a digest of a configuration and a folder.

        Raises:
            ConfigurationError: the user has no home.
        """
        self._identity = hashlib.sha256(identity).hexdigest()
        self._limits = limits
        self._clock = clock
        self._path = user_folder("cache") / "results" / "results.sqlite"
        self._key_path = user_folder("state") / "results.key"

    async def add(self, name: str, packed: bytes) -> bool:
        """Keeps a result under a name; returns False if there is one of this name.

        Raises:
            StoreError: it cannot be kept; also the other methods.
        """
        sealed = await asyncio.to_thread(self._close, name, packed)
        return await self._store.add(self._identity, name, sealed, KEPT_SECONDS, KEPT_SECONDS, self._identity)

    async def replace(self, name: str, packed: bytes) -> None:
        """Keeps a result in place of another one."""
        sealed = await asyncio.to_thread(self._close, name, packed)
        await self._store.put(self._identity, name, sealed, KEPT_SECONDS, KEPT_SECONDS, self._identity)

    async def get(self, name: str) -> bytes | None:
        """Returns the result under a name; None if there is none, or if it was sealed with another key."""
        if not self._path.exists():
            return None
        sealed = await self._store.get(self._identity, name)
        return None if sealed is None else await asyncio.to_thread(self._open, name, sealed)

    async def delete(self, name: str) -> None:
        await self._store.delete(self._identity, name)

    @contextlib.asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """Deletes what has expired, whosever it is, now and every minute in the `with` block."""

        async def sweep() -> None:
            while True:
                if self._path.exists():
                    with contextlib.suppress(StoreError):
                        await self._store.get(self._identity, "")  # the store sweeps before it looks
                await asyncio.sleep(_SWEEP_SECONDS)

        task = asyncio.create_task(sweep())
        try:
            yield
        finally:
            task.cancel()

    async def close(self) -> None:
        if "_store" in vars(self):
            await self._store.close()

    @functools.cached_property
    def _store(self) -> "CircuitBreaker":
        from deltamcp.stores.circuit_breaker import CircuitBreaker
        from deltamcp.stores.sqlite import SqliteStore

        try:
            make_own_folder(self._path.parent)
        except OSError as error:
            raise StoreError(f"{self._path.parent} cannot be made: {error.strerror}.") from None
        quotas = Quotas(self._limits.stored_bytes, self._limits.stored_bytes_per_account)
        return CircuitBreaker(
            SqliteStore(self._path, quotas, self._limits.store_seconds, self._clock), self._limits.store_seconds
        )

    def _close(self, name: str, packed: bytes) -> bytes:
        return self._seal.close_bytes(packed, name.encode())

    def _open(self, name: str, sealed: bytes) -> bytes | None:
        return self._seal.open_bytes(sealed, name.encode(errors="surrogatepass"))

    @functools.cached_property
    def _seal(self) -> Seal:
        """
        Raises:
            StoreError: there is no key, and none can be made, or it is another user's.
        """
        key = read_own_file(self._key_path, KEY_BYTES)
        if not key:
            try:
                add_own_file(self._key_path, os.urandom(KEY_BYTES))
            except OSError as error:
                raise StoreError(f"The key at {self._key_path} cannot be made: {error.strerror}.") from None
            key = read_own_file(self._key_path, KEY_BYTES)
        if key is None or len(key) < KEY_BYTES:
            raise StoreError(f"The key at {self._key_path} is damaged, or another user's; delete it.")
        return Seal([hmac.digest(key, self._identity.encode(), "sha256")], KEPT_SECONDS)


_SHORT_LETTERS = ("23456789abcdefghjkmnpqrstvwxyz",) * 4
_GROUP = (ascii_lowercase,) * 2 + (digits,) * 3
_HANDLE_TOKENS = 3
_PRINCIPAL_GROUPS = 4
"""The groups in a handle of a principal, 77 bits. Another token of the same principal could try 2^11 a second for half
an hour, 2^11 s, on 2^14 results, as many as an account can store: it finds one with a probability of 2^-41.

A group is two letters and three digits, 19 bits in two tokens; as many bits take 2.2 tokens in letters or in digits
alone, 3 in hexadecimal digits."""
_SHARED_GROUPS = 7
"""The groups in a handle of callers that cannot be told apart, 135 bits: for these it is all that keeps others out."""
_OPEN_SECONDS = 10.0
"""How long an opened result is used before it is read from the store again; clients read pages in quick succession."""
_OPEN_RESULTS = 16
_OPEN_RESULTS_PER_ACCOUNT = 4
_OPEN_BYTES = 48 * 1024 * 1024
"""The memory of opened results with the views of them, one result apart; further ones are read from the store again."""
_OPEN_BYTES_PER_ACCOUNT = 24 * 1024 * 1024
_FULL_LOG_SECONDS = 60.0
_NOTES = "page"
"""The part of a store key that marks data remembered beside results."""

logger: logging.Logger = logging.getLogger("deltamcp")


class ResultOrigin(NamedTuple):
    """What returned a result, and the scopes that a caller needs for it: also to read the result later."""

    name: str
    scopes: frozenset[str]


UNSCOPED = ResultOrigin("", frozenset())
"""The origin of what needs no scopes."""


class ResultRoot(NamedTuple):
    """The root of a result, or its first digits, and the digest of the call that returned the result."""

    root: str
    call: str
    is_partial: bool = False
    """Whether the root covers only some fields of the stored result, so that other results may have the same root."""

    def note_names(self, caller: Caller) -> list[str]:
        """Returns the names of the stored values that may have the result's handle, for `find_by_root`."""
        name = f"root {self.root[:SHORT_DIGITS]} "
        return [name + self.call] if caller.shares_handles or not self.call else [name, name + self.call]

    def note_name(self, caller: Caller) -> str:
        """Returns the name of the stored value that has the result's handle."""
        return self.note_names(caller)[-1 if self.is_partial else 0]


class _OpenedResult(NamedTuple):
    result: StoredResult
    account: str
    until: float

    @property
    def bytes(self) -> int:
        return self.result.size + self.result.view_bytes


class ResultPlace(Struct):
    """Where a result is to be stored: for whom, under which handle, and by what root it can be found again."""

    caller: Caller
    owner: str
    account: str
    """Whose the result is in the store, and for whom it counts there."""
    lifetimes: tuple[float, float]
    """How long the result stays unread, and how long in any case."""
    origin: ResultOrigin
    root: ResultRoot | None
    is_named_by_root: bool
    names: Iterator[str]
    """Further names, in case that the handle's is taken."""
    handle: Handle | None
    """The handle that the reply may say; None if the result cannot be stored."""


class StorageWatcher(Protocol):
    """Is told of the results that a process stores. Its methods must not block."""

    def note_stored(
        self, name: str, origin: str, caller: Caller, size: int, is_cut: bool, lifetimes: tuple[float, float]
    ) -> None:
        """Handles that a result was stored: whether because it was cut, or for changes to be sent of it later.

        `lifetimes` are the seconds for which it stays unread, and in any case.
        """
        ...

    def note_read(self, name: str) -> None:
        """Handles that a result was read from the store, which prolongs its life."""
        ...


class StoredResults:
    """Stores results under handles, and finds them by handle, by root or by URI."""

    def __init__(self, store: Store, limits: Limits, server: str, scheme: str, tool: str) -> None:
        """
        Args:
            server: The name of the server that owns the results.
            scheme: The scheme of the results' URIs.
            tool: The name of the tool that returns further parts of a result.
        """
        self._store = store
        self._lifetimes = (limits.kept_seconds, limits.kept_seconds_in_all)
        self._open_seconds = min(_OPEN_SECONDS, limits.kept_seconds / 2, limits.kept_seconds_in_all / 2)
        self._server = server
        self._base_uri = f"{scheme}://results/"
        self._tool = tool
        self._opened: OrderedDict[tuple[str, str], _OpenedResult] = OrderedDict()
        self._next_full_log = 0.0
        self._kept: KeptResults | None = None
        self._lost_advice = ""
        self.watcher: StorageWatcher | None = None
        """Is told of what is stored and read; mostly there is none."""

    def keep(self, kept: KeptResults | None, lost_advice: str) -> None:
        """Keeps results of the local user in `kept` too, where they outlive this process.

        `lost_advice` is a sentence for the local user who asks for a result that is lost.
        """
        self._kept, self._lost_advice = kept, lost_advice

    @property
    def idle_seconds(self) -> float:
        """The time after which a stored result that nobody reads is deleted."""
        return self._lifetimes[0]

    def place(self, caller: Caller, origin: ResultOrigin, root: ResultRoot | None = None) -> ResultPlace:
        """Returns a place for a result, with a handle that is most likely free."""
        owner, is_short = self._owner(caller), caller.has_short_handles
        is_named_by_root = root is not None and not root.is_partial and is_short
        names = _random_names(is_short, caller.shares_handles)
        if root is not None and is_named_by_root:
            names = self._root_names(root.root)
        account, lifetimes = self._account(caller), self._lifetimes_for(caller)
        handle = self.handle(next(names))
        return ResultPlace(caller, owner, account, lifetimes, origin, root, is_named_by_root, names, handle)

    async def put(self, place: ResultPlace, head: StoredHeader, data: str | bytes) -> bool:
        """Stores a result, and returns whether a reply is right that says the handle of the place, or has none.

        It is not in the rare case that the handle is taken, nor where the store fails: the place then has another
        handle or none. The function has run, so its caller gets at least the part that fits.
        """
        if place.handle is None:
            return True
        head = replace(head, origin=place.origin.name, scopes=tuple(sorted(place.origin.scopes)))
        try:
            if await self._add(place, place.handle.name, head, data):
                return True
            name = next(place.names, None)
            place.handle = None if name is None else self.handle(name)
        except StoreError as error:
            self._log_failure("a result could not be stored, so its caller gets only a part: %s", error)
            place.handle = None
        return False

    async def store(
        self,
        head: StoredHeader,
        data: str | bytes,
        caller: Caller,
        origin: ResultOrigin,
        root: ResultRoot | None = None,
    ) -> Handle | None:
        """Stores a result whose reply does not depend on its handle, and returns that; None if the store fails."""
        place = self.place(caller, origin, root)
        while not await self.put(place, head, data):
            pass
        return place.handle

    async def _add(self, place: ResultPlace, name: str, head: StoredHeader, data: str | bytes) -> bool:
        """Stores a result under a name; returns False if that is the name of another one.

        Raises:
            StoreError: it cannot be stored.
        """
        caller, owner, root = place.caller, place.owner, place.root
        kept = self._kept if caller.principal is LOCAL and not head.is_shown_whole else None
        if kept is not None and not await self._keep(kept, name, head, data):
            return False
        packed = pack_result(head, data)
        if await self._store.add(owner, name, packed, *place.lifetimes, place.account):
            if root is not None and not place.is_named_by_root:
                await self.remember(root.note_name(caller), name.encode(), caller)
            self._opened.pop((owner, name), None)
            if self.watcher is not None:
                is_cut = root is None or head.is_part
                self.watcher.note_stored(name, place.origin.name, caller, len(packed), is_cut, place.lifetimes)
            return True
        if root is not None and place.is_named_by_root and await self._holds(name, root.root, caller):
            await self._store.put(owner, name, packed, *place.lifetimes, place.account)
            self._opened.pop((owner, name), None)
            return True
        if kept is not None:
            await kept.delete(name)
        return False

    async def _keep(self, kept: KeptResults, name: str, head: StoredHeader, data: str | bytes) -> bool:
        """Has a result outlive this process; returns False if the name is that of another one.

        It is kept without its root: a later process has sent nobody what a delta of it would need.
        """
        packed = pack_result(replace(head, root="", deltas=0), data)
        try:
            if await kept.add(name, packed):
                return True
            found = await kept.get(name)
            if found is None or _data(found) != _data(packed):
                return False
            await kept.replace(name, packed)
        except StoreError as error:
            self._log_failure("a result is lost when this process ends: %s", error)
        return True

    async def _peek(self, name: str, caller: Caller) -> StoredResult | None:
        """Returns the result under a name, whether the caller may read it or not, and does not keep it open."""
        key = (self._owner(caller), name)
        return self._opened[key].result if key in self._opened else await self._load(*key)

    async def _holds(self, name: str, root: str, caller: Caller) -> bool:
        found = await self._peek(name, caller)
        return found is not None and found.header.root == root

    async def contains(self, name: str, root: str, caller: Caller) -> bool:
        """Whether the result with this root is stored under this name, and the caller may read it."""
        with contextlib.suppress(StoreError):
            found = await self._peek(name, caller)
            return found is not None and found.header.root == root and found.scopes <= caller.principal.scopes
        return False

    async def find(self, name: str, caller: Caller) -> StoredResult:
        """Returns a result by its handle, or by its root.

        Who lacks scopes for the result of a root is told that there is none: roots of likely results can be guessed.

        Raises:
            UsageError: nothing is stored under this handle, or not for this caller.
            MissingScopesError: the caller lacks scopes of the operation that returned the result.
            StoreError: the store cannot be reached.
        """
        try:
            return await self.open(name, caller)
        except UsageError:
            digits = root_digits(name)
            found = None if digits is None else await self.find_by_root(ResultRoot(digits, ""), caller)
            if found is None:
                raise
            return found[1]

    async def find_by_root(self, root: ResultRoot, caller: Caller) -> tuple[Handle, StoredResult] | None:
        """Returns the result with this root, or whose root begins with these digits; None if none is stored.

        It is also None for a caller that may not read the result. A caller that shares handles finds only results of
        the same call; only the local user needs less than `SHORT_DIGITS` digits.
        """
        digits = root.root
        names = list(self._root_names(digits)) if caller.has_short_handles else []
        if len(digits) >= SHORT_DIGITS:
            noted = [await self.recall(note, caller) for note in root.note_names(caller)]
            names += [name.decode() for name in noted if name is not None]
        for name in names:
            with contextlib.suppress(UsageError, MissingScopesError, StoreError):
                stored = await self.open(name, caller)
                if stored.header.root.startswith(digits):
                    return self.handle(name), stored
        return None

    def handle(self, name: str) -> Handle:
        return Handle(name, self._tool, ResourceLink(f"{self._base_uri}{name}", name))

    async def open(self, name: str, caller: Caller) -> StoredResult:
        """Returns the result under a handle.

        Raises:
            UsageError: nothing is stored under this handle, or not for this caller.
            MissingScopesError: the caller lacks scopes of the operation that returned the result.
            StoreError: the store cannot be reached.
        """
        key, now, account = (self._owner(caller), name), time.monotonic(), self._account(caller)
        for stale in [key for key, opened in self._opened.items() if opened.until <= now]:
            del self._opened[stale]
        if key not in self._opened:
            found = await self._load(*key) or await self._load_kept(name, caller)
            if found is None:
                raise self._nothing_kept(name, caller)
            self._opened[key] = _OpenedResult(found, account, now + self._open_seconds)
        self._opened.move_to_end(key)
        opened = self._opened[key].result
        self._close_excess(account)
        missing = opened.scopes - caller.principal.scopes
        if missing:
            # To a caller that nobody vouches for, what it may not call does not exist.
            raise (
                MissingScopesError(opened.header.origin, missing)
                if caller.principal.is_authenticated
                else self._nothing_kept(name, caller)
            )
        return opened

    async def _load(self, owner: str, name: str) -> StoredResult | None:
        if self.watcher is not None:
            self.watcher.note_read(name)
        return _read(await self._store.get(owner, name))

    async def _load_kept(self, name: str, caller: Caller) -> StoredResult | None:
        """Returns a result of an earlier process, which has no root."""
        if self._kept is None or caller.principal is not LOCAL:
            return None
        try:
            return _read(await self._kept.get(name))
        except StoreError as error:
            self._log_failure("a result of an earlier process cannot be read: %s", error)
            return None

    def _nothing_kept(self, name: str, caller: Caller) -> UsageError:
        lost = f"Nothing is kept under the handle {name[:40]!r} any more; call the tool again."
        return UsageError(f"{lost} {self._lost_advice}" if self._lost_advice and caller.principal is LOCAL else lost)

    def _close_excess(self, account: str) -> None:
        """Closes the results that were unused for longest: first those of an account above its share, then any.

        The result that was opened last stays open.
        """
        own = {key: opened.bytes for key, opened in self._opened.items() if opened.account == account}
        for key in list(own)[:-1]:
            if len(own) <= _OPEN_RESULTS_PER_ACCOUNT and sum(own.values()) <= _OPEN_BYTES_PER_ACCOUNT:
                break
            del self._opened[key], own[key]
        while len(self._opened) > 1 and (len(self._opened) > _OPEN_RESULTS or self._opened_bytes() > _OPEN_BYTES):
            self._opened.popitem(last=False)

    def _opened_bytes(self) -> int:
        return sum(opened.bytes for opened in self._opened.values())

    def parse_uri(self, uri: str) -> tuple[str, str] | None:
        """Returns the handle and the path that a URI names; None if it is not the URI of a stored result."""
        if not uri.startswith(self._base_uri):
            return None
        name, slash, path = uri.removeprefix(self._base_uri).partition("/")
        return name, slash + path

    # Data remembered beside results

    async def remember(self, name: str, data: bytes, caller: Caller) -> None:
        """Stores data under a name of its own, if the store can be reached and has room."""
        owner = self._owner(caller, _NOTES)
        try:
            await self._store.put(owner, name, data, *self._lifetimes_for(caller), self._account(caller))
        except StoreError as error:
            self._log_failure("a reply could not be recorded, so later replies may repeat it: %s", error)

    async def recall(self, name: str, caller: Caller) -> bytes | None:
        """Returns remembered data; None if there is none."""
        with contextlib.suppress(StoreError):
            return await self._store.get(self._owner(caller, _NOTES), name)
        return None

    def _owner(self, caller: Caller, kind: str = "result") -> str:
        """Returns the store's owner of a caller's entries.

        It differs between servers that share a store, and between a principal named "local" and the local one.
        """
        principal = caller.principal
        origin = "local" if principal is LOCAL else "open" if principal is ANONYMOUS else "named"
        return f"{self._server}\0{kind}\0{origin}\0{principal.key}"

    def _lifetimes_for(self, caller: Caller) -> tuple[float, float]:
        """Returns how long an entry stays unread, and how long in any case."""
        idle, in_all = self._lifetimes
        return max(idle, caller.result_seconds), max(in_all, caller.result_seconds)

    def _account(self, caller: Caller) -> str:
        """Returns the store's account of a caller, which differs between servers that share a store."""
        return f"{self._server}\0{caller.account}"

    def _log_failure(self, message: str, error: StoreError) -> None:
        """Logs that something was not stored: a full store once a minute, as every call may find it full.

        That a store cannot be reached the circuit breaker logs itself.
        """
        is_news = not isinstance(error, StoreUnreachableError)
        if isinstance(error, StoreFullError):
            now = time.monotonic()
            is_news = now >= self._next_full_log
            self._next_full_log = now + _FULL_LOG_SECONDS if is_news else self._next_full_log
        logger.log(logging.ERROR if is_news else logging.DEBUG, message, error)

    def _root_names(self, digits: str) -> Iterator[str]:
        """Returns names for a result of the local user: a short one, then a longer one."""
        # Each digit may be a token; a model should have to repeat no more than three.
        cheap = (digits[:size] for size in range(8, 5, -1) if tokens.count(f" {digits[:size]}") <= _HANDLE_TOKENS)
        yield next(cheap, digits[:5])
        yield digits[:SHORT_DIGITS]


def _random_names(is_short: bool, is_shared: bool) -> Iterator[str]:
    """Returns random names: short ones for the local user, else names that nobody can guess.

    Those of callers that cannot be told apart are longer.

    Short names are random too, so that after a restart an old handle does not name another result.
    """
    groups = _SHARED_GROUPS if is_shared else _PRINCIPAL_GROUPS
    while True:
        yield f"R{_random_text(_SHORT_LETTERS)}" if is_short else _random_text(_GROUP * groups)


def _random_text(alphabets: Sequence[str]) -> str:
    """Returns a random text with a character of each alphabet; one number is drawn for all, which takes a third."""
    number = secrets.randbelow(math.prod(map(len, alphabets)))
    text = ""
    for alphabet in alphabets:
        number, place = divmod(number, len(alphabet))
        text += alphabet[place]
    return text


def _read(packed: bytes | None) -> StoredResult | None:
    try:
        return None if packed is None else StoredResult(packed)
    except msgspec.DecodeError:  # written by another version of this program
        return None


def _data(packed: bytes) -> memoryview:
    """Returns a packed result without its header."""
    return memoryview(packed)[4 + int.from_bytes(packed[:4]) :]
