"""Observers of calls, which the server notifies when a call starts and when it ends; the call log is one.

    logging.getLogger("deltamcp.calls").setLevel(logging.INFO)

A line has a hash of the arguments, which shows that two calls had the same arguments and reveals nothing else of them.
"""

import functools
import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, assert_never, runtime_checkable

from msgspec import UNSET

from deltamcp.calls.request_context import RequestContext
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.errors import Fault
from deltamcp.results import content
from deltamcp.results.blocks import count_result
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.values import (
    JSON,
    Answer,
    Caller,
    Failure,
    InputRequired,
    Outcome,
    Page,
    Promise,
    RawResult,
    RequestId,
    ResourceRequired,
    Terms,
    ToolResult,
)

logger: logging.Logger = logging.getLogger("deltamcp")


class ObservedCall:
    """One call of an operation. `outcome`, `seconds` and the token counts are set when the call has finished."""

    outcome: Outcome | None = None
    """None if the call was cancelled."""
    seconds: float = 0.0
    value: Any = UNSET
    """The value that the function returned; UNSET if it did not return."""

    def __init__(self, name: str, is_known: bool, arguments: dict[str, JSON], request: RequestContext) -> None:
        self.name = name
        """The operation's id, or the name that the caller sent if there is no such operation."""
        self.label = name
        """A name for figures that everybody may see: of an operation that only some are offered, its category's."""
        self.is_known = is_known
        """Whether the operation exists and the caller may see it."""
        self.arguments = arguments
        self._request = request

    @property
    def caller(self) -> Caller:
        """Who called."""
        return self._request.terms.caller

    @property
    def terms(self) -> Terms:
        """What the client said of itself and of this request, such as the protocol version and `_meta`."""
        return self._request.terms

    @property
    def request_id(self) -> RequestId:
        """The id that the client gave the JSON-RPC request."""
        return self._request.request_id

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The HTTP headers of the request, by names in lower case; none if it did not come over HTTP."""
        return self._request.channel.headers

    @property
    def http_request_id(self) -> str:
        """The `X-Request-Id` of the HTTP request that the call came in; empty without one."""
        return HTTP_REQUEST_ID.get()

    @functools.cached_property
    def tokens_before(self) -> int | None:
        """The tokens of the function's whole result, counted at the first access; None if there is no result."""
        if self.value is UNSET:
            return None
        try:
            whole = self.value if isinstance(self.value, RawResult) else content.tool_result(self.value, None)
            return count_result(whole)
        except ValueError:  # a value that cannot be sent
            return None

    @functools.cached_property
    def tokens_after(self) -> int | None:
        """The tokens of the result as the server sent it, counted at the first access; None if there is no result."""
        match self.outcome:
            case Answer(ToolResult() | RawResult() as result):
                return count_result(result)
            case _:
                return None


class CallObserver(Protocol):
    """Receives an event when a call starts and when it finishes: `DeltaServer(observers=[...])`.

    The methods run on the event loop and must not block. The server logs their exceptions.
    """

    @property
    def is_active(self) -> bool:
        """Whether the server should notify the observer of the next call."""
        ...

    def call_started(self, call: ObservedCall) -> None:
        """Handles the start of a call."""
        ...

    def call_finished(self, call: ObservedCall) -> None:
        """Handles the end of a call."""
        ...


@runtime_checkable
class DisclosureObserver(Protocol):
    """Is told what models read of a server besides the results of operations.

    An observer of calls may be one too: `DeltaServer(observers=[...])`.
    The methods run on the event loop and must not block. The server logs their exceptions.
    """

    def tools_listed(self, page: Page, request: RequestContext) -> None:
        """Handles the first page of `tools/list`."""
        ...

    def meta_tool_replied(self, meta: MetaTool, outcome: Outcome, request: RequestContext) -> None:
        """Handles the reply of a meta-tool that ran no operation: observers of calls are told of those."""
        ...


class DisclosureObservers:
    """Notifies observers of lists and of meta-tools; there are mostly none."""

    def __init__(self, observers: Sequence[CallObserver]) -> None:
        self._observers = [observer for observer in observers if isinstance(observer, DisclosureObserver)]

    def tools_listed(self, page: Page, request: RequestContext) -> None:
        for observer in self._observers:
            try:
                observer.tools_listed(page, request)
            except Exception:
                logger.exception("an observer failed")

    def meta_tool_replied(self, meta: MetaTool, outcome: Outcome, request: RequestContext) -> None:
        for observer in self._observers:
            try:
                observer.meta_tool_replied(meta, outcome, request)
            except Exception:
                logger.exception("an observer failed")


class Observation:
    """Notifies the active observers of the start and the end of one call."""

    __slots__ = ("_observers", "_start_time", "call")

    def __init__(self, call: ObservedCall, observers: Sequence[CallObserver]) -> None:
        self.call: ObservedCall = call
        self._observers = observers
        self._start_time = time.perf_counter()
        for observer in observers:
            try:
                observer.call_started(call)
            except Exception:
                logger.exception("an observer failed")

    def finish(self, outcome: Outcome | None) -> None:
        """Ends the call; `outcome` is None if it was cancelled."""
        call = self.call
        call.seconds = time.perf_counter() - self._start_time
        call.outcome = outcome
        for observer in self._observers:
            try:
                observer.call_finished(call)
            except Exception:
                logger.exception("an observer failed")


call_logger: logging.Logger = logging.getLogger("deltamcp.calls")


class CallLog:
    """Logs every call, while its logger is enabled."""

    @property
    def is_active(self) -> bool:
        """Whether the logger has a level of its own; INFO at the root logger does not turn the call log on."""
        return call_logger.level != logging.NOTSET and call_logger.isEnabledFor(logging.INFO)

    def call_started(self, call: ObservedCall) -> None:
        """Does nothing: the log has a line for a call when it has finished."""

    def call_finished(self, call: ObservedCall) -> None:
        principal, outcome = call.caller.principal.key, call.outcome
        if not call.is_known:
            is_refused = isinstance(outcome, Failure) and outcome.fault is Fault.INSUFFICIENT_SCOPE
            word, name = outcome_word(outcome) if is_refused else "unknown", call.name[:100]
            fields = {"operation": name, "principal": principal, "outcome": word}
            call_logger.info("operation=%r principal=%s outcome=%s", name, principal, word, extra=fields)
            return
        word, milliseconds = outcome_word(outcome), round(call.seconds * 1000, 1)
        call_logger.info(
            "operation=%s principal=%s arguments=%s outcome=%s ms=%.1f",
            call.name,
            principal,
            _hash(call.arguments),
            word,
            milliseconds,
            extra={"operation": call.name, "principal": principal, "outcome": word, "milliseconds": milliseconds},
        )


def _hash(arguments: dict[str, JSON]) -> str:
    try:
        text = json.dumps(arguments, sort_keys=True)
    except ValueError:  # an integer too long to write
        return "unwritable"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def outcome_word(outcome: Outcome | None) -> str:
    """Returns how a call ended, in one word: "done", "error", "cancelled" or a fault's name.

    Other words are "input_required", "resource_required" and, where the call goes on after the reply, "promise".
    """
    if type(outcome) is Answer and type(outcome.value) is ToolResult:  # nearly all of them
        return "error" if outcome.value.is_error else "done"
    match outcome:
        case None:
            return "cancelled"
        case Answer():
            return "done"
        case Failure(fault):
            return fault.name.lower()
        case InputRequired():
            return "input_required"
        case ResourceRequired():
            return "resource_required"
        case Promise():
            return "promise"
        case _:
            assert_never(outcome)
