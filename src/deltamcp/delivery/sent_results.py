"""What the server sent each caller: the last result of every call, the rows and symbols of all of them."""

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
"""Calls whose last reply's time is known, and callers whose last reset is."""
_SESSIONS = 1_000
"""Conversations whose symbols are remembered at once; of a further one the oldest is forgotten."""


class CallKey(NamedTuple):
    """Whose call, and which one: the server answers the same call again by what changed."""

    caller: Caller
    digest: str
    """Of the tool and its arguments."""
    is_safe: bool = True
    """Whether the call can be made again without changing anything."""

    @property
    def owner(self) -> tuple[str, str]:
        """The principal and the conversation."""
        return self.caller.principal.id, self.caller.conversation or ""

    @property
    def record(self) -> tuple[str, str, str]:
        return *self.owner, self.digest

    def note_name(self, what: str) -> str:
        return f"{self.caller.conversation or ''} {what}"


def call_digest(call: list[JSON]) -> str:
    """A digest of a tool and its arguments, whatever their order."""
    return root_of(call).removeprefix(ALGORITHM)[:32]


class RowLocation(NamedTuple):
    """Where a row is that was sent: `handle/path`, and the root of that result."""

    address: str
    root: str


class LastSent(Struct, frozen=True):
    """What the server last sent a caller for a call."""

    root: str
    deltas: int = 0
    """Deltas since the result was sent whole."""
    is_part: bool = False
    """Only a part of it was shown."""
    era: str = ""
    """Drawn at random when the caller last said that it had lost everything."""


class SentResults:
    """Records in the store what was sent, so that replicas share it; but for symbols, whose ids one replica gives."""

    def __init__(self, stored: StoredResults) -> None:
        self._stored = stored
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._times: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._eras: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def last_sent(self, call: CallKey) -> LastSent | None:
        found = await self._recall(call, call.digest)
        try:
            sent = None if found is None else msgspec.convert(found, LastSent)
        except msgspec.ValidationError:  # written by another version of this program
            return None
        return sent if sent is not None and sent.era == await self._era(call) else None

    def is_overtaken(self, call: CallKey, since: float) -> bool:
        """Whether the caller was sent something by the same call after this one began: it may read them either way."""
        return self._times.get(call.record, since) > since

    async def record(self, call: CallKey, root: str, deltas: int, is_part: bool = False) -> None:
        """That the caller was sent this, so many deltas after it was sent everything, or a part."""
        if call.caller.is_remembered:
            self._times[call.record] = time.monotonic()
            self._times.move_to_end(call.record)
            if len(self._times) > _RECORDED_CALLS:
                self._times.popitem(last=False)
            sent = LastSent(root, deltas, is_part, await self._era(call))
            await self._remember(call, call.digest, msgspec.to_builtins(sent))

    async def sent_rows(self, call: CallKey) -> dict[str, RowLocation]:
        """Where the rows are that it was sent, by their digests; whole results among them, by their roots."""
        found = await self._recall(call, "rows")
        try:
            return {} if found is None else msgspec.convert(found, dict[str, RowLocation])
        except msgspec.ValidationError:  # written by another version of this program
            return {}

    async def record_rows(self, call: CallKey, places: dict[str, RowLocation]) -> None:
        if not call.caller.is_remembered:
            return
        known = await self.sent_rows(call)
        for sign in places:
            known.pop(sign, None)
        merged = {**known, **places}
        excess = len(merged) - MAX_REMEMBERED_ROWS
        kept = dict(list(merged.items())[excess:]) if excess > 0 else merged
        await self._remember(call, "rows", {sign: list(place) for sign, place in kept.items()})

    def sent_symbols(self, call: CallKey) -> "Session | None":
        """What the caller knows of symbols; None where one cannot tell."""
        if call.caller.conversation is None:
            return None
        from deltamcp.gcf import Session

        known = self._sessions.get(call.owner)
        return Session() if known is None else known

    def record_symbols(self, call: CallKey, session: "Session") -> None:
        assert call.caller.conversation is not None, "it was given for one"
        key = call.owner
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)

    def lock(self, call: CallKey) -> asyncio.Lock:
        """For who looks at what a caller holds and adds to it."""
        return self._locks.setdefault(call.owner, asyncio.Lock())

    async def reset(self, call: CallKey) -> None:
        """The caller has lost everything it was sent."""
        if not call.caller.is_remembered:
            return
        async with self.lock(call):
            era = secrets.token_hex(4)
            self._eras[call.owner] = era  # holds even where the store does not
            if len(self._eras) > _RECORDED_CALLS:
                self._eras.popitem(last=False)
            await self._remember(call, "era", era)
            await self._stored.forget(call.note_name("rows"), call.caller)
            if call.caller.conversation is not None and call.owner in self._sessions:
                self._sessions[call.owner].reset()

    async def _era(self, call: CallKey) -> str:
        """Another one after a reset, by whatever process, and where the store lost it."""
        return f"{self._eras.get(call.owner, '')}{await self._recall(call, 'era') or ''}"

    async def _recall(self, call: CallKey, name: str) -> JSON | None:
        if not call.caller.is_remembered:
            return None
        return await self._stored.recall(call.note_name(name), call.caller)

    async def _remember(self, call: CallKey, name: str, value: JSON) -> None:
        await self._stored.remember(call.note_name(name), value, call.caller)
