"""Results kept whole, each under a handle of its caller's: for a while, in a store that replicas share."""

import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from deltamcp import tokens
from deltamcp.deltas.root import SHORT_DIGITS, digits
from deltamcp.errors import UnfitError
from deltamcp.limits import Limits
from deltamcp.results import document
from deltamcp.results.kept import Head, Kept, pack
from deltamcp.results.notes import Handle
from deltamcp.stores.store import Store, StoreError
from deltamcp.values import ANONYMOUS, JSON, LOCAL, Principal, ResourceLink
from deltamcp.wire import jsonrpc

_LETTERS = "23456789abcdefghjkmnpqrstvwxyz"
_OPEN_SECONDS = 10.0
"""How long an opened result is used without asking the store again; pages are turned in quick succession."""
_OPENED = 4
_NAME_TOKENS = 3
_REMEMBERED = "page"
_OPENED_BYTES = 64 * 1024 * 1024

T = TypeVar("T")
logger = logging.getLogger("deltamcp")


class Rooted(NamedTuple):
    """What a result is known by, all or the first digits; and the call that gave it."""

    root: str
    call: str
    is_part: bool = False
    """More is kept than it is the root of: others may have the same."""

    @property
    def place(self) -> str:
        return f"root {self.root[:SHORT_DIGITS]} {self.call}"


class Keeping:
    """The store as results use it."""

    def __init__(self, store: Store, limits: Limits, server: str, scheme: str, tool: str) -> None:
        """`server` is whose results they are, `tool` what reads on in one, `scheme` that of their addresses."""
        self._store = store
        self._lives = (limits.kept_seconds, limits.kept_seconds_in_all)
        self._open_seconds = min(_OPEN_SECONDS, limits.kept_seconds / 2, limits.kept_seconds_in_all / 2)
        self._server = server
        self._base = f"{scheme}://results/"
        self._tool = tool
        self._opened: OrderedDict[tuple[str, str], tuple[float, Kept]] = OrderedDict()

    async def keep(
        self,
        data: str | bytes,
        principal: Principal,
        make: Callable[[Handle | None], tuple[Head, T]],
        rooted: Rooted | None = None,
    ) -> tuple[Handle | None, T]:
        """Keeps a result, of which `make` shows a part by the handle it will have; `rooted` can be found again.

        No handle where it could not be kept: the call is done, and what fits of its result is better than nothing.
        """
        try:
            by_root = rooted is not None and not rooted.is_part and not self._is_shared(principal)
            for name in self._names_of(rooted.root) if rooted is not None and by_root else self._names(principal):
                handle = self.handle(name)
                head, shown = make(handle)  # once more in the rare case that the handle is taken
                packed = pack(head, data)
                if await self._store.add(self._owner(principal), name, packed, *self._lives):
                    if rooted is not None and not by_root:
                        await self.remember(rooted.place, name, principal)
                    return handle, shown
                if rooted is not None and by_root and await self._is_kept(name, rooted.root, principal):
                    await self._store.put(self._owner(principal), name, packed, *self._lives)
                    self._opened.pop((self._owner(principal), name), None)
                    return handle, shown
        except StoreError as error:
            logger.error("a result could not be kept, and is told in part: %s", error)
        return None, make(None)[1]

    async def _is_kept(self, name: str, root: str, principal: Principal) -> bool:
        try:
            return (await self.open(name, principal)).root == root
        except UnfitError:
            return False

    async def has(self, name: str, root: str, principal: Principal) -> bool:
        """Whether the result with this root is kept under this name."""
        with contextlib.suppress(StoreError):
            return await self._is_kept(name, root, principal)
        return False

    async def found(self, name: str, principal: Principal) -> Kept:
        """By its handle, or its root.

        Raises:
            UnfitError: nothing is kept under this handle, or not for this caller.
            StoreError: what is kept cannot be reached.
        """
        try:
            return await self.open(name, principal)
        except UnfitError:
            given = digits(name)
            found = None if given is None else await self.by_root(Rooted(given, ""), principal)
            if found is None:
                raise
            return found[1]

    async def by_root(self, rooted: Rooted, principal: Principal) -> tuple[Handle, Kept] | None:
        """The result with this root, or the one whose root begins so; None where none is kept.

        Where many callers are one, only one that the same call gave, and by no less of its root than is shown.
        """
        given = rooted.root
        names = [] if self._is_shared(principal) else list(self._names_of(given))
        if len(given) >= SHORT_DIGITS:
            found = await self.recalled(rooted.place, principal)
            names += [found] if isinstance(found, str) else []
        for name in names:
            with contextlib.suppress(UnfitError, StoreError):
                kept = await self.open(name, principal)
                if kept.root.startswith(given):
                    return self.handle(name), kept
        return None

    def handle(self, name: str) -> Handle:
        return Handle(name, self._tool, ResourceLink(f"{self._base}{name}", name))

    async def open(self, name: str, principal: Principal) -> Kept:
        """
        Raises:
            UnfitError: nothing is kept under this handle, or not for this caller.
            StoreError: what is kept cannot be reached.
        """
        key, now = (self._owner(principal), name), time.monotonic()
        for stale in [key for key, (until, _) in self._opened.items() if until <= now]:
            del self._opened[stale]
        if key in self._opened:
            self._opened.move_to_end(key)
            return self._opened[key][1]
        packed = await self._store.get(*key)
        try:
            kept = None if packed is None else Kept(packed)
        except msgspec.DecodeError:  # of another version of this program
            kept = None
        if kept is None:
            raise UnfitError(f"Nothing is kept under the handle {name[:40]!r} any more; call the tool again.")
        self._opened[key] = (now + self._open_seconds, kept)
        while len(self._opened) > 1 and (len(self._opened) > _OPENED or self._opened_bytes() > _OPENED_BYTES):
            self._opened.popitem(last=False)
        return kept

    def _opened_bytes(self) -> int:
        return sum(kept.size for _, kept in self._opened.values())

    def place(self, uri: str) -> tuple[str, str] | None:
        """The handle and the path an address names; None where it is no kept result's."""
        if not uri.startswith(self._base):
            return None
        name, slash, path = uri.removeprefix(self._base).partition("/")
        return name, slash + path

    async def remember(self, name: str, value: JSON, principal: Principal) -> None:
        """Keeps a value under a name of one's own, if it can be kept."""
        try:
            await self._store.put(self._owner(principal, _REMEMBERED), name, jsonrpc.encode(value), *self._lives)
        except StoreError as error:
            logger.error("what was sent is not remembered, and is made anew when asked for again: %s", error)

    async def forget(self, name: str, principal: Principal) -> None:
        """What is remembered under a name is not any more, if it can be reached."""
        try:
            await self._store.forget(self._owner(principal, _REMEMBERED), name)
        except StoreError as error:
            logger.error("what was sent may still be remembered: %s", error)

    async def recalled(self, name: str, principal: Principal) -> JSON | None:
        """What is remembered; None where nothing is."""
        data: bytes | None = None
        with contextlib.suppress(StoreError):
            data = await self._store.get(self._owner(principal, _REMEMBERED), name)
        return None if data is None else document.decode(data)

    def _owner(self, principal: Principal, what: str = "result") -> str:
        """Whose something is: servers that share a store, and callers of the same name by other doors, stay apart."""
        door = "local" if principal is LOCAL else "open" if principal is ANONYMOUS else "named"
        return f"{self._server}\0{what}\0{door}\0{principal.id}"

    def _names(self, principal: Principal) -> Iterator[str]:
        """Short where only its owner can look it up; where many are one, what nobody guesses (RB-66).

        Random even then: after a restart a handle from before must not name another result.
        """
        while True:
            if self._is_shared(principal):
                yield secrets.token_urlsafe(17)
            else:
                yield "R" + "".join(secrets.choice(_LETTERS) for _ in range(4))

    def _names_of(self, digits: str) -> Iterator[str]:
        """The same for a result with a root, of a caller who is alone: as short as two are told apart."""
        # Each digit may be a token; what a model is told to call it by should have no more than three.
        few = (digits[:size] for size in range(8, 5, -1) if tokens.count(f" {digits[:size]}") <= _NAME_TOKENS)
        yield next(few, digits[:5])
        yield digits[:SHORT_DIGITS]

    def _is_shared(self, principal: Principal) -> bool:
        return principal.id == ANONYMOUS.id or (principal is LOCAL and not self._store.private)
