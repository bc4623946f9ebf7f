"""Alignment of two sequences: finds the runs of equal items that both have in the same order.

`align` is a patience diff: items that occur once on each side are anchors, and the stretches between anchors are
aligned in turn. A small stretch without anchors is aligned by its longest common subsequence. In a long stretch a
greedy search comes first: it follows equal runs as long as few items differ between them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from deltamcp.work import Work

_MIN_GREEDY_ITEMS = 10_000
"""Items of both sides above which the greedy search is used: it is quick, but misaligns items that repeat."""
_MAX_LOOKAHEAD = 24
"""The greedy search skips fewer differing items than this before it gives up."""
_MIN_SURE_RUN = 8
"""Equal items in a row that the greedy search does not take for a coincidence."""
_MAX_TABLE_CELLS = 40_000
"""Cells of the largest common-subsequence table that is filled; a larger stretch counts as replaced."""


_ITEMS_PER_STEP = 2
"""Items that are compared in the time of a step."""


class Effort:
    """A budget for a diff, in items compared. Once it is spent, stretches that differ count as replaced."""

    def __init__(self, items: int, work: Work) -> None:
        """`work` counts the steps of the diff, besides the items compared."""
        self._left = items
        self.work = work

    def spend(self, items: int) -> bool:
        """Takes items from the budget; return whether it covered them.

        Raises:
            WorkLimitError: the whole computation may take no further steps.
        """
        self._left -= items
        self.work.spend(items // _ITEMS_PER_STEP if self._left >= 0 else 1)
        return self._left >= 0


class Run(NamedTuple):
    """`length` equal items, from index `at` of the base and index `new_at` of the new sequence on."""

    at: int
    new_at: int
    length: int


Stretch: TypeAlias = tuple[int, int, int, int]
"""Start and end in the base, start and end in the new sequence."""


def align(base: Sequence[Any], new: Sequence[Any], effort: Effort) -> list[Run]:
    """Returns the runs of equal items, ascending in both sequences. Items must be hashable."""
    runs: list[Run] = []
    todo: list[Stretch] = [(0, len(base), 0, len(new))]
    while todo:
        at, end, new_at, new_end = todo.pop()
        while True:
            length = _common_run_length(base, at, end, new, new_at, new_end)
            if length:
                runs.append(Run(at, new_at, length))
                at, new_at = at + length, new_at + length
            large = end - at + new_end - new_at > _MIN_GREEDY_ITEMS
            if large:
                effort.work.spend(_MAX_LOOKAHEAD)
            next_place = _next_common_place(base, at, end, new, new_at, new_end) if large else None
            if next_place is None:
                break
            at, new_at = next_place
        while at < end and new_at < new_end and base[end - 1] == new[new_end - 1]:
            end, new_end = end - 1, new_end - 1
            runs.append(Run(end, new_end, 1))
        items = end - at + new_end - new_at
        if at == end or new_at == new_end or not effort.spend(items):
            continue
        anchors = _anchors(base, new, (at, end, new_at, new_end))
        cells = (end - at) * (new_end - new_at)
        if not anchors and cells <= _MAX_TABLE_CELLS and effort.spend(cells):
            anchors = _common_subsequence(base, new, (at, end, new_at, new_end))
            runs += (Run(place, new_place, 1) for place, new_place in anchors)
            continue
        runs += (Run(place, new_place, 1) for place, new_place in anchors)
        if anchors:
            before = [(at - 1, new_at - 1), *anchors]
            for left, right in zip(before, [*anchors, (end, new_end)], strict=True):
                todo.append((left[0] + 1, right[0], left[1] + 1, right[1]))
    return _merge_runs(sorted(runs))


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
    """Yields the stretches between runs, where the sequences differ."""
    at = new_at = 0
    for run in [*runs, Run(length, new_length, 0)]:
        if run.at > at or run.new_at > new_at:
            yield at, run.at, new_at, run.new_at
        at, new_at = run.at + run.length, run.new_at + run.length


def longest_increasing_subsequence(numbers: Sequence[int]) -> list[int]:
    """Returns the indices of a longest increasing subsequence of the numbers."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        at = bisect_left(tails, number)
        before.append(ends[at - 1] if at else -1)
        tails[at : at + 1] = [number]
        ends[at : at + 1] = [place]
    indices: list[int] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        indices.append(at)
        at = before[at]
    return indices[::-1]


def _common_run_length(base: Sequence[Any], at: int, end: int, new: Sequence[Any], new_at: int, new_end: int) -> int:
    """Returns how many items are equal from `at` and `new_at` on. Slices whose size doubles are compared."""
    limit, size, length = min(end - at, new_end - new_at), 1, 0
    while length < limit:
        size = min(size, limit - length)
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
    """Returns where both sequences agree again after a few differing items in one or both; None if they do not."""
    for ahead in range(1, _MAX_LOOKAHEAD):
        for skip, new_skip in ((ahead, ahead), (ahead, 0), (0, ahead)):
            place, new_place = at + skip, new_at + new_skip
            run = base[place : min(place + _MIN_SURE_RUN, end)]
            if len(run) == _MIN_SURE_RUN and run == new[new_place : min(new_place + _MIN_SURE_RUN, new_end)]:
                return place, new_place
    return None


def _anchors(base: Sequence[Any], new: Sequence[Any], stretch: Stretch) -> list[tuple[int, int]]:
    """Returns the index pairs of items that occur once on each side: a largest set of them that is in order."""
    at, end, new_at, new_end = stretch
    counts, new_counts = Counter(base[at:end]), Counter(new[new_at:new_end])
    unique = {base[place]: place for place in range(at, end) if counts[base[place]] == 1 == new_counts[base[place]]}
    pairs = [(unique[new[place]], place) for place in range(new_at, new_end) if new[place] in unique]
    return [pairs[index] for index in longest_increasing_subsequence([place for place, _ in pairs])]


def _common_subsequence(base: Sequence[Any], new: Sequence[Any], stretch: Stretch) -> list[tuple[int, int]]:
    at, end, new_at, new_end = stretch
    width = new_end - new_at
    longest = [[0] * (width + 1) for _ in range(end - at + 1)]
    for row in range(end - at - 1, -1, -1):
        item, current, below = base[at + row], longest[row], longest[row + 1]
        for column in range(width - 1, -1, -1):
            equal = item == new[new_at + column]
            current[column] = below[column + 1] + 1 if equal else max(below[column], current[column + 1])
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
