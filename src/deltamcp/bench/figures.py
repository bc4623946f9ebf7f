"""The figures of a benchmark, and their layout as columns of text."""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, Any]


def align(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lays cells out in columns, two spaces apart; the columns numbered in `left` are left-aligned, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
