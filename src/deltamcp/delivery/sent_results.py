"""Records of what the server sent in each conversation: the last result of every call, and all rows."""

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from deltamcp.delivery.stored_results import ResultOrigin, StoredResults
from deltamcp.deltas.root import ALGORITHM, root_of
from deltamcp.results.changes import MAX_REMEMBERED_ROWS
from deltamcp.values import JSON, Caller, RequestId

if TYPE_CHECKING:
    from deltamcp.gcf import Session


_MAX_CALLS = 1_000
"""The number of calls of one conversation whose last result is recorded."""
_MAX_BYTES = 32 * 1024 * 1024
_DROPPED_AT_ONCE = 64
"""The number of expired conversations that a new one displaces, so that their number falls and no call takes long."""
_MAX_BYTES_PER_ACCOUNT = 8 * 1024 * 1024
_MAX_BYTES_PER_CONVERSATION = 4 * 1024 * 1024
_CONVERSATION_BYTES, _REPLY_BYTES, _ROW_BYTES = 2_000, 500, 400
"""About how much memory a conversation, the record of a reply and that of a row take."""
_MAX_TOLD_CONVERSATIONS = 4_000
"""Conversations of which it is known what words they were told: 300 bytes each, as there are few words."""


_MAX_RECENT_REPLIES = 2_000
"""Replies whose cancellation may still come; one that comes late crosses its reply on the way."""


class CallKey(NamedTuple):
    """Identifies the same call of the same caller, which the server answers with the changes since the last reply."""

    caller: Caller
    digest: str
    """The digest of the tool and its arguments."""
    origin: ResultOrigin
    """What the call is of."""
    is_safe: bool = True
    """Whether the caller can repeat the call without side effects."""

    @property
    def conversation(self) -> tuple[str, str]:
        """The principal and the conversation."""
        return _key(self.caller)


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
    """Empty where the caller reads several at once, so that none is the last."""
    deltas: int = 0
    """The number of deltas since the result was sent whole."""
    is_part: bool = False
    """Whether the caller was shown only a part of the result."""


class _SentReply(NamedTuple):
    result: LastSent
    time: float


class _Conversation:
    """What the server sent in one conversation."""

    __slots__ = ("account", "counted_bytes", "replies", "rows", "session", "used_at")

    def __init__(self, account: str) -> None:
        self.account = account
        self.replies: OrderedDict[str, _SentReply] = OrderedDict()
        self.rows: dict[str, RowLocation] = {}
        self.session: Session | None = None
        self.used_at = 0.0
        self.counted_bytes = 0

    @property
    def bytes(self) -> int:
        symbols = 0 if self.session is None else self.session.nbytes
        return _CONVERSATION_BYTES + _REPLY_BYTES * len(self.replies) + _ROW_BYTES * len(self.rows) + symbols

    def clear(self) -> None:
        """Forgets everything but which ids symbols had, for these are not used again."""
        self.replies.clear()
        self.rows.clear()
        if self.session is not None:
            self.session = self.session.copy()  # a thread may be using the other one
            self.session.reset()


class SentResults:
    """Records what the server sent, in this process. `SharedReplies` does for conversations that move between replicas.

    The records are bounded. A conversation that is not recorded is sent whole results.
    """

    def __init__(self, idle_seconds: float) -> None:
        """`idle_seconds` is how long a stored result stays unread, and so a record of it is of use."""
        self._idle_seconds = idle_seconds
        self._conversations: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()  # the last used one comes last
        self._total_bytes = 0
        self._account_bytes: Counter[str] = Counter()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def last_sent(self, call: CallKey) -> LastSent | None:
        """Returns the last result that the caller was sent for this call; None if none is recorded."""
        reply = self._last_reply(call)
        return None if reply is None else reply.result

    def is_overtaken(self, call: CallKey, since: float) -> bool:
        """Whether the server replied to the same call after this one began; the client may read them in any order."""
        reply = self._last_reply(call)
        return reply is not None and reply.time > since

    def _last_reply(self, call: CallKey) -> _SentReply | None:
        conversation = self._find(call)
        return None if conversation is None else conversation.replies.get(call.digest)

    def record(self, call: CallKey, result: LastSent) -> None:
        """Records the result that the caller was sent."""
        conversation = self._find_or_open(call)
        if conversation is None:
            return
        conversation.replies[call.digest] = _SentReply(result, time.monotonic())
        conversation.replies.move_to_end(call.digest)
        if len(conversation.replies) > _MAX_CALLS:
            conversation.replies.popitem(last=False)
        self._bound(conversation)

    def sent_rows(self, call: CallKey) -> dict[str, RowLocation]:
        """Returns the locations of the rows that the caller was sent, by digest, and of whole results, by root."""
        conversation = self._find(call)
        return {} if conversation is None else conversation.rows

    def record_rows(self, call: CallKey, places: dict[str, RowLocation]) -> None:
        conversation = self._find_or_open(call)
        if conversation is None:
            return
        rows = conversation.rows
        for digest, place in places.items():
            rows.pop(digest, None)
            rows[digest] = place
        for digest in list(islice(rows, max(0, len(rows) - MAX_REMEMBERED_ROWS))):
            del rows[digest]
        self._bound(conversation)

    def sent_symbols(self, call: CallKey) -> "Session | None":
        """Returns the symbols that the caller knows; None if they cannot be recorded."""
        conversation = self._find_or_open(call)
        if conversation is None:
            return None
        from deltamcp.gcf import Session

        return Session() if conversation.session is None else conversation.session

    def record_symbols(self, call: CallKey, session: "Session") -> None:
        conversation = self._find_or_open(call)
        if conversation is not None:
            conversation.session = session
            self._bound(conversation)

    def lock(self, call: CallKey) -> asyncio.Lock:
        """Returns the caller's lock, for code that reads what the caller was sent and then records more."""
        return self._locks.setdefault(call.conversation, asyncio.Lock())

    async def reset(self, call: CallKey) -> None:
        """Forgets what the caller was sent, because the caller has lost it, or may not have received all of it."""
        if not call.caller.stays:
            return
        async with self.lock(call):
            conversation = self._find(call)
            if conversation is not None:
                conversation.clear()
                self._count(conversation)

    # The bounds

    def _find(self, call: CallKey) -> _Conversation | None:
        if not call.caller.stays:
            return None
        conversation = self._conversations.get(call.conversation)
        if conversation is not None:
            self._conversations.move_to_end(call.conversation)
            conversation.used_at = time.monotonic()
        return conversation

    def _find_or_open(self, call: CallKey) -> _Conversation | None:
        """Returns the caller's conversation; None if it has none, or if there is no room to record another one."""
        found = self._find(call)
        if found is not None or not call.caller.stays:
            return found
        self._drop_idle()
        if self._total_bytes + _CONVERSATION_BYTES > _MAX_BYTES:
            return None
        conversation = self._conversations[call.conversation] = _Conversation(call.caller.account)
        conversation.used_at = time.monotonic()
        self._count(conversation)
        return conversation

    def _bound(self, conversation: _Conversation) -> None:
        """Counts what was recorded. Where it is too much, the account's own records go, never another's in use."""
        self._count(conversation)
        if conversation.counted_bytes > _MAX_BYTES_PER_CONVERSATION:
            self._clear(conversation)
        if self._account_bytes[conversation.account] > _MAX_BYTES_PER_ACCOUNT:
            self._halve_account(conversation)
        if self._total_bytes > _MAX_BYTES:
            self._drop_idle()
        if self._total_bytes > _MAX_BYTES:
            self._clear(conversation)

    def _halve_account(self, conversation: _Conversation) -> None:
        """Clears the other conversations of an account, and drops them if that is not enough, the oldest first."""
        account, half = conversation.account, _MAX_BYTES_PER_ACCOUNT // 2
        others = [
            (key, other)
            for key, other in self._conversations.items()
            if other.account == account and other is not conversation
        ]
        for _, other in others:
            if self._account_bytes[account] > half:
                self._clear(other)
        for key, other in others:
            if self._account_bytes[account] > half:
                del self._conversations[key]
                self._add_bytes(account, -other.counted_bytes)

    def _drop_idle(self) -> None:
        """Drops conversations whose stored results have expired: some of them, and more where there is no room."""
        until = time.monotonic() - self._idle_seconds
        dropped = 0
        while self._conversations and (
            dropped < _DROPPED_AT_ONCE or self._total_bytes + _CONVERSATION_BYTES > _MAX_BYTES
        ):
            key, oldest = next(iter(self._conversations.items()))
            if oldest.used_at > until:
                return
            dropped += 1
            del self._conversations[key]
            self._add_bytes(oldest.account, -oldest.counted_bytes)

    def _clear(self, conversation: _Conversation) -> None:
        conversation.clear()
        self._count(conversation)

    def _count(self, conversation: _Conversation) -> None:
        size = conversation.bytes
        self._add_bytes(conversation.account, size - conversation.counted_bytes)
        conversation.counted_bytes = size

    def _add_bytes(self, account: str, size: int) -> None:
        self._total_bytes += size
        self._account_bytes[account] += size
        if not self._account_bytes[account]:
            del self._account_bytes[account]


class RecentReplies:
    """Whom the last replies in known conversations were for, by connection and request id. It is bounded."""

    def __init__(self) -> None:
        self._callers: OrderedDict[tuple[str, RequestId], Caller] = OrderedDict()

    def add(self, caller: Caller, request: RequestId) -> None:
        if caller.connection is not None and caller.is_remembered:
            self._callers[caller.connection, request] = caller
            if len(self._callers) > _MAX_RECENT_REPLIES:
                self._callers.popitem(last=False)

    def pop(self, caller: Caller, request: RequestId) -> Caller:
        """Returns the caller of a request, once; the caller of the connection if the request is long ago."""
        return self._callers.pop((caller.connection or "", request), caller)


class ToldWords:
    """Which of the words that explain forms of results each conversation has been told. It is bounded."""

    def __init__(self) -> None:
        self._words: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()  # the last used one comes last

    def of(self, caller: Caller) -> frozenset[str]:
        """Returns the words that a conversation has been told; none outside a known conversation."""
        return frozenset() if caller.conversation is None else self._words.get(_key(caller), frozenset())

    def tell(self, caller: Caller, words: Iterable[str]) -> frozenset[str]:
        """Records that a conversation is told these words, and returns those that it has been told before."""
        told = self.of(caller)
        self.add(caller, words)
        return told

    def add(self, caller: Caller, words: Iterable[str]) -> None:
        new = frozenset(words) - self.of(caller)
        if caller.conversation is None or not new:
            return
        self._words[_key(caller)] = self.of(caller) | new
        self._words.move_to_end(_key(caller))
        if len(self._words) > _MAX_TOLD_CONVERSATIONS:
            self._words.popitem(last=False)

    def forget(self, caller: Caller) -> None:
        """Has the words said again, because the caller may have lost them."""
        self._words.pop(_key(caller), None)


def _key(caller: Caller) -> tuple[str, str]:
    """Returns the principal and the conversation."""
    return caller.principal.owner, caller.conversation or ""


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
