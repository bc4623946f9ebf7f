"""Draws the picture of the README: what tasks cost an agent without the gateway and with it, and how many it solves.

    python -m bench.picture --measure      # runs bench.agents both ways, a minute, and draws
    python -m bench.picture                # draws the figures that are there

The figures are in docs/pictures/agents.json, the pictures for light and dark pages beside it, with one of what `audit`
prints.
"""

import argparse
import asyncio
import datetime
import html
import json
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from bench import machine
from bench.agents.harness import Report, run_plain_tasks, run_tasks
from bench.agents.setting import LISTED, OWN, REAL
from bench.corpus import CORPUS
from bench.peers import ROOT
from tests.support.paths import PROGRAM

FOLDER = ROOT / "docs" / "pictures"
FIGURES = FOLDER / "agents.json"
COLORS = {
    "light": {"ink": "#1f2328", "faint": "#59636e", "track": "#eaeef2", "plain": "#8c959f", "ours": "#0969da"},
    "dark": {"ink": "#e6edf3", "faint": "#9198a1", "track": "#212830", "plain": "#656c76", "ours": "#4493f8"},
}
_WIDTH, _MARGIN, _BAR = 600, 22, 440
"""As narrow as the texts allow, which a phone shows at half their size."""
_COLUMNS = 64
AUDIT = FOLDER / "audit.txt"
COMMAND = "delta-mcp audit examples/gateway/gateway.toml"
_LINE = 21


def measure(corpus: Path) -> dict[str, Any]:
    plain, ours = asyncio.run(run_plain_tasks(corpus)), asyncio.run(run_tasks(corpus))
    return {
        "measured": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "commit": machine.commit(),
        "machine": machine.describe(),
        "command": "python -m bench.picture --measure",
        "servers": len(OWN) + len(REAL) + len(LISTED) + 1,
        "tasks": len(plain.plain),
        "mistakes": len(ours.mistaken),
        "plain": _figures(plain),
        "gateway": _figures(ours),
    }


def _figures(report: Report) -> dict[str, int]:
    costs = [run.tokens for run in report.plain]
    return {
        "definitions": report.definitions,
        "tokens_of_a_task": round(sum(costs) / len(costs)),
        "solved": sum(run.is_right for run in report.plain),
        **({"solved_after_a_mistake": sum(run.is_right for run in report.mistaken)} if report.mistaken else {}),
    }


def draw(figures: dict[str, Any], colors: dict[str, str]) -> str:
    """The picture as SVG."""
    plain, ours = figures["plain"], figures["gateway"]
    rows = (
        ("Tool definitions", f"of {figures['servers']} servers, tokens", plain["definitions"], ours["definitions"], ""),
        ("One task", "mean of requests and replies, tokens", plain["tokens_of_a_task"], ours["tokens_of_a_task"], ""),
        ("Tasks solved", "by the same scripts", plain["solved"], ours["solved"], f" of {figures['tasks']}"),
    )
    parts = []
    for number, (title, note, before, after, unit) in enumerate(rows):
        top = 62 + number * 92
        parts.append(
            f'<text x="{_MARGIN}" y="{top + 10}" fill="{colors["ink"]}" font-size="17" font-weight="600">{title}'
            f'<tspan dx="10" fill="{colors["faint"]}" font-size="14" font-weight="400">{note}</tspan></text>'
        )
        for place, (value, color) in enumerate(((before, colors["plain"]), (after, colors["ours"]))):
            y = top + 22 + place * 26
            width = max(3, round(_BAR * value / max(before, after)))
            parts.append(f'<rect x="{_MARGIN}" y="{y}" width="{_BAR}" height="20" rx="4" fill="{colors["track"]}"/>')
            parts.append(f'<rect x="{_MARGIN}" y="{y}" width="{width}" height="20" rx="4" fill="{color}"/>')
            parts.append(_text(_MARGIN + _BAR + 14, y + 16, f"{value:,}{unit}", colors["ink"], 17, 600))
    legend = []
    for x, (name, color) in zip((_MARGIN, _MARGIN + 130), (("plain MCP", "plain"), ("Delta-MCP", "ours")), strict=True):
        legend += [
            f'<rect x="{x}" y="18" width="14" height="14" rx="3" fill="{colors[color]}"/>',
            _text(x + 22, 31, name, colors["ink"], 16),
        ]
    body = "\n  ".join((*legend, *parts))
    label = html.escape(describe(figures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 332" role="img" aria-label="{label}"\n'
        '  font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f"  {body}\n</svg>\n"
    )


def record_audit() -> str:
    """The command and what it prints, without its list of the largest tools."""
    words = COMMAND.split()[1:]
    variables = {
        **os.environ,
        "COLUMNS": str(_COLUMNS),
        "NO_COLOR": "1",
        "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
    }
    found = subprocess.run(
        [str(PROGRAM), *words], cwd=ROOT, env=variables, capture_output=True, text=True, check=True
    ).stdout
    totals, _, rest = found.partition("The largest tools")
    [summary] = re.findall(r"Behind the gateway .*", rest)
    lines = (f"$ {COMMAND}", *totals.rstrip().splitlines(), "", *textwrap.wrap(summary, _COLUMNS))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def draw_terminal(text: str, colors: dict[str, str]) -> str:
    """What a terminal shows, as SVG."""
    lines = text.splitlines()
    height = _LINE * len(lines) + 56
    rows = "\n  ".join(
        f'<text x="22" y="{52 + number * _LINE}" fill="{colors["ours" if line.startswith("$") else "ink"]}"'
        f' xml:space="preserve">{html.escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    dots = "".join(f'<circle cx="{26 + 18 * place}" cy="20" r="5" fill="{colors["plain"]}"/>' for place in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="What {COMMAND} prints"\n'
        '  font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14.5">\n'
        f'  <rect width="{_WIDTH}" height="{height}" rx="8" fill="{colors["track"]}"/>{dots}\n  {rows}\n</svg>\n'
    )


def describe(figures: dict[str, Any]) -> str:
    """What the picture shows, for those who cannot see it."""
    plain, ours = figures["plain"], figures["gateway"]
    return (
        f"Plain MCP and Delta-MCP: definitions of {figures['servers']} servers {plain['definitions']:,} and "
        f"{ours['definitions']:,} tokens; one task {plain['tokens_of_a_task']:,} and {ours['tokens_of_a_task']:,}; "
        f"tasks solved {plain['solved']} and {ours['solved']} of {figures['tasks']}."
    )


def _text(x: int, y: int, text: str, color: str, size: int, weight: int = 400) -> str:
    return f'<text x="{x}" y="{y}" fill="{color}" font-size="{size}" font-weight="{weight}">{html.escape(text)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure first")
    parser.add_argument("--data", type=Path, default=CORPUS, metavar="DIR", help="the recorded data")
    args = parser.parse_args()
    if args.measure:
        FIGURES.write_text(json.dumps(measure(args.data), indent=2) + "\n")
        AUDIT.write_text(record_audit())
    figures = json.loads(FIGURES.read_text())
    for name, colors in COLORS.items():
        (FOLDER / f"agents-{name}.svg").write_text(draw(figures, colors))
        (FOLDER / f"audit-{name}.svg").write_text(draw_terminal(AUDIT.read_text(), colors))
    print(describe(figures))


if __name__ == "__main__":
    main()
