"""Records of what the server sent to each caller: the last result of every call, and all rows and symbols."""

import asyncio
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from deltamcp.delivery.stored_results import StoredResults
from deltamcp.deltas.root import ALGORITHM, root_of
from deltamcp.results.dedup import MAX_REMEMBERED_ROWS
from deltamcp.values import JSON, Caller

if TYPE_CHECKING:
    from deltamcp.gcf import Session

_RECORDED_CALLS = 10_000
"""The number of calls whose last reply's time is recorded, and of callers whose last reset is."""
_SESSIONS = 1_000
"""The number of conversations whose symbols are recorded; a new one replaces the one that was unused for longest."""


class CallKey(NamedTuple):
    """Identifies the same call of the same caller, which the server answers with the changes since the last reply."""

    caller: Caller
    digest: str
    """The digest of the tool and its arguments."""
    is_safe: bool = True
    """Whether the caller can repeat the call without side effects."""

    @property
    def owner(self) -> tuple[str, str]:
        """The principal and the conversation."""
        return self.caller.principal.id, self.caller.conversation or ""

    @property
    def record(self) -> tuple[str, str, str]:
        return *self.owner, self.digest

    def note_name(self, name: str) -> str:
        """Returns the name of a stored value that belongs to the caller's conversation."""
        return f"{self.caller.conversation or ''} {name}"


def call_digest(call: list[JSON]) -> str:
    """Returns the digest of a tool and its arguments; the order of arguments does not matter."""
    return root_of(call).removeprefix(ALGORITHM)[:32]


class RowLocation(NamedTuple):
    """The location of a row that the server sent: `handle/path`, and the root of the stored result."""

    address: str
    root: str


class LastSent(Struct, frozen=True):
    """The result that the server last sent to a caller for a call."""

    root: str
    deltas: int = 0
    """The number of deltas since the result was sent whole."""
    is_part: bool = False
    """Whether the caller was shown only a part of the result."""
    era: str = ""
    """A random text that changes with every reset; a record of an earlier era is void."""


class SentResults:
    """Records in the store what the server sent, so that replicas share it.

    Symbols are recorded in this process only, because each replica assigns its own ids.
    """

    def __init__(self, stored: StoredResults) -> None:
        self._stored = stored
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._times: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._eras: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def last_sent(self, call: CallKey) -> LastSent | None:
        """Returns the last result that the caller was sent for this call; None if none is recorded."""
        found = await self._recall(call, call.digest)
        try:
            sent = None if found is None else msgspec.convert(found, LastSent)
        except msgspec.ValidationError:  # written by another version of this program
            return None
        return sent if sent is not None and sent.era == await self._era(call) else None

    def is_overtaken(self, call: CallKey, since: float) -> bool:
        """Whether the server replied to the same call after this one began; the client may read them in any order."""
        return self._times.get(call.record, since) > since

    async def record(self, call: CallKey, root: str, deltas: int, is_part: bool = False) -> None:
        """Records the result that the caller was sent, and how many deltas it was sent since a whole result."""
        if call.caller.is_remembered:
            self._times[call.record] = time.monotonic()
            self._times.move_to_end(call.record)
            if len(self._times) > _RECORDED_CALLS:
                self._times.popitem(last=False)
            sent = LastSent(root, deltas, is_part, await self._era(call))
            await self._remember(call, call.digest, msgspec.to_builtins(sent))

    async def sent_rows(self, call: CallKey) -> dict[str, RowLocation]:
        """Returns the locations of the rows that the caller was sent, by digest, and of whole results, by root."""
        found = await self._recall(call, "rows")
        try:
            return {} if found is None else msgspec.convert(found, dict[str, RowLocation])
        except msgspec.ValidationError:  # written by another version of this program
            return {}

    async def record_rows(self, call: CallKey, places: dict[str, RowLocation]) -> None:
        if not call.caller.is_remembered:
            return
        known = await self.sent_rows(call)
        for digest in places:
            known.pop(digest, None)
        merged = {**known, **places}
        excess = len(merged) - MAX_REMEMBERED_ROWS
        newest = dict(list(merged.items())[excess:]) if excess > 0 else merged
        await self._remember(call, "rows", {digest: list(place) for digest, place in newest.items()})

    def sent_symbols(self, call: CallKey) -> "Session | None":
        """Returns the symbols that the caller knows; None if the caller has no conversation to record them for."""
        if call.caller.conversation is None:
            return None
        from deltamcp.gcf import Session

        known = self._sessions.get(call.owner)
        return Session() if known is None else known

    def record_symbols(self, call: CallKey, session: "Session") -> None:
        assert call.caller.conversation is not None, "sent_symbols gives a session only to a conversation"
        key = call.owner
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)

    def lock(self, call: CallKey) -> asyncio.Lock:
        """Returns the caller's lock, for code that reads what the caller was sent and then records more."""
        return self._locks.setdefault(call.owner, asyncio.Lock())

    async def reset(self, call: CallKey) -> None:
        """Forgets what the caller was sent, because the caller has lost it."""
        if not call.caller.is_remembered:
            return
        async with self.lock(call):
            era = secrets.token_hex(4)
            self._eras[call.owner] = era  # valid in this process even if the store cannot be reached
            if len(self._eras) > _RECORDED_CALLS:
                self._eras.popitem(last=False)
            await self._remember(call, "era", era)
            await self._stored.forget(call.note_name("rows"), call.caller)
            if call.caller.conversation is not None and call.owner in self._sessions:
                self._sessions[call.owner].reset()

    async def _era(self, call: CallKey) -> str:
        """Returns the caller's era, which differs after a reset by any process, and after the store lost it."""
        return f"{self._eras.get(call.owner, '')}{await self._recall(call, 'era') or ''}"

    async def _recall(self, call: CallKey, name: str) -> JSON | None:
        if not call.caller.is_remembered:
            return None
        return await self._stored.recall(call.note_name(name), call.caller)

    async def _remember(self, call: CallKey, name: str, value: JSON) -> None:
        await self._stored.remember(call.note_name(name), value, call.caller)
