"""What each caller holds of the results it was sent: the last of every call, the rows and symbols of all of them."""

import asyncio
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from deltamcp.delivery.stored_results import Keeping
from deltamcp.deltas.root import ALGORITHM, root_of
from deltamcp.results.dedup import MOST_ROWS
from deltamcp.values import ANONYMOUS, JSON, Principal

if TYPE_CHECKING:
    from deltamcp.gcf import Session

_NOTED = 10_000
"""Calls whose last reply's time is known, and callers whose last reset is."""
_SESSIONS = 1_000
"""Conversations whose symbols are remembered at once; of a further one the oldest is forgotten."""


class Call(NamedTuple):
    """Whose call, and which: the same again is told by what changed."""

    principal: Principal
    conversation: str | None
    """What lasts from one of the caller's requests to the next; None where each stands for itself."""
    digest: str
    """Of the tool and its arguments."""
    is_safe: bool = True
    """Whether it can be made again without changing anything."""

    @property
    def is_remembered(self) -> bool:
        """Whether anybody knows who comes back."""
        return self.conversation is not None or self.principal.id != ANONYMOUS.id


def digest(call: list[JSON]) -> str:
    """Of a tool and its arguments, whatever their order."""
    return root_of(call).removeprefix(ALGORITHM)[:32]


class Place(NamedTuple):
    """Where something is that was sent: `handle/path`, and the root of that result."""

    where: str
    root: str


class Sent(Struct, frozen=True):
    """What a caller was sent last by a call."""

    root: str
    deltas: int = 0
    """Since it was sent whole."""
    is_part: bool = False
    """Only a part of it was shown."""
    era: str = ""
    """What was drawn when the caller last said that it had lost everything."""


class Holding:
    """In the store, so that replicas share it; but for symbols, whose ids only one of them can give."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._noted: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._eras: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def last(self, call: Call) -> Sent | None:
        said = await self._recalled(call, call.digest)
        try:
            sent = None if said is None else msgspec.convert(said, Sent)
        except msgspec.ValidationError:  # of another version of this program
            return None
        return sent if sent is not None and sent.era == await self._era(call) else None

    def is_overtaken(self, call: Call, since: float) -> bool:
        """Whether the caller was sent something by the same call after this one began: it may read them either way."""
        return self._noted.get(_key(call), since) > since

    async def note(self, call: Call, root: str, deltas: int, is_part: bool = False) -> None:
        """That the caller was sent this, so many deltas after it was sent everything, or a part."""
        if call.is_remembered:
            self._noted[_key(call)] = time.monotonic()
            self._noted.move_to_end(_key(call))
            if len(self._noted) > _NOTED:
                self._noted.popitem(last=False)
            sent = Sent(root, deltas, is_part, await self._era(call))
            await self._remember(call, call.digest, msgspec.to_builtins(sent))

    async def rows(self, call: Call) -> dict[str, Place]:
        """Where the rows are that it was sent, by their digests; whole results among them, by their roots."""
        said = await self._recalled(call, "rows")
        try:
            return {} if said is None else msgspec.convert(said, dict[str, Place])
        except msgspec.ValidationError:  # of another version of this program
            return {}

    async def note_rows(self, call: Call, places: dict[str, Place]) -> None:
        if not call.is_remembered:
            return
        known = await self.rows(call)
        for sign in places:
            known.pop(sign, None)
        merged = {**known, **places}
        excess = len(merged) - MOST_ROWS
        kept = dict(list(merged.items())[excess:]) if excess > 0 else merged
        await self._remember(call, "rows", {sign: list(place) for sign, place in kept.items()})

    def symbols(self, call: Call) -> "Session | None":
        """What the caller knows of symbols; None where one cannot tell."""
        if call.conversation is None:
            return None
        from deltamcp.gcf import Session

        known = self._sessions.get((call.principal.id, call.conversation))
        return Session() if known is None else known

    def note_symbols(self, call: Call, session: "Session") -> None:
        assert call.conversation is not None, "it was given for one"
        key = (call.principal.id, call.conversation)
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)

    def turn(self, call: Call) -> asyncio.Lock:
        """For who looks at what a caller holds and adds to it."""
        return self._turns.setdefault((call.principal.id, call.conversation or ""), asyncio.Lock())

    async def reset(self, call: Call) -> None:
        """The caller has lost everything it was sent."""
        if not call.is_remembered:
            return
        async with self.turn(call):
            era = secrets.token_hex(4)
            self._eras[_key(call)[:2]] = era  # holds even where the store does not
            if len(self._eras) > _NOTED:
                self._eras.popitem(last=False)
            await self._remember(call, "era", era)
            await self._keeping.forget(_name(call, "rows"), call.principal)
            if call.conversation is not None and (call.principal.id, call.conversation) in self._sessions:
                self._sessions[call.principal.id, call.conversation].reset()

    async def _era(self, call: Call) -> str:
        """Another one after a reset, by whatever process, and where the store lost it."""
        return f"{self._eras.get(_key(call)[:2], '')}{await self._recalled(call, 'era') or ''}"

    async def _recalled(self, call: Call, name: str) -> JSON | None:
        if not call.is_remembered:
            return None
        return await self._keeping.recalled(_name(call, name), call.principal)

    async def _remember(self, call: Call, name: str, value: JSON) -> None:
        await self._keeping.remember(_name(call, name), value, call.principal)


def _key(call: Call) -> tuple[str, str, str]:
    return call.principal.id, call.conversation or "", call.digest


def _name(call: Call, what: str) -> str:
    return f"{call.conversation or ''} {what}"
