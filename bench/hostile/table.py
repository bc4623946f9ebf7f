"""The table of attacks: a row an attack, a column a library; as text while it is measured, and as Markdown."""

import dataclasses
from typing import Any

from bench.hostile.rule import Measured, format_megabytes, format_wait
from bench.peers import OURS

TITLES = {OURS: "Delta-MCP", "sdk": "official SDK", "fastmcp": "FastMCP"}


@dataclasses.dataclass
class AttackRow:
    """One attack and what it did to each library; a library that lacks what is attacked is left out."""

    name: str
    title: str
    measured: dict[str, Measured] = dataclasses.field(default_factory=dict)
    skipped: str = ""
    """Why the attack was not made; empty if it was."""

    @property
    def breaches(self) -> list[str]:
        """How ours breaks the rule."""
        return self.measured[OURS].breaches() if OURS in self.measured else []

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "skipped": self.skipped,
            "breaches": self.breaches,
            "measured": {library: measured.as_json() for library, measured in self.measured.items()},
        }


def describe(measured: Measured) -> str:
    """One line on one library, for people who watch."""
    figures = [f"waited {format_wait(measured)}"]
    if measured.baseline_ms is not None:
        figures.append(f"(without attack {measured.baseline_ms:.0f} ms)")
    figures.append(f"grew {format_megabytes(measured.grown_mb)}")
    if measured.retained_mb is not None:
        figures.append(f"kept {format_megabytes(measured.retained_mb)}")
    if measured.stored_mb:
        figures.append(f"of which stored {format_megabytes(measured.stored_mb)}")
    if measured.expired_mb is not None:
        figures.append(f"after lifetimes {format_megabytes(measured.expired_mb)}")
    if measured.attempts > 1:
        figures.append(f"best of {measured.attempts}")
    return f"{', '.join(figures)}: {measured.answered[:160]}"


def markdown(rows: list[AttackRow], libraries: list[str]) -> str:
    """The table for the docs: the wait and the growth of each library, and what stays with ours."""
    heads = ["attack", *(f"{TITLES[one]}: others waited, memory" for one in libraries), "stays, Delta-MCP"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        if row.skipped:
            cells = [row.skipped, *["–"] * (len(heads) - 2)]
        else:
            cells = [_cell(row.measured.get(one)) for one in libraries]
            cells.append(_stays(row.measured.get(OURS)))
        lines.append(f"| {' | '.join([row.title, *cells])} |")
    return "\n".join(lines)


def _cell(measured: Measured | None) -> str:
    if measured is None:
        return "–"
    wait = "" if measured.waited_ms is None else f"{format_wait(measured)}, "
    return f"{wait}{format_megabytes(measured.grown_mb)}{'; ' + measured.broken if measured.broken else ''}"


def _stays(measured: Measured | None) -> str:
    if measured is None or measured.retained_mb is None:
        return "–"
    stored = f" ({format_megabytes(measured.stored_mb)} stored)" if measured.stored_mb else ""
    later = "" if measured.expired_mb is None else f", later {format_megabytes(measured.expired_mb)}"
    return f"{format_megabytes(measured.retained_mb)}{stored}{later}"
