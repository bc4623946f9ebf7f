"""The log, metrics and traces of a server that `delta-mcp` runs, by its options.

The page of metrics may have an address of its own. Spans of calls are exported as the environment variables of
OpenTelemetry say.
"""

import argparse
import logging
import os
import socket
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deltamcp.cli.serving.network_options import parse_address
from deltamcp.cli.terminal.output import print_notice
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.files import open_own_file_to_append
from deltamcp.runtime.http_request_id import HttpRequestIdFilter
from deltamcp.runtime.log import JsonFormatter, LineFormatter, StderrHandler, take_what_python_prints
from deltamcp.server import DeltaServer

if TYPE_CHECKING:
    from deltamcp.transports.metrics import Metrics


LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_STDERR_FORMAT = "%(levelname)s %(name)s: %(message)s%(request_suffix)s"
_FILE_FORMAT = f"%(asctime)s {_STDERR_FORMAT}"
_LOST = "The log cannot be written to %s: %s; its records are lost until it can."

logger: logging.Logger = logging.getLogger("deltamcp")


class LogOptions(Struct, frozen=True):
    """What is logged, how and where."""

    level: str = "info"
    format: str = "text"
    file: Path | None = None
    """None for stderr."""


class LogFile(logging.FileHandler):
    """Appends every record with one write, so that the records of several processes stay whole.

    Only the user who runs the server can read the file. While it cannot be written, as on a full disk, records are lost
    and stderr says so once: what Python prints in this case is the record's error, raw and with its secrets.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", "utf-8")
        self._is_lost = False

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_own_file_to_append(Path(self.baseFilename)), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.stream is None:
                self.stream: TextIOWrapper | None = self._open()
            os.write(self.stream.fileno(), f"{self.format(record)}{self.terminator}".encode())
        except OSError as error:
            if not self._is_lost:
                path = self.baseFilename
                self._is_lost = True
                StderrHandler().handle(logging.makeLogRecord({"msg": _LOST, "args": (path, error.strerror)}))
        else:
            self._is_lost = False


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="the least that is logged (default info; debug also has a line for every call)",
    )
    verb.add_argument("--log-format", choices=FORMATS, default="text", help="lines of text, or one JSON object a line")
    verb.add_argument("--log-file", type=Path, metavar="FILE", help="where the log goes instead of to stderr")


def read_options(args: argparse.Namespace) -> LogOptions:
    return LogOptions(args.log_level, args.log_format, args.log_file)


def configure_log(options: LogOptions) -> None:
    """Sends what the server and its functions log to stderr or to a file; for a process that does nothing else.

    Raises:
        ConfigurationError: the file cannot be written, or is another user's.
    """
    path = options.file
    try:
        handler = StderrHandler() if path is None else LogFile(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another --log-file.") from None
    handler.addFilter(HttpRequestIdFilter())
    plain = LineFormatter(_STDERR_FORMAT if path is None else _FILE_FORMAT)
    handler.setFormatter(JsonFormatter() if options.format == "json" else plain)
    logging.basicConfig(level=options.level.upper(), handlers=[handler])
    take_what_python_prints()
    if options.level == "debug":
        logging.getLogger("deltamcp.calls").setLevel(logging.INFO)
        logging.getLogger("httpcore2").setLevel(logging.INFO)  # it would log headers, which hold keys


def redact_log(redact: Callable[[str], str]) -> None:
    """Has a function take secrets out of everything that the log has from now on, tracebacks included."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, LineFormatter):
            handler.formatter.redact = redact


def tell(sentence: str, options: LogOptions) -> None:
    """Tells the operator a sentence: a plain line on stderr, or a record where the log on stderr is JSON."""
    if options.format == "json" and options.file is None:
        logger.info("%s", sentence)
    else:
        print_notice(sentence)


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
        tell(f"Metrics at {url}", log_options)
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
    from deltamcp.calls.observers import CallSpans

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
