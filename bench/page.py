"""The page of the documentation with what `make bench` measured, a section for each benchmark.

A section says when, by which command, of which commit and on which machine it was measured. A run of some benchmarks
replaces their sections and leaves the others.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from bench.report import BenchReport, FigureTable, format_number

_HEAD = """\
# Measured speed

`make bench` writes this page: how fast this library is beside a bare uvicorn, the official SDK and FastMCP, in what
memory, and which of the targets are met. All servers of a table are up at once and loaded in turn, so that ratios mean
more than single figures. [Benchmarks](benchmarks.md) has tokens, tasks of agents, faults and attacks.
"""
_SECTION = re.compile(r"^## (\w+): ", re.MULTILINE)


def write_page(
    page: Path, benchmarks: Mapping[str, str], reports: Mapping[str, BenchReport], measured: Mapping[str, str]
) -> None:
    """Writes the sections of some reports into a page, in the order of the benchmarks.

    Args:
        benchmarks: What each benchmark is about, by its name.
        measured: What the figures depend on, by its name: the date, the command, the commit, the machine.
    """
    sections = _read_sections(page.read_text()) if page.exists() else {}
    conditions = "; ".join(f"{name} {value}" for name, value in measured.items() if name != "command")
    origin = f"`{measured['command']}`: {conditions}."
    for name, report in reports.items():
        parts = [f"## {name}: {benchmarks[name]}", origin, *map(_table, report.tables)]
        if report.verdicts:
            parts.append("\n".join(f"- {verdict}" for verdict in report.verdicts))
        sections[name] = "\n\n".join(parts)
    ordered = [sections[name] for name in benchmarks if name in sections]
    page.write_text("\n\n".join([_HEAD.rstrip(), *ordered]) + "\n")


def _read_sections(text: str) -> dict[str, str]:
    starts = [*_SECTION.finditer(text)]
    ends = [*(one.start() for one in starts[1:]), len(text)]
    return {one[1]: text[one.start() : end].strip() for one, end in zip(starts, ends, strict=True)}


def _table(table: FigureTable) -> str:
    rows = [["", *table.columns], ["---", *("---:" for _ in table.columns)]]
    rows += [[server, *map(format_number, figures)] for server, figures in table.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    notes = [f"({note})" for note in table.notes]
    return "\n\n".join([f"**{table.title}.** {table.how}", "\n".join(lines), *notes])
