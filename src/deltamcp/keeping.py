"""Results kept whole, each under a handle of its caller's: for a while, in a store that replicas share."""

import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from deltamcp.errors import UnfitError
from deltamcp.limits import Limits
from deltamcp.results import document
from deltamcp.results.kept import Head, Kept, pack
from deltamcp.results.notes import Handle
from deltamcp.stores.store import Store, StoreError
from deltamcp.values import ANONYMOUS, JSON, Principal, ResourceLink
from deltamcp.wire import jsonrpc

_LETTERS = "23456789abcdefghjkmnpqrstvwxyz"
_OPEN_SECONDS = 20.0
"""Half of it an opened result is used without asking the store again; pages are turned in quick succession."""
_OPENED = 4
_OPENED_BYTES = 64 * 1024 * 1024

T = TypeVar("T")
logger = logging.getLogger("deltamcp")


class Keeping:
    """The store as results use it."""

    def __init__(self, store: Store, limits: Limits, scheme: str, tool: str) -> None:
        """`tool` is what reads on in a kept result, `scheme` that of their addresses."""
        self._store = store
        self._lives = (limits.kept_seconds, limits.kept_seconds_in_all)
        self._open_seconds = min(_OPEN_SECONDS, *self._lives) / 2
        self._base = f"{scheme}://results/"
        self._tool = tool
        self._opened: OrderedDict[tuple[str, str], tuple[float, Kept]] = OrderedDict()

    async def keep(
        self, data: str | bytes, principal: Principal, make: Callable[[Handle | None], tuple[Head, T]]
    ) -> tuple[Handle | None, T]:
        """Keeps a result, of which `make` shows a part by the handle it will have.

        No handle where it could not be kept: the call is done, and what fits of its result is better than nothing.
        """
        while True:
            handle = self.handle(_name(principal))
            head, shown = make(handle)
            try:
                if await self._store.add(principal.id, handle.name, pack(head, data), *self._lives):
                    return handle, shown
            except StoreError as error:
                logger.error("a result could not be kept, and is told in part: %s", error)
                return None, make(None)[1]

    def handle(self, name: str) -> Handle:
        return Handle(name, self._tool, ResourceLink(f"{self._base}{name}", name))

    async def open(self, name: str, principal: Principal) -> Kept:
        """
        Raises:
            UnfitError: nothing is kept under this handle, or not for this caller.
            StoreError: what is kept cannot be reached.
        """
        key, now = (principal.id, name), time.monotonic()
        until, kept = self._opened.get(key, (0.0, None))
        if kept is not None and until > now:
            self._opened.move_to_end(key)
            return kept
        packed = await self._store.get(principal.id, name)
        if packed is None:
            self._opened.pop(key, None)
            raise UnfitError(f"Nothing is kept under the handle {name[:40]!r} any more; call the tool again.")
        kept = Kept(packed)
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
        with contextlib.suppress(StoreError):
            await self._store.put(principal.id, name, jsonrpc.encode(value), *self._lives)

    async def recalled(self, name: str, principal: Principal) -> JSON | None:
        """What is remembered; None where nothing is."""
        data: bytes | None = None
        with contextlib.suppress(StoreError):
            data = await self._store.get(principal.id, name)
        return None if data is None else document.decode(data)


def _name(principal: Principal) -> str:
    """Short where it is looked up under a principal; where everyone is the same, what nobody guesses (RB-66).

    Random even then: after a restart a handle from before must not name another result.
    """
    if principal == ANONYMOUS:
        return secrets.token_urlsafe(17)
    return "R" + "".join(secrets.choice(_LETTERS) for _ in range(4))
