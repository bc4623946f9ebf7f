"""How fast results are made to fit, in what memory; and whether odd and giant ones are read to their ends.

In process. To fit: from the value a tool returned to the first reply, the whole kept in this process. Memory: what is
allocated on the way at most, the kept result included, beside the value's own JSON. Odd results: what
`python -m bench results` says of a directory of them.
"""

import asyncio
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import report
from bench.corpora import results
from bench.options import BenchOptions
from bench.report import BenchReport, FigureTable
from bench.sample_results import MEGABYTE, SIZES_MB, make_keys, make_rows, make_text, write_odd_results
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.limits import Limits
from deltamcp.results.content import ResultData, convert_return_value
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.shown_result import FirstReply
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import MemoryStore
from deltamcp.values import ToolResult
from deltamcp.wire import jsonrpc

BUDGET = 2_000
ROUNDS = 9


def measure(options: BenchOptions) -> BenchReport:
    quick, verdicts = _measure_one_megabyte()
    grown, further = _measure_larger()
    odd, last = _measure_odd()
    return BenchReport([quick, grown, odd], [*verdicts, *further, *last])


def _measure_one_megabyte() -> tuple[FigureTable, list[report.Verdict]]:
    one = make_rows(MEGABYTE)
    values: dict[str, Any] = {
        "rows": one,
        '{"items": rows}': {"total": len(one), "items": one},
        "text": make_text(MEGABYTE, "\n"),
        "35,000 keys": make_keys(35_000),
    }
    found = {name: _milliseconds(value, ROUNDS) for name, value in values.items()}
    how = f"1 MB to {BUDGET:,} tokens, the median of {ROUNDS}."
    table = FigureTable("Results made to fit", how, ["ms"], [(name, [spent]) for name, spent in found.items()])
    return table, [report.at_most(f"1 MB to fit, {name}", spent, 15, " ms") for name, spent in found.items()]


def _measure_larger() -> tuple[FigureTable, list[report.Verdict]]:
    lines: list[tuple[str, list[float | None]]] = []
    verdicts: list[report.Verdict] = []
    kinds: dict[str, Callable[[int], Any]] = {"rows": make_rows, "string": make_text}
    for name, make in kinds.items():
        values = [make(size * MEGABYTE) for size in SIZES_MB]
        times = [_milliseconds(value, 3) for value in values]
        memory = _memory_ratio(values[-1])
        lines.append((name, [*times, times[-1] / times[0] / (SIZES_MB[-1] / SIZES_MB[0]), memory]))
        verdicts.append(report.at_most(f"{SIZES_MB[-1]} MB to fit, {name}", times[-1], 600, " ms"))
        verdicts.append(report.at_most(f"{SIZES_MB[-1]} MB to fit, {name}: memory / its JSON", memory, 3))
    columns = [*(f"{size} MB, ms" for size in SIZES_MB), "growth / size's", f"{SIZES_MB[-1]} MB, memory / JSON"]
    return FigureTable("The same of larger ones", f"To {BUDGET:,} tokens, the median of 3.", columns, lines), verdicts


def _measure_odd() -> tuple[FigureTable, list[report.Verdict]]:
    with tempfile.TemporaryDirectory() as folder:
        write_odd_results(Path(folder), SIZES_MB[-1] * MEGABYTE)
        found = results.run(Path(folder))
    slow = [(row["file"], [b["seconds"] for b in row["budgets"].values()]) for row in found["files"]]
    slowest = sorted(slow, key=lambda one: -sum(one[1]))[:12]
    summary = found["summary"]
    how = f"{summary['results']} results of {summary['files']} files, the slowest to be read to their ends, in s."
    columns = [f"{budget:,} tokens" for budget in results.BUDGETS]
    table = FigureTable("Odd and giant results", how, columns, [(name, [*spent]) for name, spent in slowest])
    counted = [budget for row in found["files"] for budget in row["budgets"].values()]
    replies, readings = sum(budget["replies"] for budget in counted), summary["results"] * len(results.BUDGETS)
    return table, [
        report.at_least("odd results: replies within budget", replies - summary["budget_overruns"], replies),
        report.at_least("odd results: recovered", readings - summary["not_recovered"], readings),
        report.at_least(
            "odd results: no dearer than compact", summary["results"] - summary["above_compact"], summary["results"]
        ),
    ]


def _milliseconds(value: Any, rounds: int) -> float:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        reply = _fit(value)
        times.append(time.perf_counter() - began)
        if results.cost(reply) > BUDGET:
            raise RuntimeError(f"a reply of {results.cost(reply)} tokens")
    return statistics.median(times) * 1e3


def _memory_ratio(value: Any) -> float:
    """The most bytes allocated on the way, for each byte of the value's JSON."""
    size = len(jsonrpc.encode(value))
    tracemalloc.start()
    try:
        _fit(value)
        return tracemalloc.get_traced_memory()[1] / size
    finally:
        tracemalloc.stop()


def _fit(value: Any) -> ToolResult:
    limits = Limits()
    stored = StoredResults(MemoryStore(), limits, "bench", "delta", "continue")
    continuation = Continuation(stored, Computations(limits.work_steps))
    source = convert_return_value(value, None)
    assert isinstance(source, ResultData), "neither content nor nothing"
    reply = FirstReply(source, ResolvedPolicy(max_tokens=BUDGET))
    return asyncio.run(continuation.first_reply(reply, results.CALLER, UNSCOPED))
