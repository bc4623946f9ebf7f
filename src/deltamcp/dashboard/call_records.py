"""The calls that a gateway has performed since somebody looked, those that run, and the results that it stores.

On the event loop it only notes that there was a call. The ledger's thread counts tokens, a second later.
"""

import asyncio
import sys
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from deltamcp.calls.observers import CountedTokens, ObservedCall, outcome_word
from deltamcp.errors import UsageError
from deltamcp.gateway.ledger import NOT_A_MODEL
from deltamcp.results.blocks import shown_texts
from deltamcp.values import JSON, Answer, Caller, Outcome, RawResult, ToolResult
from deltamcp.wire import jsonrpc

if TYPE_CHECKING:
    from deltamcp.gateway.gateway import Gateway

MAX_CALLS = 10_000
MAX_RESULTS = 1_000
_MAX_SENT = 200
"""The calls that one answer about changes has; a page that missed more reads the list."""
_LATENCIES = 200
_CONTENT_SECONDS = 60.0
"""For how long the content of calls is kept after somebody last asked for it."""
_ARGUMENT_CHARS, _REPLY_CHARS = 4_000, 16_000
_MAX_CONTENTS = 200
_MIN_CALLS = 3
"""The calls after which a tool whose results were all cut is told of."""
UNKNOWN_TOOL = "unknown"
"""The outcome of a call of a tool that does not exist."""
DONE = frozenset({"done", "promise", "input_required", "resource_required"})
"""The outcomes of calls that have not failed."""


_SHOWN_FIELDS = ("seq", "at", "client", "outcome", "ms", "before", "after", "cut")


class CallRecord(Struct, gc=False):
    """What is known of one call."""

    seq: int
    name: str
    is_known: bool
    client: str
    outcome: str
    ms: float
    at: float = field(default_factory=time.time)
    counted: CountedTokens | None = None
    cut: bool = False
    arguments: str | None = None
    reply: str | None = None

    @property
    def before(self) -> int | None:
        return None if self.counted is None else self.counted.before

    @property
    def after(self) -> int | None:
        return None if self.counted is None else self.counted.after

    @property
    def place(self) -> tuple[str, str]:
        """The server, as operations' ids begin with it, and the tool; a tool that does not exist has no server."""
        server, _, tool = self.name.partition(".") if self.is_known else ("", "", self.name)
        return server, tool

    def as_json(self, with_content: bool) -> dict[str, JSON]:
        server, tool = self.place
        found: dict[str, JSON] = {
            "server": server,
            "tool": tool,
            **{name: getattr(self, name) for name in _SHOWN_FIELDS},
        }
        if with_content and self.reply is not None:
            found |= {"arguments": self.arguments, "reply": self.reply}
        return found


class ServerFigures(Struct):
    """Calls of one server since somebody looked."""

    calls: int = 0
    failed: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))

    def percentile(self, share: float) -> float | None:
        ranked = sorted(self.latencies)
        return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else None


class _StoredResult:
    __slots__ = ("at", "client", "ends", "expires", "idle", "name", "origin", "size")

    def __init__(self, name: str, origin: str, client: str, size: int, lifetimes: tuple[float, float]) -> None:
        self.name, self.origin, self.client, self.size = name, origin, client, size
        self.at = time.time()
        self.idle, in_all = lifetimes
        self.ends = self.at + in_all
        self.expires = min(self.ends, self.at + self.idle)

    def touch(self) -> None:
        self.expires = min(self.ends, time.time() + self.idle)


class CallRecords:
    """Observes the calls of a gateway, once somebody has looked. It implements `CallObserver` and `StorageWatcher`."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self.began: float | None = None
        """When it began; None before anybody looked."""
        self.seq: int = 0
        """The number of the last call."""
        self._calls: deque[CallRecord] = deque(maxlen=MAX_CALLS)
        self.figures: dict[str, ServerFigures] = {}
        """By the first part of operations' ids."""
        self._tools: dict[str, tuple[int, int]] = {}
        """The calls of each operation, and how many of their results were cut."""
        self._results: dict[str, _StoredResult] = {}
        self._cut_just_now: set[str] = set()
        self.tried: ObservedCall | None = None
        """The last call of a person who tries tools."""
        self._waiters: set[asyncio.Future[None]] = set()
        self._content_until = 0.0
        self._contents: deque[CallRecord] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self) -> None:
        """Begins to observe the gateway, if it has not begun."""
        if self.began is None:
            self.began = time.time()
            engine = self._gateway.server.engine
            engine.add_observer(self)
            engine.stored_results.watcher = self

    # What the engine tells

    is_active = True

    def call_started(self, call: ObservedCall) -> None:
        """Does nothing: `Upstream.calls` has the calls that run."""

    def call_finished(self, call: ObservedCall) -> None:
        self.seq += 1
        outcome = outcome_name(call.outcome) if call.is_known or call.outcome is not None else UNKNOWN_TOOL
        record = CallRecord(self.seq, call.name, call.is_known, _client(call), outcome, round(call.seconds * 1000, 2))
        self._calls.append(record)
        if call.is_known:
            self._add_figures(call.name, record)
        if call.caller.connection == NOT_A_MODEL:
            self.tried = call
        elif call.is_known:
            record.counted = call.counted  # the ledger, which observes the gateway from its start, is told before
        if time.monotonic() < self._content_until:
            self._keep(record, call)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _add_figures(self, name: str, record: CallRecord) -> None:
        figures = self.figures.setdefault(record.place[0], ServerFigures())
        figures.calls += 1
        figures.failed += record.outcome not in DONE
        figures.latencies.append(record.ms)
        record.cut = name in self._cut_just_now
        self._cut_just_now.discard(name)
        calls, cut = self._tools.get(name, (0, 0))
        self._tools[name] = calls + 1, cut + record.cut

    def note_stored(
        self, name: str, origin: str, caller: Caller, size: int, is_cut: bool, lifetimes: tuple[float, float]
    ) -> None:
        if is_cut:
            self._cut_just_now.add(origin)
        self._results.pop(name, None)
        self._results[name] = _StoredResult(name, origin, caller.principal.key, size, lifetimes)
        if len(self._results) > MAX_RESULTS:
            del self._results[next(iter(self._results))]

    def note_read(self, name: str) -> None:
        found = self._results.get(name)
        if found is not None:
            found.touch()

    # Content, which only who asks for it is shown

    def keep_content(self) -> None:
        """Keeps arguments and results of the calls of the next minute."""
        self._content_until = time.monotonic() + _CONTENT_SECONDS

    def _keep(self, record: CallRecord, call: ObservedCall) -> None:
        redact = self._gateway.redact
        try:
            arguments = jsonrpc.encode(call.arguments).decode()
        except ValueError:  # an integer too long to write
            arguments = "(cannot be written)"
        record.arguments = redact(arguments)[:_ARGUMENT_CHARS]
        record.reply = redact(outcome_text(call.outcome)[: 2 * _REPLY_CHARS])[:_REPLY_CHARS]
        self._contents.append(record)
        if len(self._contents) > _MAX_CONTENTS:
            forgotten = self._contents.popleft()
            forgotten.arguments = forgotten.reply = None

    # Reads

    def list_calls(self, before: int, limit: int, text: str, outcome: str, with_content: bool) -> list[dict[str, JSON]]:
        """Returns calls, the newest first."""
        wanted = text.casefold()

        def fits(record: CallRecord) -> bool:
            if before and record.seq >= before:
                return False
            if outcome == "failed" and record.outcome in DONE:
                return False
            if outcome == "cut" and not record.cut:
                return False
            return (
                not wanted
                or wanted in f"{record.name if record.is_known else '.' + record.name} {record.client}".casefold()
            )

        found = (record for record in reversed(self._calls) if fits(record))
        return [record.as_json(with_content) for record in islice(found, max(0, limit))]

    def calls_after(self, seq: int) -> list[dict[str, JSON]]:
        """Returns the newest calls after a number, the newest first."""
        return [record.as_json(False) for record in islice(reversed(self._calls), _MAX_SENT) if record.seq > seq]

    async def wait(self, seconds: float) -> None:
        """Waits for the next call, so many seconds at most."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)

    def cut_tools(self) -> dict[str, int]:
        """Returns the operations whose results were all cut, with the number of their calls."""
        return {name: calls for name, (calls, cut) in self._tools.items() if calls == cut and calls >= _MIN_CALLS}

    def pending(self) -> dict[str, JSON]:
        """Returns the calls that run, the promises that are kept, and the stored results with the time left."""
        now = time.time()
        calls = [
            {"id": f"call-{call.id}", "server": name, "method": call.method, "name": call.name, "since": call.since}
            for name, upstream in self._gateway.upstreams.items()
            for call in upstream.connection.calls
        ]
        for name in [name for name, one in self._results.items() if one.expires <= now]:
            del self._results[name]
        results = [
            {
                "handle": one.name,
                "tool": one.origin,
                "client": one.client,
                "bytes": one.size,
                "secondsLeft": round(one.expires - now),
            }
            for one in reversed(self._results.values())
        ]
        return {"calls": calls, "promises": self._promises(now), "results": results}

    def _promises(self, now: float) -> list[JSON]:
        promises = self._gateway.server.engine.promise_calls
        if promises is None:
            return []
        return [
            {
                "id": f"promise-{key}",
                "tool": one.operation,
                "status": "cancelling" if one.cancel_requested else one.status.value,
                "since": one.created_at,
                "progress": one.progress,
                "total": one.total,
                "message": one.message,
                "secondsLeft": round(one.expires_at - now),
            }
            for key, one in promises.store.unended.items()
            if not one.is_expired(now)
        ]

    async def cancel(self, id: str) -> None:
        """Ends a call that runs, or one behind a promise.

        Raises:
            UsageError: there is none of this id, any more.
        """
        kind, _, name = id.partition("-")
        if kind == "call" and name.isascii() and name.isdigit():
            if any(upstream.connection.calls.cancel(int(name[:18])) for upstream in self._gateway.upstreams.values()):
                return
        elif kind == "promise":
            promises = self._gateway.server.engine.promise_calls
            if promises is not None and await promises.cancel(name):
                return
        raise UsageError("That call has ended.")


def outcome_text(outcome: Outcome | None) -> str:
    """Returns what a model reads of an outcome."""
    match outcome:
        case None:
            return "(cancelled)"
        case Answer(ToolResult() | RawResult() as result):
            return "\n".join(shown_texts(result))
        case _:
            return str(getattr(outcome, "message", "") or outcome_word(outcome))


def outcome_name(outcome: Outcome | None) -> str:
    """Returns how a call ended, as `outcome_word` does; "error" also for an error of a server behind the gateway."""
    value = outcome.value if isinstance(outcome, Answer) else None
    is_error = isinstance(value, RawResult) and value.fields.get("isError") is True
    return "error" if is_error else outcome_word(outcome)


def _client(call: ObservedCall) -> str:
    if call.caller.connection == NOT_A_MODEL:
        return "(you)"
    name = call.terms.client.get("name")
    return sys.intern(name[:80] if isinstance(name, str) and name else call.caller.principal.key[:80])
