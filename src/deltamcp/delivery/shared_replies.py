"""The last reply to each call of a conversation that moves between replicas: a note in the store."""

import asyncio
import secrets
import time

import msgspec
from msgspec import Struct

from deltamcp.delivery.sent_results import CallKey, LastSent
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.values import Caller

_CLOCK_SECONDS = 1.0
"""How much the clocks of two replicas may differ. A reply of another replica within this time before a call began
counts as one after it, and the caller then gets a whole result."""

_PROCESS = secrets.token_hex(8)


class _Note(Struct, array_like=True):
    result: LastSent
    process: str
    sent_at: float
    """The time by the clock of the process, which only its own calls are compared with."""
    sent_wall: float


class SharedReplies:
    """Reads and writes what any replica last sent. Without the store every reply is a whole result."""

    def __init__(self, stored: StoredResults) -> None:
        self._stored = stored

    async def last_sent(self, call: CallKey) -> LastSent | None:
        """Returns the last result that the caller was sent for this call; None if none is recorded."""
        note = await self._read(call)
        return None if note is None else note.result

    async def is_overtaken(self, call: CallKey, since: float) -> bool:
        """Whether a replica replied to the same call after this one began, at `since` by the monotonic clock."""
        note = await self._read(call)
        if note is None:
            return False
        if note.process == _PROCESS:
            return note.sent_at > since
        began = time.time() - (time.monotonic() - since)
        return note.sent_wall > began - _CLOCK_SECONDS

    async def record(self, call: CallKey, result: LastSent) -> None:
        """Records the result that the caller was sent."""
        note = _Note(result, _PROCESS, time.monotonic(), time.time())
        await self._stored.remember(_name(call.caller, call.digest), msgspec.msgpack.encode(note), call.caller)

    async def reset(self, caller: Caller) -> None:
        """Makes all replicas forget what the caller was sent."""
        await self._stored.remember(_name(caller, ""), msgspec.msgpack.encode(time.time()), caller)

    async def _read(self, call: CallKey) -> _Note | None:
        names = (_name(call.caller, call.digest), _name(call.caller, ""))
        found, reset = await asyncio.gather(*(self._stored.recall(name, call.caller) for name in names))
        note = None if found is None else msgspec.msgpack.decode(found, type=_Note)
        if note is None or (reset is not None and msgspec.msgpack.decode(reset, type=float) >= note.sent_wall):
            return None
        return note


def _name(caller: Caller, digest: str) -> str:
    return f"sent {caller.conversation} {digest}"
