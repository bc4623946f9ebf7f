"""Tables of what was measured and lines that hold it against the targets."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class Table:
    """Figures by side. None is what a side does not have or was not asked."""

    title: str
    how: str
    columns: list[str]
    rows: list[tuple[str, list[float | None]]]
    notes: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        cells = [["", *self.columns], *([side, *map(number, figures)] for side, figures in self.rows)]
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
        said = f"{self.what}: {number(self.measured)}{self.unit}, target {sign} {number(self.target)}{self.unit}"
        missing = abs(self.measured - self.target)
        share = missing / self.target
        return f"{said}: " + ("met" if self.met else f"short by {number(missing)}{self.unit} ({share:.0%})")


@dataclasses.dataclass
class Report:
    """What one measurement gives."""

    tables: list[Table]
    verdicts: list[Verdict]

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.tables), "\n".join(map(str, self.verdicts))])

    def plain(self) -> dict[str, Any]:
        verdicts = [dataclasses.asdict(verdict) | {"met": verdict.met} for verdict in self.verdicts]
        return {"tables": [dataclasses.asdict(table) for table in self.tables], "verdicts": verdicts}


def at_least(what: str, measured: float, target: float, unit: str = "") -> Verdict:
    return Verdict(what, measured, target, True, unit)


def at_most(what: str, measured: float, target: float, unit: str = "") -> Verdict:
    return Verdict(what, measured, target, False, unit)


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median of the ratios inside each round: what the machine does to one side it does to the other."""
    return statistics.median(one / other for one, other in zip(of, to, strict=True))


def known(figure: float) -> float | None:
    """A figure for a table, of one that is NaN where it could not be measured."""
    return None if math.isnan(figure) else figure


def number(value: float | None) -> str:
    """Three figures that count."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
