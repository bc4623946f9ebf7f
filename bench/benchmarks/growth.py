"""What many tools cost, over stdio: the start, a list, a call.

Two processes for each side and size, in a random order: one is spawned and called at once in the modern era,
the other is spawned, shakes hands and is asked for the list. Then both are asked again and again, from their
own core. The tool called is the one in the middle.
"""

import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from bench import messages, report
from bench.machine import SERVER_CORE, run_on_core
from bench.options import BenchOptions
from bench.peers import OURS
from bench.ports import START_SECONDS
from bench.report import BenchReport, FigureTable
from bench.server_process import StdioServerProcess
from deltamcp.values import Era

SIZES = (10, 100, 1_000, 10_000)
PEER_SIZES = SIZES[:-1]
REPEAT_SECONDS = 0.4


class GrowthFigures(NamedTuple):
    """One server with so many tools, in ms."""

    first_call: float
    first_list: float
    list: float
    call: float
    handshake_call: float


class GrowthCase(NamedTuple):
    name: str
    server: str
    tools: str
    sizes: tuple[int, ...]


def measure(options: BenchOptions) -> BenchReport:
    cases = [
        GrowthCase("ours", OURS, "many", SIZES),
        GrowthCase("ours, described", OURS, "described", SIZES[2:]),
        *(GrowthCase(name, name, "many", SIZES if options.full else PEER_SIZES) for name in options.peers.names),
    ]
    order = [(case, size) for case in cases for size in case.sizes]
    found = {pair: _median(*pair) for pair in random.sample(order, len(order))}
    grown = {case: {size: found[case, size] for size in case.sizes} for case in cases}
    ours = grown[cases[0]]
    flat = ours[SIZES[-1]].call / ours[SIZES[0]].call
    flat_handshake = ours[SIZES[-1]].handshake_call / ours[SIZES[0]].handshake_call
    verdicts = [
        report.at_most(f"call modern: with {SIZES[-1]:,} tools / with {SIZES[0]}", flat, 1.3),
        report.at_most(f"call handshake: with {SIZES[-1]:,} tools / with {SIZES[0]}", flat_handshake, 1.3),
    ]
    for case in cases[:2]:
        start = grown[case][SIZES[-1]]
        slower = max(start.first_call, start.first_list) / 1e3
        verdicts.append(report.at_most(f"start with {SIZES[-1]:,} tools, {case.name}", slower, 2, " s"))
    tables = [_table(case, sizes, ours) for case, sizes in grown.items()]
    tables[-1].notes += options.peers.missing
    return BenchReport(tables, verdicts)


def _median(case: GrowthCase, size: int) -> GrowthFigures:
    """Measures quick starts, of which noise is a part, three times; others once."""
    runs = [_measure_case(case, size)]
    if max(runs[0].first_call, runs[0].first_list) < 500:
        runs += [_measure_case(case, size) for _ in range(2)]
    return GrowthFigures(*(statistics.median(figure) for figure in zip(*runs, strict=True)))


def _measure_case(case: GrowthCase, size: int) -> GrowthFigures:
    middle = f"search_{size // 2}"

    def call(process: StdioServerProcess, era: Era, id: int) -> None:
        reply = process.ask(messages.call(era, middle, {"query": "x"}, id), START_SECONDS)
        if messages.call_text(reply) != f"{size // 2}: x":
            raise RuntimeError(f"{case.name} answers {reply[:500]!r}")

    with StdioServerProcess(case.server, f"{case.tools}:{size}") as modern:
        call(modern, Era.MODERN, 1)
        first_call = modern.age * 1e3
        calls = _repeat(lambda id_: call(modern, Era.MODERN, id_))
    with StdioServerProcess(case.server, f"{case.tools}:{size}") as handshake:
        handshake.handshake()
        reply = handshake.ask(messages.request(Era.HANDSHAKE, "tools/list", id=1), START_SECONDS)
        first_list = handshake.age * 1e3
        if messages.tool_count(reply) != size:
            raise RuntimeError(f"{case.name} lists {messages.tool_count(reply)} of {size} tools")
        lists = _repeat(lambda id_: handshake.ask(messages.request(Era.HANDSHAKE, "tools/list", id=id_)))
        call(handshake, Era.HANDSHAKE, 1)
        handshake_calls = _repeat(lambda id_: call(handshake, Era.HANDSHAKE, id_))
    return GrowthFigures(first_call, first_list, lists, calls, handshake_calls)


def _repeat(act: Callable[[int], object]) -> float:
    """The median time of many, in ms."""
    times: list[float] = []
    end = time.perf_counter() + REPEAT_SECONDS
    with run_on_core(SERVER_CORE):
        while len(times) < 3 or time.perf_counter() < end:
            began = time.perf_counter()
            act(10 + len(times))
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def _table(case: GrowthCase, sizes: dict[int, GrowthFigures], ours: dict[int, GrowthFigures]) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = [
        (f"{size:,} tools", [*figures, figures.first_list / ours[size].first_list, figures.call / ours[size].call])
        for size, figures in sizes.items()
    ]
    how = {
        "many": "Four typed parameters each, alike in all tools.",
        "described": "The same parameters, each with a description and none like another.",
    }[case.tools]
    columns = [
        "spawn → first call",
        "spawn → first list",
        "list ms",
        "call ms",
        "handshake call ms",
        "start × ours",
        "call × ours",
    ]
    return FigureTable(f"Growth over stdio: {case.name}", how, columns, rows)
