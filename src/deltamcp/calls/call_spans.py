"""OpenTelemetry spans of calls, by its semantic conventions for MCP (status: development).

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deltamcp.calls.observers import ObservedCall
from deltamcp.errors import FAULTS, ConfigurationError
from deltamcp.values import JSON, Answer, Era, Failure, Terms, ToolResult
from deltamcp.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

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
