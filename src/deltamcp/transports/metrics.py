"""Prometheus metrics: counts calls and HTTP responses, and writes the page that a Prometheus server reads.

Labels have few values: operations that exist, outcomes, faults; nothing of who calls or of what with.
"""

import asyncio
import functools
import platform
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deltamcp.calls.engine import Engine
from deltamcp.calls.observers import ObservedCall, outcome_word
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.metric_values import BUCKETS, Histogram, Key, MetricFolder, MetricValues, Snapshot
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import WHOLE_RESPONSE, HeaderList, Receive, Scope, Send
from deltamcp.transports.http.pages import OpenPages
from deltamcp.values import Failure
from deltamcp.version import VERSION

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
from collections.abc import Hashable

from deltamcp.runtime.quota import LoopTurns

PAGE_SECONDS = 1.0
"""How old a page may be before the next one is made for whoever asks."""
_PAGES_AT_ONCE = 4
"""The pages that begin to be sent in one iteration of the event loop; to copy a megabyte to a socket takes 1 ms."""


class SharedPage:
    """One page, for anybody."""

    def __init__(self, begin: Callable[[], Callable[[], bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            begin: Reads what the page shows, on the event loop; what it returns writes the page, in a thread.
        """
        self._begin = begin
        self._clock = clock
        self._turns = LoopTurns(_PAGES_AT_ONCE)
        self._begun_at = 0.0
        self._page: asyncio.Task[bytes] | None = None

    async def read(self, account: Hashable) -> bytes:
        """Returns the page; accounts that wait for it get it in turn."""
        page = self._page
        if page is None or (page.done() and self._is_old(page)):
            self._begun_at = self._clock()
            page = self._page = asyncio.get_running_loop().create_task(self._make())
        body = await asyncio.shield(page)
        await self._turns.take(account)
        return body

    def _is_old(self, page: "asyncio.Task[bytes]") -> bool:
        return page.cancelled() or page.exception() is not None or self._clock() >= self._begun_at + PAGE_SECONDS

    async def _make(self) -> bytes:
        return await asyncio.to_thread(self._begin())


METRICS_PATH = "/metrics"
UNKNOWN_OPERATION = "(unknown)"
OTHER_OPERATION = "(other)"
_MAX_OPERATIONS = 1000
"""The operations that are counted apart; a server whose operations come and go may have had any number."""
_WRITE_SECONDS = 1.0
"""How often a process writes its metrics for the others; what a killed process did since is lost."""


class MetricRow(NamedTuple):
    """One metric, as it is documented."""

    type: str
    labels: tuple[str, ...]
    help: str


CALLS = "delta_mcp_calls_total"
CALL_SECONDS = "delta_mcp_call_seconds"
TOKENS = "delta_mcp_result_tokens_total"
RESPONSES = "delta_mcp_http_responses_total"
REFUSALS = "delta_mcp_http_refusals_total"
IN_FLIGHT = "delta_mcp_requests_in_flight"
SESSIONS = "delta_mcp_sessions"
STREAMS = "delta_mcp_streams"
STORE_ERRORS = "delta_mcp_store_errors_total"
STORE_UNREACHABLE = "delta_mcp_store_unreachable"
UPSTREAM_STATE = "delta_mcp_upstream_state"
UPSTREAM_RESTARTS = "delta_mcp_upstream_restarts_total"
UPSTREAM_CALLS = "delta_mcp_upstream_open_calls"
PROCESSES = "delta_mcp_processes"
BUILD = "delta_mcp_build_info"

METRICS: Mapping[str, MetricRow] = {
    CALLS: MetricRow("counter", ("operation", "outcome"), "Calls of operations that have ended."),
    CALL_SECONDS: MetricRow("histogram", ("operation",), "How long calls of operations took, in seconds."),
    TOKENS: MetricRow("counter", ("stage",), "Tokens of results before and after the server made them fit."),
    RESPONSES: MetricRow("counter", ("status",), "HTTP responses that have begun, by class of status."),
    REFUSALS: MetricRow("counter", ("reason",), "HTTP and gRPC requests that were refused, by reason."),
    IN_FLIGHT: MetricRow("gauge", (), "MCP requests over HTTP that are served now."),
    SESSIONS: MetricRow("gauge", (), "Sessions that processes hold now."),
    STREAMS: MetricRow("gauge", (), "Event streams that are open now, without those of calls."),
    STORE_ERRORS: MetricRow("counter", (), "Operations of the store that failed."),
    STORE_UNREACHABLE: MetricRow("gauge", (), "Processes that do not reach the store now."),
    UPSTREAM_STATE: MetricRow(
        "gauge", ("upstream", "state"), "Processes for which a server behind the gateway is in this state now."
    ),
    UPSTREAM_RESTARTS: MetricRow("counter", ("upstream",), "How often a server behind the gateway was started again."),
    UPSTREAM_CALLS: MetricRow(
        "gauge", ("upstream",), "Requests that a server behind the gateway has not answered yet."
    ),
    PROCESSES: MetricRow("gauge", (), "Processes that serve now."),
    BUILD: MetricRow("gauge", ("version", "python"), "Always 1; the versions that run."),
}

_OPENMETRICS = "application/openmetrics-text"
_FORMATS = ("", _OPENMETRICS)
"""What clients accept, by which prometheus-client chooses a format; by their own headers it would have any number."""
_STATUS_KEYS = {number: (RESPONSES, f"{number}xx") for number in range(1, 6)}


class Metrics:
    """The metrics of one HTTP application: `HttpOptions(metrics=True)`. It is a `CallObserver`."""

    is_active = True

    def __init__(
        self,
        *,
        on_main_port: bool = True,
        counts_tokens: bool = False,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            on_main_port: Whether the page is beside the MCP endpoint; else it is only where `show_page` is served.
            counts_tokens: Whether to count the tokens of every result; else they are counted where another observer
                has counted them.
            folder: Where the processes of one server write their metrics, so that the page has the sum.
            clock: Says how old a page is.

        Raises:
            ConfigurationError: prometheus-client is not installed.
        """
        try:
            import prometheus_client.exposition
        except ImportError:
            raise ConfigurationError("Metrics need prometheus-client: pip install 'delta-mcp[metrics]'.") from None
        self._exposition = prometheus_client.exposition
        self._pages = {accept: SharedPage(functools.partial(self._begin_page, accept), clock) for accept in _FORMATS}
        self._on_main_port = on_main_port
        self._counts_tokens = counts_tokens
        self._folder = None if folder is None else MetricFolder(folder)
        self._values = MetricValues(self._gauges)
        self._durations: dict[str, Histogram] = {}
        self._engine: Engine | None = None
        self._count_sessions: Callable[[], int] = int
        self._quotas: HttpQuotas | None = None

    def attach(self, engine: Engine, quotas: HttpQuotas, count_sessions: Callable[[], int], pages: OpenPages) -> None:
        """Begins to count what an application does; adds the page to its pages, unless it has an address of its own."""
        self._engine, self._quotas, self._count_sessions = engine, quotas, count_sessions
        engine.add_observer(self)
        if self._on_main_port:
            pages.add(METRICS_PATH, self.show_page)
        if self._folder is not None:
            engine.lifespan.add_task(self._keep_written)

    # Calls

    def call_started(self, call: ObservedCall) -> None:
        """Does nothing: a call counts when it has ended."""

    def call_finished(self, call: ObservedCall) -> None:
        name, values = call.label, self._values
        durations = self._durations.get(name) if call.is_known else None
        if durations is None:
            name, durations = self._find_durations(call)
        values.add((CALLS, name, outcome_word(call.outcome)))
        durations.add(call.seconds)
        if self._counts_tokens or "tokens_after" in call.__dict__:
            values.add((TOKENS, "before"), call.tokens_before or 0)
            values.add((TOKENS, "after"), call.tokens_after or 0)

    def _find_durations(self, call: ObservedCall) -> tuple[str, Histogram]:
        """Returns the label of a call that has ended, and the histogram of its duration."""
        label = call.label if call.is_known else UNKNOWN_OPERATION
        if label not in self._durations and len(self._durations) >= _MAX_OPERATIONS:
            label = OTHER_OPERATION
        durations = self._durations[label] = self._values.histogram((CALL_SECONDS, label))
        return label, durations

    # HTTP

    def watch(self, scope: Scope, send: Send) -> Send:
        """Returns a `send` that counts the response; so does the server's own way to send one at once."""
        add = self._values.add
        whole = scope.get(WHOLE_RESPONSE)
        if whole is not None:

            def send_whole(status: int, body: bytes, headers: HeaderList) -> Awaitable[None] | None:
                add(_STATUS_KEYS[status // 100])
                sending: Awaitable[None] | None = whole(status, body, headers)
                return sending

            scope[WHOLE_RESPONSE] = send_whole

        async def send_and_count(message: Any) -> None:
            if message["type"] == "http.response.start":
                add(_STATUS_KEYS[message["status"] // 100])
            await send(message)

        return send_and_count

    def count_refusal(self, failure: Failure) -> None:
        """Counts a request that is refused with this failure."""
        self._values.add((REFUSALS, failure.fault.name.lower()))

    # The page

    async def show_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the metrics of all processes, as they were within the last second, to whoever asks."""
        if scope["method"] not in ("GET", "HEAD"):
            await asgi.respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        asked = _OPENMETRICS if any(one.partition(";")[0].strip() == _OPENMETRICS for one in accept.split(",")) else ""
        _, content_type = self._exposition.choose_encoder(asked)
        body = await self._pages[asked].read(asgi.client_address(scope))
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})  # at once: the pieces would be copies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the page at an address of its own."""
        if scope["type"] == "http" and scope["path"] == METRICS_PATH:
            await self.show_page(scope, receive, send)
        elif scope["type"] == "http":
            await asgi.respond(send, 404, b"")

    def _begin_page(self, accept: str) -> Callable[[], bytes]:
        encode, _ = self._exposition.choose_encoder(accept)
        snapshot, folder = self._snapshot(), self._folder
        if folder is None:
            return lambda: encode(_Collected(snapshot))
        folder.write(snapshot)  # first, so that no later page of another process shows less
        return lambda: encode(_Collected(folder.read_total()))

    def _snapshot(self) -> Snapshot:
        assert self._engine is not None, "the metrics are attached"
        # A store in memory has no circuit breaker, and does not fail.
        self._values.set_counter((STORE_ERRORS,), getattr(self._engine.store, "error_count", 0))
        for key, count in self._engine.own_metrics().items():
            if METRICS[key[0]].type == "counter":
                self._values.set_counter(key, count)
        return self._values.snapshot()

    def _gauges(self) -> dict[Key, float]:
        assert self._engine is not None and self._quotas is not None, "the metrics are attached"
        own = self._engine.own_metrics()
        return {
            **{key: value for key, value in own.items() if METRICS[key[0]].type == "gauge"},
            (IN_FLIGHT,): self._quotas.calls.held,
            (SESSIONS,): self._count_sessions(),
            (STREAMS,): self._quotas.streams.held,
            (STORE_UNREACHABLE,): float(getattr(self._engine.store, "is_unreachable", False)),
            (PROCESSES,): 1,
        }

    async def _keep_written(self) -> None:
        assert self._folder is not None, "else nothing is written"
        last: Snapshot | None = None
        try:
            while True:
                snapshot = self._snapshot()
                if snapshot != last:
                    self._folder.write(snapshot)
                    last = snapshot
                await asyncio.sleep(_WRITE_SECONDS)
        finally:
            self._folder.write(self._snapshot())


def find_metrics(asked: Metrics | bool) -> Metrics | None:
    """Returns the metrics that the option `metrics` asks for."""
    return (Metrics() if asked else None) if isinstance(asked, bool) else asked


class _Collected:
    """A snapshot as prometheus_client takes it: a registry that has nothing but it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> "Iterable[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        makers = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        families: dict[str, Any] = {
            name: makers[row.type](name, row.help, labels=row.labels) for name, row in METRICS.items()
        }
        for (name, *labels), value in (*self._snapshot.counters, *self._snapshot.gauges):
            families[name].add_metric(labels, value)
        for (name, *labels), counts in self._snapshot.histograms:
            families[name].add_metric(labels, _cumulative_counts(counts), counts[-1])
        versions = [VERSION, platform.python_version()]
        families[BUILD].add_metric(versions, 1)
        return families.values()


def _cumulative_counts(counts: list[float]) -> list[tuple[str, float]]:
    """Returns the number of durations up to each bound, as Prometheus wants them."""
    found, so_far = [], 0.0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts[:-1], strict=True):
        so_far += count
        found.append((bound, so_far))
    return found
