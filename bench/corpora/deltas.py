"""The delta benchmark: counts what each change of a result costs a model, in Delta-MCP's and in other formats."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from bench.corpora import other_deltas
from bench.corpora.other_deltas import GCF_PACKAGE
from bench.corpora.series import Series, State, read
from deltamcp import tokens
from deltamcp.client.reply import Reply
from deltamcp.client.tool_caller import ResultCache
from deltamcp.costs.audit import Figures, align
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.deltas.root import root_of
from deltamcp.limits import Limits
from deltamcp.results.changes import MAX_DELTA_SHARE, REANCHOR_AFTER_DELTAS
from deltamcp.results.content import ResultData
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import MemoryStore
from deltamcp.values import LOCAL, Caller

Progress: TypeAlias = Callable[[str], None]

METHOD = (
    "Tokens of o200k_base. A step is a result after the first of its series, a series a file of states, or a session "
    "of calls, in which a call's earlier result is its base. Full: the text, or compact JSON. Ours: everything the "
    "server sends for it, without a budget, to a caller it remembers. Others: the bare patch, and the diff of "
    "`diff -U0`, without a note on what they belong to; gcf-python's delta of the flattened rows as it is sent, with "
    "its roots; their columns count the delta, or the full form where the format has none. Best is the best of them "
    "at every step. There the same rules apply to all sides: a step without a change costs every side our sentence "
    "(`[]` or an empty diff would not tell a model so), the full form replaces a delta of 60 % of it or more, and "
    "after 15 deltas a result is sent whole again. Bare is the best of them without any rule; a step without a change "
    "costs nothing. Reconstructed: a caller gets the result back from the replies, with 1, 1.0 and true as different "
    "values."
)
_OTHERS = ("json_patch", "unified_diff", "gcf")
_UNBOUNDED = 1 << 40


class _Step(NamedTuple):
    """A result after the first of its series, and how the server sent it."""

    base: State | None
    state: State
    ours: int
    outcome: str
    reconstructed: bool
    anchor: bool
    """Whether the server sent it whole because it had sent deltas often enough in a row."""


def run(data: Path, progress: Progress = lambda _: None) -> Figures:
    """Measures every series in `data`; gcf-python is measured where it is installed."""
    all_series, passed_over = read(data)
    rows: list[Figures] = []
    version = other_deltas.gcf_version()
    for series in all_series:
        progress(series.name)
        steps = asyncio.run(_deliver_steps(series))
        rows.append(_row(series.name, [_costs(step, with_gcf=version is not None) for step in steps]))
    return {
        "summary": _summary(rows),
        "series": rows,
        "passed_over": passed_over,
        "gcf": f"{GCF_PACKAGE}=={version}" if version else f"not installed: pip install {GCF_PACKAGE}",
        "method": METHOD,
        "tokenizer": "o200k_base, exact" if tokens.is_exact() else "an estimate of o200k_base",
    }


async def _deliver_steps(series: Series) -> list[_Step]:
    limits = Limits(kept_seconds=86_400, kept_seconds_in_all=86_400)
    stored = StoredResults(MemoryStore(), limits, "bench", "bench", "continue")
    computations = Computations(limits.work_steps)
    delivery = ChangeDelivery(stored, Continuation(stored, computations), computations)
    client_cache = ResultCache()
    policy = ResolvedPolicy(max_tokens=_UNBOUNDED, deltas=True, dedup=True)
    last_states: dict[str, State] = {}
    deltas: Counter[str] = Counter()
    steps: list[_Step] = []
    for state in series.states:
        call = CallKey(Caller(LOCAL, conversation="1"), state.call, UNSCOPED)
        reply = Reply.of(await delivery.deliver(ResultData(state.data), policy, call, time.monotonic()))
        reconstructed = root_of(client_cache.resolve_value(reply)) == root_of(state.value)
        outcome = reply.delta_meta.get("outcome", "full")
        anchor = outcome == "full" and deltas[state.call] == REANCHOR_AFTER_DELTAS
        base = last_states.get(state.call)
        steps.append(_Step(base, state, tokens.count(reply.text), outcome, reconstructed, anchor))
        deltas[state.call] = 0 if outcome == "full" else deltas[state.call] + (outcome == "delta")
        last_states[state.call] = state
    return steps[1:]


def _is_unchanged(step: _Step) -> bool:
    return step.base is not None and root_of(step.base.value) == root_of(step.state.value)


def _costs(step: _Step, with_gcf: bool) -> Figures:
    full = tokens.count(step.state.text)
    costs: Figures = {"outcome": step.outcome, "full": full, "ours": step.ours, "reconstructed": step.reconstructed}
    if _is_unchanged(step):
        cost = step.ours if step.outcome == "unchanged" else full
        return costs | dict.fromkeys((*_OTHERS, "best_other"), cost) | {"best_bare": 0}
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
    inapplicable = [name for name in _OTHERS if changed and all(step[name] is None for step in changed)]
    totals |= dict.fromkeys(inapplicable)
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
    """Formats a report for people."""
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
