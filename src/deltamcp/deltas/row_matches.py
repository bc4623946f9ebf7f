"""Matches between the rows of two states of a list, by their key or by their order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deltamcp.deltas.alignment import Effort, align, gaps, longest_increasing_subsequence


class RowMatches(NamedTuple):
    """Rows that changed, went, moved or are new, by their indices. All other rows are unchanged."""

    changed: list[tuple[int, int]]
    """Old and new index of each changed row."""
    removed: list[int]
    placed: list[tuple[int, int | None]]
    """New index, ascending, and old index of each row that moves; the old index of a new row is None."""

    @property
    def has_only_new_or_removed(self) -> bool:
        """Whether every difference is a new or a removed row."""
        return not self.changed and all(place is None for _, place in self.placed)


def match_by_key(
    base: Sequence[Any], new: Sequence[Any], key: str, forms: Sequence[Any], new_forms: Sequence[Any]
) -> RowMatches:
    """Match rows that have the same value under the key. `forms` and `new_forms` are equal where rows are equal."""
    head, tail = _common_ends(forms, new_forms)
    places = {base[place][key]: place for place in range(head, len(base) - tail)}
    pairs, placed = list[tuple[int, int]](), list[tuple[int, int | None]]()
    for new_place in range(head, len(new) - tail):
        place = places.pop(new[new_place][key], None)
        if place is None:
            placed.append((new_place, None))
        else:
            pairs.append((place, new_place))
    in_order = set(longest_increasing_subsequence([place for place, _ in pairs]))
    placed += [(pairs[at][1], pairs[at][0]) for at in range(len(pairs)) if at not in in_order]
    changed = [pair for pair in pairs if forms[pair[0]] != new_forms[pair[1]]]
    return RowMatches(changed, list(places.values()), sorted(placed, key=lambda row: row[0]))


def match_by_order(forms: Sequence[Any], new_forms: Sequence[Any], effort: Effort) -> RowMatches:
    """Match equal rows in order. Rows between them change one for one; the remaining ones are removed or new."""
    changed, removed, placed = list[tuple[int, int]](), list[int](), list[tuple[int, int | None]]()
    for start, stop, new_start, new_stop in gaps(align(forms, new_forms, effort), len(forms), len(new_forms)):
        paired_count = min(stop - start, new_stop - new_start)
        # Once the effort is spent, `align` leaves gaps that may have equal rows.
        pairs = zip(range(start, start + paired_count), range(new_start, new_start + paired_count), strict=True)
        changed += ((place, new_place) for place, new_place in pairs if forms[place] != new_forms[new_place])
        removed += range(start + paired_count, stop)
        placed += ((place, None) for place in range(new_start + paired_count, new_stop))
    return RowMatches(changed, removed, placed)


def _common_ends(forms: Sequence[Any], new_forms: Sequence[Any]) -> tuple[int, int]:
    """Return how many equal rows both lists begin with, and end with."""
    limit = min(len(forms), len(new_forms))
    head = next((at for at, pair in enumerate(zip(forms, new_forms, strict=False)) if pair[0] != pair[1]), limit)
    backwards = zip(reversed(forms), reversed(new_forms), strict=False)
    tail = next((at for at, pair in enumerate(backwards) if pair[0] != pair[1]), limit)
    return head, min(tail, limit - head)
