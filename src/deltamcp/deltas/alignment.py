"""Which items of one sequence are which of another, in order.

By patience: items that stand once on each side are anchors for what is between them; of small rests the longest common
subsequence counts. In long sequences equal runs are followed as far as few items differ between them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

_MIN_GREEDY_ITEMS = 10_000
"""Items left on both sides from which on the next equal ones are taken: quick, and mistaken where items repeat."""
_MAX_LOOKAHEAD = 24
"""How many items may differ before equal ones are looked for farther away."""
_MIN_SURE_RUN = 8
"""Equal items in a row that are no chance."""
_MAX_TABLE_CELLS = 40_000
"""Cells of a table of common subsequences that are filled; beyond it a stretch counts as replaced."""


class Effort:
    """What looking for differences may still take, in items compared. Nothing is looked at closely beyond it."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, items: int) -> bool:
        self._left -= items
        return self._left >= 0


class Run(NamedTuple):
    """Equal items on both sides."""

    at: int
    new_at: int
    length: int


Stretch: TypeAlias = tuple[int, int, int, int]
"""From where to where, here and there."""


def align(base: Sequence[Any], new: Sequence[Any], effort: Effort) -> list[Run]:
    """Runs of equal items, ascending in both; items are hashable."""
    found: list[Run] = []
    todo: list[Stretch] = [(0, len(base), 0, len(new))]
    while todo:
        at, end, new_at, new_end = todo.pop()
        while True:
            length = _common_run_length(base, at, end, new, new_at, new_end)
            if length:
                found.append(Run(at, new_at, length))
                at, new_at = at + length, new_at + length
            large = end - at + new_end - new_at > _MIN_GREEDY_ITEMS
            past = _next_common_place(base, at, end, new, new_at, new_end) if large else None
            if past is None:
                break
            at, new_at = past
        while at < end and new_at < new_end and base[end - 1] == new[new_end - 1]:
            end, new_end = end - 1, new_end - 1
            found.append(Run(end, new_end, 1))
        items = end - at + new_end - new_at
        if at == end or new_at == new_end or not effort.spend(items):
            continue
        anchors = _anchors(base, new, (at, end, new_at, new_end))
        cells = (end - at) * (new_end - new_at)
        if not anchors and cells <= _MAX_TABLE_CELLS and effort.spend(cells):
            anchors = _common_subsequence(base, new, (at, end, new_at, new_end))
            found += (Run(place, new_place, 1) for place, new_place in anchors)
            continue
        found += (Run(place, new_place, 1) for place, new_place in anchors)
        if anchors:
            before = [(at - 1, new_at - 1), *anchors]
            for left, right in zip(before, [*anchors, (end, new_end)], strict=True):
                todo.append((left[0] + 1, right[0], left[1] + 1, right[1]))
    return _merge_runs(sorted(found))


def _merge_runs(runs: list[Run]) -> list[Run]:
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last is not None and (last.at + last.length, last.new_at + last.length) == run[:2]:
            merged[-1] = Run(last.at, last.new_at, last.length + run.length)
        else:
            merged.append(run)
    return merged


def gaps(runs: list[Run], length: int, new_length: int) -> Iterator[Stretch]:
    """The stretches between runs."""
    at = new_at = 0
    for run in [*runs, Run(length, new_length, 0)]:
        if run.at > at or run.new_at > new_at:
            yield at, run.at, new_at, run.new_at
        at, new_at = run.at + run.length, run.new_at + run.length


def longest_rising_run(numbers: Sequence[int]) -> list[int]:
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


def _common_run_length(base: Sequence[Any], at: int, end: int, new: Sequence[Any], new_at: int, new_end: int) -> int:
    """How many items both go on with: compared in slices, of twice the size as long as they are equal."""
    most, size, length = min(end - at, new_end - new_at), 1, 0
    while length < most:
        size = min(size, most - length)
        if base[at + length : at + length + size] == new[new_at + length : new_at + length + size]:
            length += size
            size *= 2
        elif size == 1:
            break
        else:
            size //= 2
    return length


def _next_common_place(
    base: Sequence[Any], at: int, end: int, new: Sequence[Any], new_at: int, new_end: int
) -> tuple[int, int] | None:
    """Where both go on alike after a few items that differ, in one of them or in both; None where they do not."""
    for ahead in range(1, _MAX_LOOKAHEAD):
        for skip, new_skip in ((ahead, ahead), (ahead, 0), (0, ahead)):
            here, there = at + skip, new_at + new_skip
            sure = base[here : min(here + _MIN_SURE_RUN, end)]
            if len(sure) == _MIN_SURE_RUN and sure == new[there : min(there + _MIN_SURE_RUN, new_end)]:
                return here, there
    return None


def _anchors(base: Sequence[Any], new: Sequence[Any], stretch: Stretch) -> list[tuple[int, int]]:
    """Items that stand once on each side, in the order that keeps most of them."""
    at, end, new_at, new_end = stretch
    here, there = Counter(base[at:end]), Counter(new[new_at:new_end])
    once = {base[place]: place for place in range(at, end) if here[base[place]] == 1 == there[base[place]]}
    found = [(once[new[place]], place) for place in range(new_at, new_end) if new[place] in once]
    return [found[place] for place in longest_rising_run([base_place for base_place, _ in found])]


def _common_subsequence(base: Sequence[Any], new: Sequence[Any], stretch: Stretch) -> list[tuple[int, int]]:
    at, end, new_at, new_end = stretch
    width = new_end - new_at
    longest = [[0] * (width + 1) for _ in range(end - at + 1)]
    for row in range(end - at - 1, -1, -1):
        item, here, below = base[at + row], longest[row], longest[row + 1]
        for column in range(width - 1, -1, -1):
            alike = item == new[new_at + column]
            here[column] = below[column + 1] + 1 if alike else max(below[column], here[column + 1])
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
