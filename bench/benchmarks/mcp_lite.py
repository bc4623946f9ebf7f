"""MCP-lite over HTTP beside MCP: the same tool of the same server process, asked at both paths.

The paths are loaded in turn, in a new order each round; ratios are taken inside each round.
"""

import json
import random
import statistics
from typing import NamedTuple

from bench import load, messages, report
from bench.machine import CPU_NOTES
from bench.options import BenchOptions
from bench.peers import OURS
from bench.report import BenchReport, FigureTable, Verdict
from bench.server_process import HttpServerProcess
from deltamcp.values import Era

MCP, MCP_LITE = "/mcp", "/mcp-lite/v1/calltools"
WARMING = 200
CONNECTIONS = (32, 1)
TARGET = 0.9


class PathLoad(NamedTuple):
    """One path under load once."""

    per_second: float
    p50_ms: float
    cpu_us: float
    """NaN where it is not known."""


def measure(options: BenchOptions) -> BenchReport:
    tables, verdicts = [], []
    with HttpServerProcess(OURS, "add") as process:
        templates = {path: _template(process, path) for path in (MCP, MCP_LITE)}
        for connections in CONNECTIONS:
            table, verdict = _measure(process, templates, options, connections)
            tables.append(table)
            verdicts.append(verdict)
    return BenchReport(tables, verdicts)


def _template(process: HttpServerProcess, path: str) -> load.RequestTemplate:
    """
    Raises:
        RuntimeError: the server answers wrongly.
    """
    if path == MCP:
        body, headers = messages.call(Era.MODERN), messages.headers(Era.MODERN, "tools/call", "add")
    else:
        body = messages.call(Era.HANDSHAKE)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
    for _ in range(WARMING):
        reply, _session = process.post(body, headers, path)
        if messages.call_text(reply) != "5":
            raise RuntimeError(f"{path} adds 2 and 3 to {reply!r}")
    if path == MCP_LITE and json.loads(reply)["result"]["_meta"]["response_type"] != "answer":
        raise RuntimeError(f"{path} answers {reply!r}")
    before, after = body.decode().split('"id":1,')
    return load.RequestTemplate(headers, f'{before}"id":', f",{after}", path)


def _measure(
    process: HttpServerProcess, templates: dict[str, load.RequestTemplate], options: BenchOptions, connections: int
) -> tuple[FigureTable, Verdict]:
    loads: dict[str, list[PathLoad]] = {path: [] for path in templates}
    for _ in range(options.rounds):
        for path in random.sample(list(templates), len(templates)):
            loads[path].append(_load(process, templates[path], connections, options.seconds))
    ratio = report.median_ratio(*([one.per_second for one in loads[path]] for path in (MCP_LITE, MCP)))
    rows: list[tuple[str, list[float | None]]] = []
    for path, runs in loads.items():
        speed, p50, cpu = (statistics.median(figure) for figure in zip(*runs, strict=True))
        rows.append((path, [speed, p50, report.finite_or_none(cpu)]))
    asked = f"{connections} connection{'s' if connections > 1 else ''}"
    table = FigureTable(
        f"tools/call of add(a, b) at both paths of one server, {asked}",
        "Medians over rounds.",
        ["req/s", "p50 ms", "CPU µs/req"],
        rows,
        [f"loaded by {load.generator()}", *CPU_NOTES],
    )
    return table, report.at_least(f"MCP-lite / MCP over HTTP, requests a second, {asked}", ratio, TARGET)


def _load(process: HttpServerProcess, template: load.RequestTemplate, connections: int, seconds: float) -> PathLoad:
    """
    Raises:
        RuntimeError: requests failed.
    """
    cpu = process.server.cpu_seconds()
    totals = load.run_load(process.port, template, connections, seconds)
    cpu = process.server.cpu_seconds() - cpu
    if totals.errors or not totals.requests:
        raise RuntimeError(f"{template.path} under load: {totals}")
    per_second = totals.requests / totals.microseconds * 1e6
    return PathLoad(per_second, totals.p50_us / 1e3, cpu / totals.requests * 1e6)
