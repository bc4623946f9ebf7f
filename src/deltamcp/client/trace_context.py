"""The trace context of the program that calls, which the client passes on in `_meta` (MCP 2026-07-28, SEP-414)."""

import sys
from collections.abc import Mapping

from deltamcp.values import JSON


def add_trace_context(meta: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Returns a request's `_meta` with the current trace context, if the program uses OpenTelemetry and has one."""
    if "opentelemetry.trace" not in sys.modules:
        return meta
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    known: dict[str, JSON] = {key: carrier[key] for key in ("traceparent", "tracestate", "baggage") if key in carrier}
    return {**known, **meta} if known else meta
