"""What every benchmark reports: tables of figures, and lines that compare figures with targets."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class FigureTable:
    """Figures by server. None stands for what a server does not have or was not asked."""

    title: str
    how: str
    columns: list[str]
    rows: list[tuple[str, list[float | None]]]
    notes: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        cells = [["", *self.columns], *([server, *map(format_number, figures)] for server, figures in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in cells
        ]
        lines.insert(1, "-" * len(lines[0]))
        return "\n".join([f"## {self.title}", self.how, "", *lines, *(f"({note})" for note in self.notes)])


@dataclasses.dataclass
class Verdict:
    """One target and what was measured for it."""

    what: str
    measured: float
    target: float
    at_least: bool
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        measured, target = f"{format_number(self.measured)}{self.unit}", f"{format_number(self.target)}{self.unit}"
        missing = abs(self.measured - self.target)
        share = f" ({missing / self.target:.0%})" if self.target else ""
        short = f"short by {format_number(missing)}{self.unit}{share}"
        return f"{self.what}: {measured}, target {sign} {target}: {'met' if self.met else short}"


@dataclasses.dataclass
class BenchReport:
    """What one benchmark gives."""

    tables: list[FigureTable]
    verdicts: list[Verdict]

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.tables), "\n".join(map(str, self.verdicts))])

    def as_json(self) -> dict[str, Any]:
        verdicts = [dataclasses.asdict(verdict) | {"met": verdict.met} for verdict in self.verdicts]
        return {"tables": [dataclasses.asdict(table) for table in self.tables], "verdicts": verdicts}


def at_least(what: str, measured: float, target: float, unit: str = "") -> Verdict:
    return Verdict(what, measured, target, True, unit)


def at_most(what: str, measured: float, target: float, unit: str = "") -> Verdict:
    return Verdict(what, measured, target, False, unit)


def median_ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median of the ratios inside each round: what else the machine does slows both sides of a round."""
    return statistics.median(one / other for one, other in zip(of, to, strict=True))


def finite_or_none(figure: float) -> float | None:
    """A figure for a table; NaN, which stands for what could not be measured, becomes None."""
    return None if math.isnan(figure) else figure


def format_number(value: float | None) -> str:
    """Writes a value with three significant digits."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
