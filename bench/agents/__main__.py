"""`python -m bench.agents`: what tasks of several steps cost an agent behind one gateway, with and without a mistake.

Every request counts that the agent writes, the tool's name and its arguments as compact JSON, and every reply as the
model reads it, in o200k tokens. The definitions of the gateway's tools, which a model reads once, are stated apart.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.agents.harness import Report, Run, missing_servers, run_plain_tasks, run_repeating_tasks, run_tasks
from bench.corpus import CORPUS


def format_report(report: Report) -> str:
    lines = ["task                             answer  tokens  calls   more with a mistake"]
    for run in report.plain:
        mistakes = [other for other in report.mistaken if other.task is run.task]
        more = ", ".join(
            f"{other.mistake} {report.extra(other):+,}{'' if other.is_right else ' (wrong)'}" for other in mistakes
        )
        answer = "right" if run.is_right else "WRONG"
        lines.append(f"{run.task.name:<32} {answer:<6} {run.tokens:>7,} {len(run.exchanges):>6}   {more}")
    costs = [run.tokens for run in report.plain]
    extra = [report.extra(run) for run in report.mistaken]
    right = sum(run.is_right for run in report.runs)
    lines += [
        f"{len(costs)} tasks: {sum(costs) / len(costs):,.0f} tokens on average, {max(costs):,} at most, "
        f"{sum(costs):,} in all.",
    ]
    if extra:
        lines.append(
            f"{len(extra)} mistakes: {sum(extra) / len(extra):,.0f} more on average, {max(extra):,} at most, "
            f"{sum(extra):,} in all."
        )
    lines.append(
        f"{right} of {len(report.runs)} answers are right. The definitions have {report.definitions:,} tokens."
    )
    return "\n".join(lines)


def format_repeating(pairs: Sequence[tuple[Run, Run]]) -> str:
    lines = ["task                             answers   with since  without  share"]
    for naming, silent in pairs:
        answers = "right" if naming.is_right and silent.is_right else "WRONG"
        share = naming.tokens / silent.tokens
        lines.append(f"{naming.task.name:<32} {answers:<9} {naming.tokens:>10,} {silent.tokens:>8,} {share:>6.2f}")
    cost, full = (sum(pair[at].tokens for pair in pairs) for at in (0, 1))
    lines.append(
        f"{len(pairs)} tasks make a call again: {cost:,} tokens with since, {cost / full:.2f} of {full:,} without."
    )
    return "\n".join(lines)


def format_transcripts(runs: Sequence[Run]) -> str:
    lines = []
    for run in runs:
        lines.append(f"## {run.task.name}, {run.mistake or 'no mistake'}: {run.tokens:,} tokens")
        for each in run.exchanges:
            lines += [f">>> {each.written} {each.tool} {each.arguments}", f"<<< {each.read} {each.reply}"]
        lines.append(f"answer: {run.given}, right: {run.right}\n")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agents", description=__doc__)
    parser.add_argument("--data", type=Path, default=CORPUS, metavar="DIR", help=f"the recorded data ({CORPUS})")
    parser.add_argument("--preview-above", type=int, metavar="TOKENS", help="instead of the gateway's default")
    parser.add_argument("--transcripts", action="store_true", help="print every request and reply, too")
    parser.add_argument("--plain", action="store_true", help="with the tools themselves, listed and answering in full")
    parser.add_argument(
        "--repeated", action="store_true", help="only tasks that make a call again, with since and without"
    )
    given = parser.parse_args()
    if not given.data.is_dir():
        sys.exit(f"There is no {given.data}: say where the data is by --data or DELTA_MCP_SHARED.")
    if missing := missing_servers():
        sys.exit(f"Not installed: run `python -m tests.interop.install {' '.join(missing)}`.")
    if given.repeated:
        pairs = asyncio.run(run_repeating_tasks(given.data))
        if given.transcripts:
            print(format_transcripts([run for pair in pairs for run in pair]))
        print(format_repeating(pairs))
        if not all(run.is_right for pair in pairs for run in pair):
            sys.exit(1)
        return
    run = run_plain_tasks(given.data) if given.plain else run_tasks(given.data, given.preview_above)
    report = asyncio.run(run)
    if given.transcripts:
        print(format_transcripts(report.runs))
    print(format_report(report))
    if not all(run.is_right for run in report.runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
