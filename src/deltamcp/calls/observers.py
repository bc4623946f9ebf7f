"""Observers of calls, which the server notifies when a call starts and when it ends: the call log, and spans.

    logging.getLogger("deltamcp.calls").setLevel(logging.INFO)

A line has a hash of the arguments, which shows that two calls had the same arguments and reveals nothing else of them.

Spans of OpenTelemetry follow the semantic conventions for MCP (status: development):
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

import functools
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, assert_never, runtime_checkable

from msgspec import UNSET, Struct

from deltamcp.calls.request_context import RequestContext
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.errors import FAULTS, ConfigurationError, Fault
from deltamcp.results import content
from deltamcp.results.blocks import count_result
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.values import (
    JSON,
    Answer,
    Caller,
    Era,
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
from deltamcp.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

logger: logging.Logger = logging.getLogger("deltamcp")


class CountedTokens(Struct, gc=False):
    """The tokens of one call's result: without a gateway, and as it was sent; None until a ledger has counted them."""

    before: int | None = None
    after: int | None = None


class ObservedCall:
    """One call of an operation. `outcome`, `seconds` and the token counts are set when the call has finished."""

    outcome: Outcome | None = None
    """None if the call was cancelled."""
    seconds: float = 0.0
    value: Any = UNSET
    """The value that the function returned; UNSET if it did not return."""
    counted: CountedTokens | None = None
    """What a gateway's ledger counts, a second after the call; None without a ledger."""

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
        _notify(self._observers, lambda observer: observer.tools_listed(page, request))

    def meta_tool_replied(self, meta: MetaTool, outcome: Outcome, request: RequestContext) -> None:
        _notify(self._observers, lambda observer: observer.meta_tool_replied(meta, outcome, request))


T = TypeVar("T")


def _notify(observers: Iterable[T], tell: Callable[[T], None]) -> None:
    for observer in observers:
        try:
            tell(observer)
        except Exception:
            logger.exception("an observer failed")


class Observation:
    """Notifies the active observers of the start and the end of one call."""

    __slots__ = ("_observers", "_start_time", "call")

    def __init__(self, call: ObservedCall, observers: Sequence[CallObserver]) -> None:
        self.call: ObservedCall = call
        self._observers = observers
        self._start_time = time.perf_counter()
        _notify(observers, lambda observer: observer.call_started(call))

    def finish(self, outcome: Outcome | None) -> None:
        """Ends the call; `outcome` is None if it was cancelled."""
        call = self.call
        call.seconds = time.perf_counter() - self._start_time
        call.outcome = outcome
        _notify(self._observers, lambda observer: observer.call_finished(call))


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


CONTEXT_KEYS = ("traceparent", "tracestate", "baggage")
"""The keys of `_meta` that have a trace context: MCP 2026-07-28, "OpenTelemetry trace context" (SEP-414)."""
_MAX_CHARS = 8192
"""The characters of a value that are read; W3C Baggage asks for no more to be passed on."""
_ID_CHARS = 64


class CallSpans:
    """Makes a span of every call of an operation: `DeltaServer(observers=[CallSpans()])`.

    The span is current while the author's function runs, also in a thread, so that spans of the function are its
    children. Its parent is the trace context in the request's `_meta`, else the current span, else the trace context in
    the HTTP headers. While the program has set no tracer provider, calls cost nothing more.
    """

    def __init__(self, tracer_provider: "TracerProvider | None" = None) -> None:
        """`tracer_provider` is by default the one that the program sets, now or later.

        Raises:
            ConfigurationError: opentelemetry-api is not installed.
        """
        try:
            from opentelemetry import context, propagate, trace
        except ImportError:
            raise ConfigurationError("Spans need opentelemetry-api: pip install 'delta-mcp[tracing]'.") from None
        self._context, self._propagate, self._trace = context, propagate, trace
        self._has_provider = tracer_provider is not None
        self._tracer = trace.get_tracer("deltamcp", VERSION, tracer_provider)
        self._open: dict[int, tuple[Span, Any]] = {}

    @property
    def is_active(self) -> bool:
        """Whether somebody has set a tracer provider."""
        return self._has_provider or not isinstance(self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider)

    def call_started(self, call: ObservedCall) -> None:
        """Begins the span, below that of the request."""
        parent, links = self._find_parent(call)
        name = f"tools/call {call.name}" if call.is_known else "tools/call"
        kind = self._trace.SpanKind.SERVER
        span = self._tracer.start_span(name, parent, kind, _attributes(call), links)
        token = self._context.attach(self._trace.set_span_in_context(span, parent))
        self._open[id(call)] = span, token

    def call_finished(self, call: ObservedCall) -> None:
        """Ends the span, with what came of the call."""
        span, token = self._open.pop(id(call))
        self._context.detach(token)
        error = _find_error(call)
        if error is not None:
            type_, description = error
            span.set_attribute("error.type", type_)
            if isinstance(call.outcome, Failure):
                span.set_attribute("rpc.response.status_code", type_)
            span.set_status(self._trace.StatusCode.ERROR, description)
        span.end()

    def _find_parent(self, call: ObservedCall) -> "tuple[Context, list[Link]]":
        """Returns the context of the span, and a link to the transport's span if `_meta` names another."""
        current = self._context.get_current()
        if not self._span_context(current).is_valid:
            headers = {key: call.headers.get(key.encode(), b"").decode("latin-1") for key in CONTEXT_KEYS}
            current = self._propagate.extract(_read_carrier(headers), current)
        carrier = _read_carrier(call.terms.meta)
        if not carrier:
            return current, []
        transport = self._span_context(current)
        parent = self._propagate.extract(carrier, current)
        is_linked = transport.is_valid and self._span_context(parent) != transport
        return parent, [self._trace.Link(transport)] if is_linked else []

    def _span_context(self, context: "Context") -> Any:
        return self._trace.get_current_span(context).get_span_context()


def _read_carrier(values: Mapping[str, JSON]) -> dict[str, str]:
    found = {key: values.get(key) for key in CONTEXT_KEYS}
    return {key: value for key, value in found.items() if isinstance(value, str) and 0 < len(value) <= _MAX_CHARS}


def _attributes(call: ObservedCall) -> dict[str, Any]:
    terms: Terms = call.terms
    attributes: dict[str, Any] = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": terms.version,
        "gen_ai.operation.name": "execute_tool",
        "jsonrpc.request.id": str(call.request_id)[:_ID_CHARS],
    }
    if call.is_known:
        attributes["gen_ai.tool.name"] = call.name
    if call.headers:
        attributes |= {"network.transport": "tcp", "network.protocol.name": "http"}
    connection = terms.caller.connection
    if connection is not None:
        # Whoever has a session id may use the session, so that a span has its hash.
        attributes["mcp.session.id"] = hashlib.sha256(connection.encode()).hexdigest()[:32]
    return attributes


def _find_error(call: ObservedCall) -> tuple[str, str | None] | None:
    """Returns the `error.type` of a call and the description of its status; None if it succeeded."""
    match call.outcome:
        case None:
            return "cancelled", None
        case Failure(fault, message):
            row = FAULTS[fault]
            return str(row.modern if call.terms.era is Era.MODERN else row.handshake), message
        case Answer(ToolResult(is_error=True)):
            return "tool_error", None
        case _:
            return None
