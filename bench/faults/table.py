"""The table of faults: a row a fault, a column a library, and whether ours is at least as good as the better peer."""

import dataclasses
from typing import Any

from bench.faults.outcome import Outcome, shortfall
from bench.hostile.table import TITLES
from bench.peers import OURS


@dataclasses.dataclass
class FaultRow:
    """One fault, and what each library did about it in each era or, over stdio, at all."""

    name: str
    title: str
    outcomes: dict[str, dict[str, Outcome]] = dataclasses.field(default_factory=dict)
    """By the name of an era, and the library."""

    @property
    def shortfalls(self) -> list[str]:
        """How ours falls short of the better peer, by era."""
        found = {era: shortfall(by_library) for era, by_library in self.outcomes.items() if OURS in by_library}
        return [f"{era}: {text}" for era, text in found.items() if text]

    def as_json(self) -> dict[str, Any]:
        outcomes = {
            era: {library: one.as_json() for library, one in by_library.items()}
            for era, by_library in self.outcomes.items()
        }
        return {"name": self.name, "title": self.title, "shortfalls": self.shortfalls, "outcomes": outcomes}


def markdown(rows: list[FaultRow], libraries: list[str]) -> str:
    heads = ["fault", *(TITLES[one] for one in libraries), "at least as good"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [_cell(row, one) for one in libraries]
        lines.append(f"| {' | '.join([row.title, *cells, 'no' if row.shortfalls else 'yes'])} |")
    return "\n".join(lines)


def _cell(row: FaultRow, library: str) -> str:
    texts = {era: by_library[library] for era, by_library in row.outcomes.items() if library in by_library}
    if not texts:
        return "–"
    if len({one.text for one in texts.values()}) == 1:
        return next(iter(texts.values())).text
    return "; ".join(f"{era}: {one.text}" for era, one in texts.items())
