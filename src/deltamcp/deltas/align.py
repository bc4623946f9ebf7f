"""Which items of one sequence are which of another, in order: patience first, the longest common run of small rests."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence

_SMALL = 40_000
"""Cells of a table of common subsequences that are filled; beyond it a stretch counts as replaced."""


def align(base: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of places with equal items, ascending in both."""
    pairs: list[tuple[int, int]] = []
    todo = [(0, len(base), 0, len(new))]
    while todo:
        at, end, new_at, new_end = todo.pop()
        while at < end and new_at < new_end and base[at] == new[new_at]:
            pairs.append((at, new_at))
            at, new_at = at + 1, new_at + 1
        while at < end and new_at < new_end and base[end - 1] == new[new_end - 1]:
            end, new_end = end - 1, new_end - 1
            pairs.append((end, new_end))
        if at == end or new_at == new_end:
            continue
        anchors = _anchors(base, new, at, end, new_at, new_end)
        if not anchors:
            if (end - at) * (new_end - new_at) <= _SMALL:
                pairs += _common(base, new, at, end, new_at, new_end)
            continue
        pairs += anchors
        for left, right in zip([(at - 1, new_at - 1), *anchors], [*anchors, (end, new_end)], strict=True):
            todo.append((left[0] + 1, right[0], left[1] + 1, right[1]))
    return sorted(pairs)


def rising(numbers: Sequence[int]) -> list[int]:
    """Places of a longest rising run of the numbers."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        at = bisect_left(tails, number)
        before.append(ends[at - 1] if at else -1)
        tails[at : at + 1] = [number]
        ends[at : at + 1] = [place]
    run: list[int] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        run.append(at)
        at = before[at]
    return run[::-1]


def _anchors(
    base: Sequence[Hashable], new: Sequence[Hashable], at: int, end: int, new_at: int, new_end: int
) -> list[tuple[int, int]]:
    """Items that stand once on each side, in the order that keeps most of them."""
    here, there = Counter(base[at:end]), Counter(new[new_at:new_end])
    once = {base[place]: place for place in range(at, end) if here[base[place]] == 1 == there[base[place]]}
    found = [(once[new[place]], place) for place in range(new_at, new_end) if new[place] in once]
    return [found[place] for place in rising([base_place for base_place, _ in found])]


def _common(
    base: Sequence[Hashable], new: Sequence[Hashable], at: int, end: int, new_at: int, new_end: int
) -> list[tuple[int, int]]:
    width = new_end - new_at
    longest = [[0] * (width + 1) for _ in range(end - at + 1)]
    for row in range(end - at - 1, -1, -1):
        item, here, below = base[at + row], longest[row], longest[row + 1]
        for column in range(width - 1, -1, -1):
            here[column] = (
                below[column + 1] + 1 if item == new[new_at + column] else max(below[column], here[column + 1])
            )
    pairs: list[tuple[int, int]] = []
    row = column = 0
    while row < end - at and column < width:
        if base[at + row] == new[new_at + column]:
            pairs.append((at + row, new_at + column))
            row, column = row + 1, column + 1
        elif longest[row + 1][column] >= longest[row][column + 1]:
            row += 1
        else:
            column += 1
    return pairs
