"""Round trips a second over stdio: `tools/call` of `add(a, b)`, one at a time and 32 in flight.

This process is the client, with bare blocking pipes; the servers run at once and are loaded in turn, in a new
order each round. With many in flight, client and servers have a core each. One at a time they take turns and
share one, or most of the time would be one core waking the other. `bare` echoes lines on asyncio.
"""

import contextlib
import random
import statistics
from typing import NamedTuple

from bench import messages, report
from bench.machine import CLIENT_CORE, CPU_NOTES, SERVER_CORE, run_on_core
from bench.options import BenchOptions
from bench.peers import BARE, OURS, InstalledPeers
from bench.report import BenchReport, FigureTable
from bench.server_process import StdioLoad, StdioServerProcess
from deltamcp.values import Era

_ERAS = (Era.MODERN, Era.HANDSHAKE)
IDS = 1024
WARMING_SECONDS = 0.2


class StdioCase(NamedTuple):
    """One line of a table: a server in one era."""

    name: str
    server: str
    era: Era


def measure(options: BenchOptions) -> BenchReport:
    names = (OURS, *options.peers.names)
    cases = [
        StdioCase("bare", BARE, Era.MODERN),
        *(StdioCase(f"{name} {era.value}", name, era) for name in names for era in _ERAS),
    ]
    with contextlib.ExitStack() as stack:
        ready = {case: stack.enter_context(StdioServerProcess(case.server, "add")) for case in cases}
        for case, process in ready.items():
            _check(case, process)
        loads = {in_flight: _load_in_rounds(ready, in_flight, options) for in_flight in (1, 32)}
    tables = [_table(in_flight, cases, loaded, options.peers) for in_flight, loaded in loads.items()]
    verdicts = [
        report.at_least(
            f"stdio tools/call {era.value}, {in_flight} in flight: ours / sdk",
            report.median_ratio(_speeds(loaded, f"ours {era.value}"), _speeds(loaded, f"sdk {era.value}")),
            10,
        )
        for in_flight, loaded in loads.items()
        for era in _ERAS
        if f"sdk {era.value}" in loaded
    ]
    return BenchReport(tables, verdicts)


def _check(case: StdioCase, process: StdioServerProcess) -> None:
    """
    Raises:
        RuntimeError: the server answers wrongly.
    """
    if case.era is Era.HANDSHAKE:
        process.handshake()
    reply = process.ask(messages.call(case.era))
    right = reply.strip() == messages.call(case.era) if case.server == BARE else messages.call_text(reply) == "5"
    if not right:
        raise RuntimeError(f"{case.name} answers {reply[:500]!r}")


def _load_in_rounds(
    ready: dict[StdioCase, StdioServerProcess], in_flight: int, options: BenchOptions
) -> dict[str, list[StdioLoad]]:
    seconds = options.seconds / 2
    lines = {era: [messages.call(era, id=place) for place in range(2, IDS)] for era in Era}
    loaded: dict[str, list[StdioLoad]] = {case.name: [] for case in ready}
    with run_on_core(SERVER_CORE if in_flight == 1 else CLIENT_CORE):
        for case, process in ready.items():
            process.load(lines[case.era], in_flight, min(WARMING_SECONDS, seconds))
        for _ in range(options.rounds):
            for case in random.sample(list(ready), len(ready)):
                loaded[case.name].append(ready[case].load(lines[case.era], in_flight, seconds))
    return loaded


def _speeds(loaded: dict[str, list[StdioLoad]], name: str) -> list[float]:
    return [load.per_second for load in loaded[name]]


def _table(
    in_flight: int, cases: list[StdioCase], loaded: dict[str, list[StdioLoad]], peers: InstalledPeers
) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = []
    for case in cases:
        speeds = _speeds(loaded, case.name)
        of_bare = report.median_ratio(speeds, _speeds(loaded, "bare"))
        times = report.median_ratio(_speeds(loaded, f"ours {case.era.value}"), speeds)
        cpu = statistics.median(load.cpu_us for load in loaded[case.name])
        rows.append((case.name, [statistics.median(speeds), of_bare, times, report.finite_or_none(cpu)]))
    how = "A Python client on blocking pipes, which bounds the bare side too; medians over rounds."
    columns = ["round trips/s", "of bare", "ours is × it", "CPU µs each"]
    return FigureTable(
        f"stdio tools/call of add(a, b), {in_flight} in flight", how, columns, rows, [*peers.missing, *CPU_NOTES]
    )
