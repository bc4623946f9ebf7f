"""`--tracing`: spans of calls, exported as the environment variables of OpenTelemetry say."""

import argparse
import os

from deltamcp.errors import ConfigurationError
from deltamcp.server import DeltaServer

_INSTALL = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--tracing",
        action="store_true",
        help="export an OpenTelemetry span of every call, as OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT... say",
    )


def trace_calls(server: DeltaServer) -> None:
    """Makes a span of every call of a server; sets the program's tracer provider unless something else has.

    Raises:
        ConfigurationError: the SDK or an exporter is not installed; the text says how to install it.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigurationError(f"--tracing needs the SDK of OpenTelemetry: {_INSTALL}.") from None
    from deltamcp.calls.call_spans import CallSpans

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": server.engine.info["name"]}
        provider = TracerProvider(resource=Resource.create(name))
        for exporter in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
            if exporter.strip() != "none":
                provider.add_span_processor(BatchSpanProcessor(_load_exporter(exporter.strip())()))
        trace.set_tracer_provider(provider)
    server.engine.add_observer(CallSpans())


def _load_exporter(name: str) -> type:
    """Returns the class of an exporter, by which packages register it."""
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    from importlib import metadata  # takes 20 ms

    for entry in metadata.entry_points(group="opentelemetry_traces_exporter", name=name):
        found: type = entry.load()
        return found
    raise ConfigurationError(f"There is no exporter {name} for OTEL_TRACES_EXPORTER; {_INSTALL}.")
