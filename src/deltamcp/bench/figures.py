"""Figures of a benchmark, as JSON has them and as columns of text."""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, Any]


def align(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lays cells out as lines of columns, two spaces apart; the columns numbered in `left` begin at their left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
