"""Observers of calls, which the server notifies when a call starts and when it ends. The call log is an observer."""

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import UNSET

from deltamcp.calls.request_context import RequestContext
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.results import content
from deltamcp.results.result_tokens import count_result
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.values import JSON, Answer, Caller, Outcome, Page, RawResult, RequestId, Terms, ToolResult

logger = logging.getLogger("deltamcp")


class ObservedCall:
    """One call of an operation. `outcome`, `seconds` and the token counts are set when the call has finished."""

    outcome: Outcome | None = None
    """None if the call was cancelled."""
    seconds = 0.0
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
        self.call = call
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
