"""The benchmark of deltas: what each change of a result costs a model, as our deltas and as those of other formats."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from deltamcp import tokens
from deltamcp.bench import other_deltas
from deltamcp.bench.figures import Figures, align
from deltamcp.bench.other_deltas import GCF_PACKAGE
from deltamcp.bench.series import Series, State, read
from deltamcp.client.reply import Reply
from deltamcp.client.result_cache import ResultCache
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.deltas.root import root_of
from deltamcp.limits import Limits
from deltamcp.results.changes import MAX_DELTA_SHARE, REANCHOR_AFTER_DELTAS
from deltamcp.results.content import ResultData
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import Caller, Principal

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
_OTHERS = ("json_patch", "unified_diff", "gcf")
_UNBOUNDED = 1 << 40


class _Step(NamedTuple):
    """One result after another, as our server sent it."""

    base: State | None
    state: State
    ours: int
    outcome: str
    reconstructed: bool
    anchor: bool
    """It is sent whole because it was told by changes often enough."""


def run(data: Path, progress: Progress = lambda _: None) -> Figures:
    """Measures every series in `data`; gcf-python is measured where it is installed."""
    found, passed_over = read(data)
    rows: list[Figures] = []
    version = other_deltas.gcf_version()
    for series in found:
        progress(series.name)
        steps = asyncio.run(_steps(series))
        rows.append(_row(series.name, [_costs(step, with_gcf=version is not None) for step in steps]))
    return {
        "summary": _summary(rows),
        "series": rows,
        "passed_over": passed_over,
        "gcf": f"{GCF_PACKAGE}=={version}" if version else f"not installed: pip install {GCF_PACKAGE}",
        "method": METHOD,
        "tokenizer": "o200k_base, exact" if tokens.is_exact() else "an estimate of o200k_base",
    }


async def _steps(series: Series) -> list[_Step]:
    limits = Limits(kept_seconds=86_400, kept_seconds_in_all=86_400)
    stored = StoredResults(MemoryStore(), limits, "bench", "bench", "continue")
    delivery, holdings = ChangeDelivery(stored, Continuation(stored)), ResultCache()
    policy = ResolvedPolicy(max_tokens=_UNBOUNDED, deltas=True, dedup=True)
    held: dict[str, State] = {}
    deltas: Counter[str] = Counter()
    steps: list[_Step] = []
    for state in series.states:
        call = CallKey(Caller(Principal("bench"), "1"), state.call)
        reply = Reply.of(await delivery.deliver(ResultData(state.data), policy, call, time.monotonic()))
        same = root_of(holdings.resolve_value(reply)) == root_of(state.value)
        outcome = reply.told.get("outcome", "full")
        anchor = outcome == "full" and deltas[state.call] == REANCHOR_AFTER_DELTAS
        steps.append(_Step(held.get(state.call), state, tokens.count(reply.text), outcome, same, anchor))
        deltas[state.call] = 0 if outcome == "full" else deltas[state.call] + (outcome == "delta")
        held[state.call] = state
    return steps[1:]


def _is_same(step: _Step) -> bool:
    return step.base is not None and root_of(step.base.value) == root_of(step.state.value)


def _costs(step: _Step, with_gcf: bool) -> Figures:
    full = tokens.count(step.state.text)
    costs: Figures = {"outcome": step.outcome, "full": full, "ours": step.ours, "reconstructed": step.reconstructed}
    if _is_same(step):
        said = step.ours if step.outcome == "unchanged" else full
        return costs | dict.fromkeys((*_OTHERS, "best_other"), said) | {"best_bare": 0}
    texts: dict[str, str | None] = {}
    if step.base is not None:
        texts["json_patch"] = other_deltas.json_patch(step.base, step.state)
        texts["unified_diff"] = other_deltas.unified_diff(step.base, step.state)
        rows = other_deltas.keyed_rows(step.base, step.state) if with_gcf else None
        texts["gcf"] = None if rows is None else other_deltas.gcf_delta(rows)
    costs |= {name: None if texts.get(name) is None else tokens.count(texts[name] or "") for name in _OTHERS}
    bare = min([full, *(costs[name] for name in _OTHERS if costs[name] is not None)])
    is_sent = bare < MAX_DELTA_SHARE * full and not step.anchor
    return costs | {"best_other": bare if is_sent else full, "best_bare": bare}


def _row(name: str, steps: list[Figures]) -> Figures:
    totals = {
        column: sum(step["full"] if step[column] is None else step[column] for step in steps)
        for column in ("full", *_OTHERS, "best_other", "best_bare", "ours")
    }
    changed = [step for step in steps if step["outcome"] != "unchanged"]
    without = [name for name in _OTHERS if changed and all(step[name] is None for step in changed)]
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


def _summary(rows: list[Figures]) -> Figures:
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


def table(report: Figures) -> str:
    """Writes a report for people."""
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
    summary = ", ".join(f"{name} {value}" for name, value in report["summary"].items())
    lines = align([head, *rows], left=())
    return "\n".join([*lines, "", summary, f"gcf-python: {report['gcf']}", "", report["method"]])
