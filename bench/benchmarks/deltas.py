"""How fast GCF is written and read, beside gcf-python; and how fast values are told apart, up to 50 MB.

In process, CPU time. GCF: compact JSON over the time it takes, both sides in turn on each result of the corpus. Roots
and deltas: of a value and one that came of it by a few changes.
"""

import copy
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import gcf as reference

from bench import report
from bench.corpus import CORPUS
from bench.options import BenchOptions
from bench.report import BenchReport, FigureTable
from bench.sample_results import MEGABYTE, SIZES_MB, make_keys, make_rows, make_text
from deltamcp import gcf
from deltamcp.deltas.delta import apply_delta, make_delta
from deltamcp.deltas.root import root_of

ROUNDS = 5
_LEAST_SECONDS = 0.02
"""Time that each side spends on a result at least, so that small ones are measured too."""


def measure(options: BenchOptions) -> BenchReport:
    codec, verdicts = _measure_gcf()
    deltas, further = _measure_deltas()
    return BenchReport([codec, deltas], [*verdicts, *further])


def _measure_gcf() -> tuple[FigureTable, list[report.Verdict]]:
    sides: list[tuple[Callable[[Any], Any], ...]] = [
        (gcf.encode_generic, reference.encode_generic),
        (gcf.decode_generic, reference.decode_generic),
    ]
    total = [0.0] * 4
    size = 0
    lines: list[tuple[str, list[float | None]]] = []
    for name, value in _read_results():
        compact = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
        wire = gcf.encode_generic(value)
        taken = _best_seconds(sides[0], value) + _best_seconds(sides[1], wire)
        total = [so_far + spent for so_far, spent in zip(total, taken, strict=True)]
        size += compact
        lines.append((name, [compact / spent / MEGABYTE for spent in taken]))
    speeds = [size / spent / MEGABYTE for spent in total]
    lines.append(("all", [*speeds]))
    columns = ["written, MB/s", "reference", "read, MB/s", "reference"]
    how = f"The best of {ROUNDS}; the reference reads what we wrote."
    return FigureTable("GCF, generic", how, columns, lines), [
        report.at_least("GCF written, whole corpus", speeds[0], 20, " MB/s"),
        report.at_least("GCF read, whole corpus", speeds[2], 15, " MB/s"),
    ]


def _read_results() -> list[tuple[str, Any]]:
    """Reads the results of the corpus beside the project; makes some up where there is none."""
    found = [(path.stem, json.loads(path.read_text())) for path in sorted((CORPUS / "results").rglob("*.json"))]
    return found or [("rows", make_rows(MEGABYTE // 5)), ("keys", make_keys(2_000))]


def _best_seconds(sides: tuple[Callable[[Any], Any], ...], given: Any) -> list[float]:
    """The least seconds of each side; the sides take turns."""
    best = [float("inf")] * len(sides)
    for _ in range(ROUNDS):
        for place, side in enumerate(sides):
            best[place] = min(best[place], _seconds(side, given))
    return best


def _seconds(run: Callable[..., Any], *given: Any) -> float:
    began, times = time.process_time(), 0
    while True:
        run(*given)
        times += 1
        spent = time.process_time() - began
        if spent >= _LEAST_SECONDS:
            return spent / times


def _measure_deltas() -> tuple[FigureTable, list[report.Verdict]]:
    makers: dict[str, Callable[[int], Any]] = {
        "rows": make_rows,
        "objects by key": lambda size: make_keys(size // 29),
        "text": lambda size: make_text(size, "\n"),
        "numbers": lambda size: [number * 7 % 100_003 for number in range(size // 6)],
    }
    lines: list[tuple[str, list[float | None]]] = []
    verdicts: list[report.Verdict] = []
    for name, make in makers.items():
        root, made_in, applied_in = [], [], []
        for size in SIZES_MB:
            base = make(size * MEGABYTE)
            new = _change(base)
            changes = make_delta(base, new)
            if apply_delta(base, changes) != new:
                raise RuntimeError(f"a delta of {name} does not give the new value back")
            root.append(_milliseconds(root_of, base))
            made_in.append(_milliseconds(make_delta, base, new))
            applied_in.append(_milliseconds(apply_delta, base, changes))
        verdicts += [
            report.at_most(f"root of 1 MB, {name}", root[0], 10, " ms"),
            report.at_most(f"delta of 1 MB, {name}", made_in[0], 60, " ms"),
            report.at_most(
                f"delta of {SIZES_MB[-1]} MB / {SIZES_MB[-1]} times that of 1 MB, {name}", _growth(made_in), 2
            ),
        ]
        lines.append((name, [root[0], root[-1], *made_in, applied_in[-1], _growth(made_in)]))
    last = f"{SIZES_MB[-1]} MB"
    columns = ["root 1 MB, ms", f"root {last}", *(f"delta {size} MB" for size in SIZES_MB), f"applied {last}", "growth"]
    return FigureTable("Roots and deltas", f"The median of {ROUNDS}.", columns, lines), verdicts


def _growth(times: list[float]) -> float:
    return times[-1] / times[0] / (SIZES_MB[-1] / SIZES_MB[0])


def _milliseconds(run: Callable[..., Any], *given: Any) -> float:
    return statistics.median(_seconds(run, *given) for _ in range(ROUNDS)) * 1e3


def _change(base: Any) -> Any:
    """Makes a value that differs from another by a few changes."""
    chance = random.Random(3)
    if isinstance(base, str):
        lines = base.split("\n")
        lines[chance.randrange(len(lines))] = "something else"
        lines.insert(chance.randrange(len(lines)), "one more")
        return "\n".join(lines)
    new = copy.copy(base)
    if isinstance(new, dict):
        for name in chance.sample(list(new), 20):
            new[name] = {**new[name], "b": "changed"}
        del new[chance.choice(list(new))]
        return new
    for place in chance.sample(range(len(new)), 20):
        new[place] = {**new[place], "name": "changed"} if isinstance(new[place], dict) else -1
    new.pop(chance.randrange(len(new)))
    new.append({**base[0], "id": 10**9} if isinstance(base[0], dict) else 5)
    return new
