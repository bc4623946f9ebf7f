"""Requests a second over Streamable HTTP, one server process each.

All servers run at once on one core and are loaded in turn from another, in a new order each round. `bare`
answers the very bytes that ours answers, without reading the request, on the same uvicorn.
"""

import contextlib
import random
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import listed_tools, load, messages, report
from bench.machine import CPU_NOTES
from bench.options import BenchOptions
from bench.peers import BARE, OURS, THIN, InstalledPeers
from bench.report import BenchReport, FigureTable, Verdict
from bench.server_process import HttpServerProcess
from deltamcp.values import Era

_ERAS = (Era.MODERN, Era.HANDSHAKE)
WARMING = 100
"""Requests to each server before the first load."""


class HttpCase(NamedTuple):
    """One line of a table: a server in one era."""

    name: str
    server: str
    era: Era
    shipped: bool = False

    @property
    def process(self) -> tuple[str, bool]:
        """What tells server processes apart."""
        return self.server, self.shipped


class HttpLoad(NamedTuple):
    """One case under load once."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """NaN where it is not known."""


class ReadyCase(NamedTuple):
    """A case whose server runs and was seen to answer rightly."""

    case: HttpCase
    process: HttpServerProcess
    session: str | None
    template: load.RequestTemplate
    reply: bytes


_BARE, _THIN = HttpCase("bare", BARE, Era.MODERN), HttpCase("thin", THIN, Era.MODERN)


def measure(options: BenchOptions) -> BenchReport:
    calls, verdicts = _measure_calls(options)
    lists, more = _measure_lists(options)
    return BenchReport([*calls, lists], [*verdicts, *more])


def _measure_calls(options: BenchOptions) -> tuple[list[FigureTable], list[Verdict]]:
    peers = options.peers
    shipped = [HttpCase(f"{name} {era.value}, shipped", name, era, True) for name in peers.names for era in _ERAS]
    with contextlib.ExitStack() as stack:
        ready = _start_servers(stack, [_BARE, _THIN, *_cases(peers), *shipped], "tools/call", "add")
        many = _load_in_rounds(ready, options, 32)
        fewer = [one for one in ready if not one.case.shipped]
        single = _load_in_rounds(fewer, options, 1)
    tables = [
        _table("HTTP tools/call of add(a, b), 32 connections", ready, many, peers),
        _table("HTTP tools/call of add(a, b), 1 connection", fewer, single, peers),
    ]
    if shipped:
        tables[0].notes.append("peers are set to answer in JSON, their faster form; `shipped` is how they come")
    verdicts = []
    for era in (era.value for era in _ERAS):
        ours = _speeds(many, f"ours {era}")
        targets = {"bare": 0.6, f"sdk {era}": 8, f"fastmcp {era}": 20, f"fastmcp {era}, shipped": 20}
        for name, target in targets.items():
            if name in many:
                share = report.median_ratio(ours, _speeds(many, name))
                verdicts.append(report.at_least(f"HTTP tools/call {era}, 32 connections: ours / {name}", share, target))
        tails = ([run.p99_ms for run in many[name]] for name in (f"ours {era}", "bare"))
        verdicts.append(
            report.at_most(f"HTTP tools/call {era}, 32 connections, p99: ours / bare", report.median_ratio(*tails), 3)
        )
    return tables, verdicts


def _measure_lists(options: BenchOptions) -> tuple[FigureTable, list[Verdict]]:
    with contextlib.ExitStack() as stack:
        tools = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tools.json"
        origin = listed_tools.write_tools(tools)
        ready = _start_servers(stack, [_BARE, *_cases(options.peers)], "tools/list", str(tools))
        loads = _load_in_rounds(ready, options, 32)
    table = _table(f"HTTP tools/list of {listed_tools.COUNT} tools, 32 connections", ready, loads, options.peers)
    table.notes.append(f"{origin}; the SDK's side is its low-level server with the tools made beforehand")
    bare = _speeds(loads, "bare")
    return table, [
        report.at_least(
            f"HTTP tools/list {era.value}: ours / bare",
            report.median_ratio(_speeds(loads, f"ours {era.value}"), bare),
            0.6,
        )
        for era in _ERAS
    ]


def _cases(peers: InstalledPeers) -> list[HttpCase]:
    return [HttpCase(f"{name} {era.value}", name, era) for name in (OURS, *peers.names) for era in _ERAS]


def _start_servers(stack: contextlib.ExitStack, cases: list[HttpCase], method: str, tools: str) -> list[ReadyCase]:
    """Starts every server, checks one answer of every case and warms it up."""
    servers = {
        (name, shipped): stack.enter_context(HttpServerProcess(name, tools, *(["shipped"] if shipped else [])))
        for name, shipped in dict.fromkeys(case.process for case in cases if case.server != BARE)
    }
    model = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "reply"
    model.write_bytes(_ask(servers[OURS, False], Era.MODERN, method, None))
    servers[BARE, False] = stack.enter_context(HttpServerProcess(BARE, tools, str(model)))
    ready = [_check(case, servers[case.process], method) for case in cases]
    for one in ready:
        for _ in range(WARMING):
            _ask(one.process, one.case.era, method, one.session)
    return ready


def _check(case: HttpCase, process: HttpServerProcess, method: str) -> ReadyCase:
    """
    Raises:
        RuntimeError: the server answers wrongly.
    """
    session = process.handshake() if case.era is Era.HANDSHAKE else None
    reply = _ask(process, case.era, method, session)
    if method == "tools/call" and messages.call_text(reply) != "5":
        raise RuntimeError(f"{case.name} adds 2 and 3 to {reply!r}")
    if method == "tools/list" and messages.tool_count(reply) != listed_tools.COUNT:
        raise RuntimeError(f"{case.name} lists {messages.tool_count(reply)} tools")
    before, after = _body(case.era, method).decode().split('"id":1,')
    headers = messages.headers(case.era, method, "add" if method == "tools/call" else None, session)
    return ReadyCase(case, process, session, load.RequestTemplate(headers, f'{before}"id":', f",{after}"), reply)


def _body(era: Era, method: str) -> bytes:
    return messages.call(era) if method == "tools/call" else messages.request(era, method)


def _ask(process: HttpServerProcess, era: Era, method: str, session: str | None) -> bytes:
    name = "add" if method == "tools/call" else None
    return process.post(_body(era, method), messages.headers(era, method, name, session))[0]


def _load_in_rounds(ready: list[ReadyCase], options: BenchOptions, connections: int) -> dict[str, list[HttpLoad]]:
    loads: dict[str, list[HttpLoad]] = {one.case.name: [] for one in ready}
    for _ in range(options.rounds):
        for one in random.sample(ready, len(ready)):
            loads[one.case.name].append(_load(one, options.seconds, connections))
    return loads


def _load(one: ReadyCase, seconds: float, connections: int) -> HttpLoad:
    """
    Raises:
        RuntimeError: replies failed, or were not those that were checked.
    """
    cpu = one.process.server.cpu_seconds()
    totals = load.run_load(one.process.port, one.template, connections, seconds)
    cpu = one.process.server.cpu_seconds() - cpu
    size = totals.bytes / max(1, totals.requests)
    if totals.errors or not totals.requests or not 0 < size - len(one.reply) < 600:
        raise RuntimeError(f"{one.case.name} under load: {totals}, where a reply has {len(one.reply)} bytes")
    per_second = totals.requests / totals.microseconds * 1e6
    return HttpLoad(per_second, totals.p50_us / 1e3, totals.p99_us / 1e3, cpu / totals.requests * 1e6)


def _speeds(loads: dict[str, list[HttpLoad]], name: str) -> list[float]:
    return [one.per_second for one in loads[name]]


def _table(title: str, ready: list[ReadyCase], loads: dict[str, list[HttpLoad]], peers: InstalledPeers) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = []
    for one in ready:
        runs = loads[one.case.name]
        ours = f"ours {one.case.era.value}"
        of_bare = report.median_ratio(_speeds(loads, one.case.name), _speeds(loads, "bare"))
        times = report.median_ratio(_speeds(loads, ours), _speeds(loads, one.case.name))
        by_cpu = report.median_ratio(*([run.cpu_us for run in loads[name]] for name in ("bare", one.case.name)))
        speed, p50, p99, cpu = (statistics.median(figure) for figure in zip(*runs, strict=True))
        known = [
            speed,
            of_bare,
            report.finite_or_none(by_cpu),
            times,
            p50,
            p99,
            report.finite_or_none(cpu),
            len(one.reply),
        ]
        rows.append((one.case.name, known))
    columns = ["req/s", "of bare", "by CPU", "ours is × it", "p50 ms", "p99 ms", "CPU µs/req", "reply bytes"]
    how = "Medians over rounds; ratios are taken inside each round; by CPU is bare's CPU time over this one's."
    return FigureTable(title, how, columns, rows, [f"loaded by {load.generator()}", *peers.missing, *CPU_NOTES])
