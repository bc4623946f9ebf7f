"""The benchmark of deltas: what the steps of a result cost a model, told by us and by others, and whether they are."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from deltamcp import tokens
from deltamcp.bench import rivals
from deltamcp.bench.series import Series, State, read
from deltamcp.client.holdings import Holdings
from deltamcp.client.reply import Reply
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.deltas.root import root_of
from deltamcp.limits import Limits
from deltamcp.results.content import Source
from deltamcp.results.outcome import MOST, REANCHOR
from deltamcp.results.policy import Shaping
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import Caller, Principal

Report: TypeAlias = dict[str, Any]
Progress: TypeAlias = Callable[[str], None]

METHOD = (
    "Tokens of o200k_base. A step is a result after the first of its series, a series a file of states, or a session "
    "of calls, in which a call's earlier result is its base. Full: the text, or compact JSON. Ours: everything the "
    "server sends for it, without a budget, to a caller it remembers. Others: the bare patch, the diff as `diff -U0` "
    "has it, without a word on what they belong to; gcf-python's delta of the flattened rows as it goes out, with its "
    "roots; their columns count what they tell, or the full form where they tell nothing. Best is the best of them at "
    "every step. There all sides play by the same rules: a step without a change costs "
    "every side our sentence (`[]` or an empty diff would not tell a model so), a delta of 60 % of the full "
    "form or more is not sent but that, and after 15 deltas a result is sent whole again. Bare is the best of them "
    "without any rule, a step without a change for nothing. Reconstructed: what a caller puts together from the "
    "replies is the result, 1, 1.0 and true told apart."
)
_RIVALS = ("json_patch", "unified_diff", "gcf")
_UNBOUNDED = 1 << 40


class _Step(NamedTuple):
    """One result after another."""

    base: State | None
    state: State
    ours: int
    outcome: str
    reconstructed: bool
    anchor: bool
    """It is sent whole because it was told by changes often enough."""


def run(data: Path, python: str | None = sys.executable, progress: Progress = lambda _: None) -> Report:
    """`python` has gcf-python; without one that is not measured."""
    found, passed_over = read(data)
    rows: list[Report] = []
    notes = "not asked for" if python is None else "nothing to tell"
    for series in found:
        progress(series.name)
        steps = asyncio.run(_steps(series))
        pairs = [_keyed(step) for step in steps]
        gcf, notes = rivals.gcf_deltas(pairs, python) if python is not None else ([None] * len(steps), notes)
        rows.append(_row(series.name, [_costs(step, text) for step, text in zip(steps, gcf, strict=True)]))
    return {
        "summary": _summary(rows),
        "series": rows,
        "passed_over": passed_over,
        "gcf": notes,
        "method": METHOD,
        "tokenizer": "o200k_base, exact" if tokens.is_exact() else "an estimate of o200k_base",
    }


async def _steps(series: Series) -> list[_Step]:
    limits = Limits(kept_seconds=86_400, kept_seconds_in_all=86_400)
    stored = StoredResults(MemoryStore(), limits, "bench", "bench", "continue")
    delivery, holdings = ChangeDelivery(stored, Continuation(stored)), Holdings()
    shaping = Shaping(max_tokens=_UNBOUNDED, deltas=True, dedup=True)
    held: dict[str, State] = {}
    deltas: Counter[str] = Counter()
    steps: list[_Step] = []
    for state in series.states:
        call = CallKey(Caller(Principal("bench"), "1"), state.call)
        reply = Reply.of(await delivery.deliver(Source(state.data), shaping, call, time.monotonic()))
        same = root_of(holdings.value(reply)) == root_of(state.value)
        outcome = reply.told.get("outcome", "full")
        anchor = outcome == "full" and deltas[state.call] == REANCHOR
        steps.append(_Step(held.get(state.call), state, tokens.count(reply.text), outcome, same, anchor))
        deltas[state.call] = 0 if outcome == "full" else deltas[state.call] + (outcome == "delta")
        held[state.call] = state
    return steps[1:]


def _is_same(step: _Step) -> bool:
    return step.base is not None and root_of(step.base.value) == root_of(step.state.value)


def _keyed(step: _Step) -> rivals.Keyed | None:
    return None if step.base is None or _is_same(step) else rivals.keyed(step.base, step.state)


def _costs(step: _Step, gcf: str | None) -> Report:
    full = tokens.count(step.state.text)
    costs: Report = {"outcome": step.outcome, "full": full, "ours": step.ours, "reconstructed": step.reconstructed}
    if _is_same(step):
        said = step.ours if step.outcome == "unchanged" else full
        return costs | dict.fromkeys((*_RIVALS, "best_other"), said) | {"best_bare": 0}
    texts: dict[str, str | None] = {"gcf": gcf}
    if step.base is not None:
        texts["json_patch"] = rivals.json_patch(step.base, step.state)
        texts["unified_diff"] = rivals.unified_diff(step.base, step.state)
    costs |= {name: None if texts.get(name) is None else tokens.count(texts[name] or "") for name in _RIVALS}
    bare = min([full, *(costs[name] for name in _RIVALS if costs[name] is not None)])
    is_sent = bare < MOST * full and not step.anchor
    return costs | {"best_other": bare if is_sent else full, "best_bare": bare}


def _row(name: str, steps: list[Report]) -> Report:
    totals = {
        column: sum(step["full"] if step[column] is None else step[column] for step in steps)
        for column in ("full", *_RIVALS, "best_other", "best_bare", "ours")
    }
    changed = [step for step in steps if step["outcome"] != "unchanged"]
    without = [name for name in _RIVALS if changed and all(step[name] is None for step in changed)]
    totals |= dict.fromkeys(without)
    unchanged = [step["ours"] for step in steps if step["outcome"] == "unchanged"]
    return {
        "name": name,
        "steps": len(steps),
        "unchanged": len(unchanged),
        "deltas": sum(step["outcome"] == "delta" for step in steps),
        **totals,
        "ratio_to_full": _ratio(totals["ours"], totals["full"]),
        "ratio_to_best_other": _ratio(totals["ours"], totals["best_other"]),
        "above_full": sum(step["ours"] > step["full"] for step in steps),
        "not_reconstructed": sum(not step["reconstructed"] for step in steps),
        "unchanged_tokens_max": max(unchanged, default=0),
        "each": steps,
    }


def _ratio(ours: float, other: float) -> float:
    return round(ours / other, 4) if other else 1.0


def _summary(rows: list[Report]) -> Report:
    total = {name: sum(row[name] for row in rows) for name in ("full", "best_other", "best_bare", "ours")}
    return {
        "series": len(rows),
        "steps": sum(row["steps"] for row in rows),
        "above_full": sum(row["above_full"] for row in rows),
        "not_reconstructed": sum(row["not_reconstructed"] for row in rows),
        "unchanged_tokens_max": max((row["unchanged_tokens_max"] for row in rows), default=0),
        "ratio_to_full": _ratio(total["ours"], total["full"]),
        "ratio_to_best_other": _ratio(total["ours"], total["best_other"]),
        "ratio_to_best_bare": _ratio(total["ours"], total["best_bare"]),
        "series_above_best_other": [row["name"] for row in rows if row["ours"] > row["best_other"]],
    }


def table(report: Report) -> str:
    """The same for people."""
    head = ("series", "steps", "full", "JSON Patch", "diff", "gcf", "best", "ours", "of full", "of best")
    columns = ("name", "steps", "full", "json_patch", "unified_diff", "gcf", "best_other", "ours")
    rows = [
        [
            *("-" if row[column] is None else str(row[column]) for column in columns),
            f"{row['ratio_to_full']:.3f}",
            f"{row['ratio_to_best_other']:.3f}",
        ]
        for row in report["series"]
    ]
    wide = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
    lines = ["  ".join(cell.rjust(size) for cell, size in zip(row, wide, strict=True)) for row in [head, *rows]]
    said = ", ".join(f"{name} {value}" for name, value in report["summary"].items())
    return "\n".join([*lines, "", said, f"gcf-python: {report['gcf']}", "", report["method"]])
