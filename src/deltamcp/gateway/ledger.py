"""The ledger: for every call, list and meta-tool what a model would have read without the gateway, and what it read.

On the event loop it only notes which results there were. A thread counts their tokens and adds the sums to the file,
once a second while there are any: what has just happened is lost if the process is killed, at most about two seconds.
"""

import datetime
import logging
import sqlite3
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import UNSET

from deltamcp.calls.observers import CountedTokens, ObservedCall
from deltamcp.calls.request_context import RequestContext
from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.client.options import COMMAND_LINE
from deltamcp.errors import DeltaError
from deltamcp.gateway import ledger_figures
from deltamcp.gateway.ledger_figures import GATEWAY, LISTED, UNKNOWN, LedgerFile, LedgerKey, LedgerTotals, Usage
from deltamcp.results import content
from deltamcp.results.blocks import count_result
from deltamcp.values import LOCAL, Answer, Outcome, Page, RawResult, Terms, ToolResult

logger: logging.Logger = logging.getLogger("deltamcp")

NOT_A_MODEL = "person who tries tools"
"""The connection of a person who tries out what a model would get; it is not counted."""
_WRITE_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_MAX_WAITING = 10_000
_MAX_WAITING_BYTES = 64 * 1024 * 1024
"""What may wait to be counted, in results and in their bytes; of more only the number of calls is noted."""
_MAX_NOTED = 100_000
"""The calls that are noted while the thread cannot go on, as the disk hangs; more are not."""
_MAX_UNWRITTEN = 2_000
"""The sums that wait while the file cannot be written."""
_MAX_CONVERSATIONS = 10_000
_MAX_LISTS = 64
_COUNTING_SECONDS = 0.0005
"""How long the thread counts before it lets the event loop go on."""


class _Reply(NamedTuple):
    """A result whose tokens are not counted yet."""

    key: LedgerKey
    value: Any
    """What the upstream sent; UNSET if it sent nothing, so that the reply would have been the same without us."""
    result: ToolResult | RawResult | None
    failed: bool
    size: int
    is_counted: bool = True
    """Whether there was room to wait for the count of its tokens."""
    counted: CountedTokens | None = None
    """Where whoever observes the call looks for its tokens. The call itself is not kept: for a second of 500 calls that
    cost 15 µs of CPU time a call."""


class _List(NamedTuple):
    """A list of tools whose tokens are not counted yet."""

    day: str
    operations: Sequence[Operation]
    page: Page


_Waiting: TypeAlias = _Reply | _List


class Ledger:
    """Observes the calls and the disclosure of a gateway: `Gateway(config, ledger=Ledger(LedgerFile()))`."""

    is_active = True

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self._waiting: deque[_Waiting] = deque()
        # Each of the two numbers has one writer, so that they need no lock.
        self._noted_bytes = 0
        self._counted_bytes = 0
        self._unwritten: dict[LedgerKey, Usage] = {}
        self._told_of_failure = False
        self._list_costs: dict[int, tuple[weakref.ref[Page], dict[str, Usage]]] = {}
        """What lists cost that were sent before: clients that see the same are sent the same page."""
        self._conversations: OrderedDict[str, None] = OrderedDict()
        self._is_waiting = threading.Event()
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None

    # What the engine tells

    def call_started(self, call: ObservedCall) -> None:
        """Does nothing: a call counts when it has finished."""

    def call_finished(self, call: ObservedCall) -> None:
        if _is_for_a_person(call.terms):
            return
        name = call.name if call.caller.principal is LOCAL else call.label  # the file is the local user's
        upstream, _, tool = name.partition(".") if call.is_known else (GATEWAY, "", UNKNOWN)
        self._note_reply(LedgerKey(_today(), upstream, tool), call.value, call.outcome, call)

    def meta_tool_replied(self, meta: MetaTool, outcome: Outcome, request: RequestContext) -> None:
        if _is_for_a_person(request.terms):
            return
        # A model without meta-tools reads nothing in place of such a reply.
        self._note_reply(LedgerKey(_today(), GATEWAY, meta.value), ToolResult([]), outcome)

    def tools_listed(self, page: Page, request: RequestContext) -> None:
        """Notes a list once for each conversation; for callers that have none, once a day."""
        if _is_for_a_person(request.terms):
            return
        caller, day = request.terms.caller, _today()
        conversation = caller.connection or f"{caller.account} {day}"
        is_new = conversation not in self._conversations
        self._conversations[conversation] = None
        self._conversations.move_to_end(conversation)
        if len(self._conversations) > _MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)
        if is_new and len(self._waiting) < _MAX_WAITING:
            self._note(_List(day, list(request.view.operations.values()), page))

    def _note_reply(
        self, key: LedgerKey, value: Any, outcome: Outcome | None, call: ObservedCall | None = None
    ) -> None:
        result = outcome.value if isinstance(outcome, Answer) else None
        if not isinstance(result, ToolResult | RawResult):
            result = None
        failed = result is None or (
            result.is_error if isinstance(result, ToolResult) else result.fields.get("isError") is True
        )
        size = len(value.encoded) if isinstance(value, RawResult) else 0
        held = self._noted_bytes - self._counted_bytes
        if len(self._waiting) < _MAX_WAITING and held + size <= _MAX_WAITING_BYTES:
            self._noted_bytes += size
            counted = None
            if call is not None:
                counted = call.counted = CountedTokens()
            self._note(_Reply(key, value, result, failed, size, counted=counted))
        elif len(self._waiting) < _MAX_NOTED:
            self._note(_Reply(key, UNSET, None, failed, 0, is_counted=False))

    def _note(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if not self._is_waiting.is_set():
            self._is_waiting.set()
        if self._thread is None:
            self._closing.clear()
            self._thread = threading.Thread(target=self._run, name="delta-mcp ledger", daemon=True)
            self._thread.start()

    # Figures

    def totals(self, days: int | None = None) -> LedgerTotals:
        """Returns what all gateways of the user came to in the last days; it blocks.

        Raises:
            ConfigurationError: the file is no ledger, or is damaged.
        """
        return ledger_figures.total(self.rows(days))

    def rows(self, days: int | None = None) -> dict[LedgerKey, Usage]:
        """Returns the figures of all gateways of the user in the last days; it blocks.

        Raises:
            ConfigurationError: the file is no ledger, or is damaged.
        """
        self._write()
        return self._file.read(days)

    def close(self) -> None:
        """Writes what is not written yet; it blocks, for some seconds at most."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._closing.set()
            self._is_waiting.set()
            thread.join(_CLOSE_SECONDS)

    # The thread

    def _run(self) -> None:
        while not self._closing.is_set():
            self._is_waiting.wait()
            self._closing.wait(_WRITE_SECONDS)
            self._is_waiting.clear()
            self._write()

    def _write(self) -> None:
        with self._writing:
            try:
                self._count_waiting()
            except Exception:
                logger.exception("the ledger could not count a result")
            if not self._unwritten:
                return
            try:
                self._file.add(self._unwritten)
                self._unwritten = {}
            except (OSError, sqlite3.Error, DeltaError) as error:
                if not self._told_of_failure:
                    logger.warning("the ledger cannot be written: %s", error)
                    self._told_of_failure = True

    def _count_waiting(self) -> None:
        began = time.perf_counter()
        while self._waiting:
            waiting = self._waiting.popleft()
            if isinstance(waiting, _Reply):
                usage = _reply_usage(waiting)
                rows = [(waiting.key, usage)]
                self._counted_bytes += waiting.size
                if waiting.counted is not None:
                    waiting.counted.before, waiting.counted.after = usage.before, usage.after
            else:
                costs = self._list_cost(waiting)
                rows = [(LedgerKey(waiting.day, upstream, LISTED), usage) for upstream, usage in costs.items()]
            ledger_figures.add_rows(self._unwritten, rows, _MAX_UNWRITTEN)
            if time.perf_counter() - began > _COUNTING_SECONDS and not self._closing.is_set():
                time.sleep(_COUNTING_SECONDS / 2)
                began = time.perf_counter()

    def _list_cost(self, listed: _List) -> dict[str, Usage]:
        page = listed.page
        known = self._list_costs.get(id(page))
        if known is not None and known[0]() is page:
            return known[1]
        if len(self._list_costs) >= _MAX_LISTS:
            self._list_costs.clear()
        costs = _count_list(listed)
        self._list_costs[id(page)] = weakref.ref(page), costs
        return costs


def _is_for_a_person(terms: Terms) -> bool:
    """Whether a person reads the replies, at the command line or at the dashboard, and no model."""
    return terms.caller.connection == NOT_A_MODEL or terms.client.get("name") == COMMAND_LINE


def _reply_usage(reply: _Reply) -> Usage:
    usage = Usage(calls=1, failed=int(reply.failed), uncounted=int(not reply.is_counted))
    if reply.result is not None:
        usage.after = count_result(reply.result)
        usage.before = usage.after if reply.value is reply.result else _count_value(reply.value, usage.after)
    return usage


def _count_value(value: Any, after: int) -> int:
    """Counts what the upstream sent; what the gateway itself replied, such as an error, would have cost the same."""
    if value is UNSET:
        return after
    try:
        return count_result(value if isinstance(value, RawResult) else content.tool_result(value, None))
    except ValueError:  # a value that cannot be sent
        return after


def _count_list(listed: _List) -> dict[str, Usage]:
    """Counts by upstream the definitions that a model would have read, and those that it was sent."""
    costs = {GATEWAY: Usage(calls=1)}
    upstreams: dict[str, str] = {}
    for operation in listed.operations:
        upstream = upstreams[operation.name] = operation.id.partition(".")[0]
        costs.setdefault(upstream, Usage(calls=1)).before += definition_tokens(operation.tool)
    for item in listed.page.items:
        costs[upstreams.get(str(item.get("name")), GATEWAY)].after += definition_tokens(item)
    return costs


def _today() -> str:
    return datetime.date.today().isoformat()
