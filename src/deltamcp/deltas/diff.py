"""Diff of two JSON values: compares objects by member, tables by row and texts by line, and returns an edit."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from deltamcp.deltas import strings
from deltamcp.deltas.alignment import Effort, align, gaps, longest_increasing_subsequence
from deltamcp.deltas.edits import Copy, Edit, MemberEdits, PlacedRow, Put, RowEdits, short_row_names
from deltamcp.deltas.keys import find_key, unique_values
from deltamcp.deltas.root import canonical_bytes
from deltamcp.values import JSON
from deltamcp.work import Work

_BASE_EFFORT = 300_000
"""Items that a diff may compare, plus one for every two bytes of the new value: some 60 ms for 1 MB."""
_MAX_DEPTH = 40
"""Levels that the diff descends; it encodes a value once more at each level."""
_MAX_MODELS = 16
"""Rows of the base that are compared with a new row, which may be written as a copy of one."""
_SHORT_NAME_CHARS = 6
"""Average length up to which the names of rows are used instead of their indices."""
_CHANGE_OVERHEAD = 4
"""Characters that a change takes besides its name and value."""

_ENCODING_FACTOR = 4
"""Encoding with sorted members takes so many times as long as a scan."""
_MEMBERS_PER_STEP = 8
_STEPS_PER_PART = 4
"""Steps that comparing two parts takes besides what is inside them, and writing their edit."""

_encode_json = msgspec.json.Encoder().encode

CostedEdit: TypeAlias = tuple[Edit, int]
"""An edit, and about how many characters its text has."""


def diff(
    base: JSON, new: JSON, keys: Iterable[str] = (), *, work: Work, self_contained: bool = False
) -> CostedEdit | None:
    """Return the edit that turns `base` into `new`, and its cost; None if the values are the same.

    Args:
        keys: members that the author declared to identify rows; the first that does is used.
        self_contained: make no copies of parts of the base, and quote no pieces of its strings.
    """
    size = _json_size(new)
    work.scan(size)
    return _Differ(tuple(keys), self_contained, Effort(_BASE_EFFORT + size // 2, work)).diff(base, new, 0)


class _Differ:
    def __init__(self, keys: tuple[str, ...], self_contained: bool, effort: Effort) -> None:
        self._keys = keys
        self._self_contained = self_contained
        self._effort = effort

    def diff(self, base: Any, new: Any, depth: int) -> CostedEdit | None:
        self._effort.work.spend(_STEPS_PER_PART)
        kind = type(base)
        if kind is not type(new):
            return self._put(new)
        if kind is str:
            return (
                None
                if base == new
                else self._shorter_edit(strings.diff_strings(base, new, self._effort, not self._self_contained), new)
            )
        if kind is not dict and kind is not list:
            # 0.0 == -0.0, but their roots differ.
            return None if base == new and (kind is not float or repr(base) == repr(new)) else self._put(new)
        # The parts of the whole value are compared anyway; below it most are equal, which their bytes show at once.
        if depth and self._are_same(base, new):
            return None
        if depth == _MAX_DEPTH:
            return self._put(new)
        costed = self._diff_members(base, new, depth) if kind is dict else self._diff_rows(base, new, depth)
        return None if _is_empty(costed[0]) else self._shorter_edit(costed, new)

    def _are_same(self, base: Any, new: Any) -> bool:
        form, new_form = canonical_bytes(base), canonical_bytes(new)
        self._effort.work.scan(_ENCODING_FACTOR * (len(form) + len(new_form)))
        return form == new_form

    def _put(self, value: Any) -> CostedEdit:
        size = _json_size(value)
        self._effort.work.scan(size)
        return Put(value), size

    def _shorter_edit(self, costed: CostedEdit | tuple[Any, int] | None, new: Any) -> CostedEdit:
        put = self._put(new)
        return put if costed is None or costed[1] >= put[1] else costed

    def _diff_members(self, base: dict[str, Any], new: dict[str, Any], depth: int) -> CostedEdit:
        edits: dict[str, Edit] = {}
        self._effort.work.spend((len(base) + len(new)) // _MEMBERS_PER_STEP)
        removed = tuple(name for name in base if name not in new)
        models = [*removed[:_MAX_MODELS], next(reversed(base))] if base and not self._self_contained else []
        cost = sum(map(len, removed)) + _CHANGE_OVERHEAD * len(removed)
        for name, value in new.items():
            costed = (
                self.diff(base[name], value, depth + 1)
                if name in base
                else self._put_or_copy(value, [(model, base[model]) for model in models], depth)
            )
            if costed is not None:
                edits[name] = costed[0]
                cost += len(name) + _CHANGE_OVERHEAD + costed[1]
        return MemberEdits(edits, removed), cost

    def _put_or_copy(self, value: Any, models: Iterable[tuple[str, Any]], depth: int) -> CostedEdit:
        """Return an edit that adds the value, as a changed copy of a similar model if that is shorter."""
        best = self._put(value)
        if self._self_contained or type(value) is not dict or len(value) < 2:
            return best
        named = list(models)
        if not self._effort.spend(len(named) * len(value)):
            return best
        place = most_similar(value, [model for _, model in named])
        if place is None:
            return best
        name, model = named[place]
        costed = None if self._are_same(model, value) else self._diff_members(model, value, depth + 1)
        cost = len(name) + 6 + (costed[1] if costed is not None else 0)
        return (Copy(name, costed[0] if costed is not None else None), cost) if cost < best[1] else best

    def _diff_rows(self, base: list[Any], new: list[Any], depth: int) -> CostedEdit:
        work = self._effort.work
        forms, new_forms = _comparison_forms(base, new)
        work.spend(2 * (len(base) + len(new)))
        work.scan(_ENCODING_FACTOR * sum(map(len, (*forms, *new_forms))) if forms is not base else 0)
        key = next((key for key in self._keys if _is_shared_key(base, new, key)), None)
        key = key or find_key(base, new, forms, new_forms)
        name_of: Callable[[int], str] = str if key is None else short_row_names(base, key).__getitem__
        if key is None:
            matches = match_by_order(forms, new_forms, self._effort)
        else:
            matches = match_by_key(base, new, key, forms, new_forms)
            if matches.has_only_new_or_removed and sum(
                map(len, map(name_of, matches.removed))
            ) > _SHORT_NAME_CHARS * len(matches.removed):
                key, name_of = None, str
        edits: dict[str, Edit] = {}
        cost = len(key or "") + 3
        for place, new_place in matches.changed:
            costed = self.diff(base[place], new[new_place], depth + 1)
            assert costed is not None, "forms differ only where rows differ"
            edits[name_of(place)] = costed[0]
            cost += len(name_of(place)) + costed[1] + _CHANGE_OVERHEAD
        removed = tuple(map(name_of, matches.removed))
        cost += sum(len(name) + 2 for name in removed)
        placed: list[PlacedRow] = []
        length = len(new) - len(matches.placed)
        for at, old in matches.placed:
            work.spend(_STEPS_PER_PART if old is not None else 4 * _MAX_MODELS)
            row, size = (
                self._put_or_copy(new[at], _nearby_rows(base, name_of, at), depth) if old is None else (name_of(old), 6)
            )
            assert isinstance(row, str | Put | Copy), "a placed row moves, or is new"
            placed.append(PlacedRow(None if at == length else at, row))
            length += 1
            cost += size + 4
        return RowEdits(key, edits, removed, tuple(placed)), cost


def _is_empty(edit: Edit) -> bool:
    match edit:
        case MemberEdits(edits, removed):
            return not edits and not removed
        case RowEdits(_, edits, removed, placed):
            return not edits and not removed and not placed
        case _:
            return False


def _json_size(value: JSON) -> int:
    return len(_encode_json(value))


def _comparison_forms(base: list[Any], new: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return a hashable form of each item, equal for the same items only: ints or strings alone serve as their own."""
    kinds = {*map(type, base), *map(type, new)}
    if kinds in ({int}, {str}):
        return base, new
    return list(map(canonical_bytes, base)), list(map(canonical_bytes, new))


def most_similar(value: dict[str, Any], candidates: Sequence[Any]) -> int | None:
    """Return the index of the candidate that is most similar to the value; None if no candidate is similar."""
    scores = [_similarity(model, value) for model in candidates]
    best = max(scores, default=0)
    return scores.index(best) if best > 0 else None


def _is_shared_key(base: list[Any], new: list[Any], key: str) -> bool:
    if not base or not new:
        return False
    values, new_values = unique_values(base, key), unique_values(new, key)
    return values is not None and new_values is not None and type(values[0]) is type(new_values[0])


def _nearby_rows(base: list[Any], name_of: Callable[[int], str], place: int) -> list[tuple[str, Any]]:
    """Return the names and rows around the index of a new row, and the first row."""
    end = min(len(base), place + _MAX_MODELS // 2)
    return [(name_of(near), base[near]) for near in {0, *range(max(0, end - _MAX_MODELS), end)} if base]


def _similarity(model: Any, value: dict[str, Any]) -> int:
    """Return how many characters of members both share, minus those of members that only the model has."""
    if type(model) is not dict:
        return 0
    same = sum(len(name) + 4 for name, item in value.items() if name in model and model[name] == item)
    return same - sum(len(name) + 2 for name in model if name not in value)


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
