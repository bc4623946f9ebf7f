"""Which rows of one state of a list are which of the next: by what they have under a key, or by their order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deltamcp.deltas.alignment import Effort, align, gaps, longest_rising_run


class RowMatches(NamedTuple):
    """What became of the rows; those that are not named stayed as they are."""

    changed: list[tuple[int, int]]
    """From which place to which."""
    removed: list[int]
    arriving: list[tuple[int, int | None]]
    """To which place, ascending, and from where; from nowhere, if it is new."""

    @property
    def has_only_new_or_removed(self) -> bool:
        """Whether rows only went or came."""
        return not self.changed and all(place is None for _, place in self.arriving)


def match_by_key(
    base: Sequence[Any], new: Sequence[Any], key: str, forms: Sequence[Any], new_forms: Sequence[Any]
) -> RowMatches:
    """Rows with the same value under the key are the same. `*_forms` are equal where rows are."""
    head, tail = _common_ends(forms, new_forms)
    places = {base[place][key]: place for place in range(head, len(base) - tail)}
    pairs, arriving = list[tuple[int, int]](), list[tuple[int, int | None]]()
    for new_place in range(head, len(new) - tail):
        place = places.pop(new[new_place][key], None)
        if place is None:
            arriving.append((new_place, None))
        else:
            pairs.append((place, new_place))
    in_order = set(longest_rising_run([place for place, _ in pairs]))
    arriving += [(pairs[at][1], pairs[at][0]) for at in range(len(pairs)) if at not in in_order]
    changed = [pair for pair in pairs if forms[pair[0]] != new_forms[pair[1]]]
    return RowMatches(changed, list(places.values()), sorted(arriving, key=lambda row: row[0]))


def match_by_order(forms: Sequence[Any], new_forms: Sequence[Any], effort: Effort) -> RowMatches:
    """Equal rows stay in order; between them one becomes another, and what is left over goes or comes."""
    changed, removed, arriving = list[tuple[int, int]](), list[int](), list[tuple[int, int | None]]()
    for start, stop, new_start, new_stop in gaps(align(forms, new_forms, effort), len(forms), len(new_forms)):
        both = min(stop - start, new_stop - new_start)
        # Where nobody looked closely, two of them may be equal.
        paired = zip(range(start, start + both), range(new_start, new_start + both), strict=True)
        changed += ((place, new_place) for place, new_place in paired if forms[place] != new_forms[new_place])
        removed += range(start + both, stop)
        arriving += ((place, None) for place in range(new_start + both, new_stop))
    return RowMatches(changed, removed, arriving)


def _common_ends(forms: Sequence[Any], new_forms: Sequence[Any]) -> tuple[int, int]:
    """How many rows both begin and end with."""
    most = min(len(forms), len(new_forms))
    head = next((at for at, pair in enumerate(zip(forms, new_forms, strict=False)) if pair[0] != pair[1]), most)
    backwards = zip(reversed(forms), reversed(new_forms), strict=False)
    tail = next((at for at, pair in enumerate(backwards) if pair[0] != pair[1]), most)
    return head, min(tail, most - head)
