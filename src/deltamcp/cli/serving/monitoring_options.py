"""The options of `delta-mcp serve` for metrics and traces.

The page of metrics may have an address of its own. Spans of calls are exported as the environment variables of
OpenTelemetry say.
"""

import argparse
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deltamcp.cli.serving import log
from deltamcp.cli.serving.log import LogOptions
from deltamcp.cli.serving.network_options import parse_address
from deltamcp.errors import ConfigurationError
from deltamcp.server import DeltaServer

if TYPE_CHECKING:
    from deltamcp.transports.metrics import Metrics

_INSTALL = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"


class MetricsOptions(Struct, frozen=True):
    """Where the metrics are shown, if at all, and what they count."""

    shown: bool = False
    address: tuple[str, int] | None = None
    """An address of their own; None for that of the server."""
    counts_tokens: bool = False

    def bind(self, log_options: LogOptions) -> list[socket.socket]:
        """Binds the address that is the metrics' own, and says where they are.

        Raises:
            ConfigurationError: nobody can listen at this address.
        """
        if self.address is None:
            return []
        from deltamcp.transports.sockets import bind_sockets

        sockets = bind_sockets(*self.address)
        host, port = self.address[0], sockets[0].getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        log.tell(f"Metrics at {url}", log_options)
        return sockets

    def make(self, folder: Path | None = None) -> "Metrics | bool":
        """Returns the metrics, which processes share by a folder; False if nobody asked for any.

        Raises:
            ConfigurationError: they need a package that is not installed.
        """
        if not self.shown:
            return False
        from deltamcp.transports.metrics import Metrics

        return Metrics(on_main_port=self.address is None, counts_tokens=self.counts_tokens, folder=folder)


def add_metrics_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--metrics",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="with --http: show Prometheus metrics at /metrics, or at an address of their own",
    )
    verb.add_argument(
        "--metrics-tokens", action="store_true", help="with --metrics: count the tokens of every result too"
    )


def read_metrics_options(args: argparse.Namespace) -> MetricsOptions:
    """
    Raises:
        ConfigurationError: the address is not one.
    """
    address = parse_address("--metrics", args.metrics) if args.metrics else None
    return MetricsOptions(args.metrics is not None, address, args.metrics_tokens)


def add_tracing_option(verb: argparse.ArgumentParser) -> None:
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
