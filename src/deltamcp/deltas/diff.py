"""Diff of two JSON values: compares objects by member, tables by row and texts by line, and returns edits."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from deltamcp.deltas.alignment import Effort, Run, Stretch, align, gaps, longest_increasing_subsequence
from deltamcp.deltas.edits import (
    END,
    Copy,
    Edit,
    Hunk,
    LineEdits,
    MemberEdits,
    PlacedRow,
    Put,
    RowEdits,
    Splices,
    common_prefix_length,
    short_row_names,
)
from deltamcp.deltas.root import canonical_bytes
from deltamcp.values import JSON
from deltamcp.work import Work

_MIN_STRING_CHARS = 24
"""Characters of the shortest string that is edited in parts; a shorter one is replaced."""
_MAX_PIECES = 12
_MAX_LINES = 200_000
"""Lines of both texts above which a text is replaced; they take some 60 bytes each besides their characters."""
_SEARCH_FACTOR = 16
"""How often the search for common ends looks at each character, about."""
_EFFORT_PER_STRING = 300
"""Items charged for each string that is compared, however short: comparing them takes as long."""
_MAX_MIDDLE_CHARS = 1_000
"""Characters between the common ends of two lines whose words are still compared."""
_PIECE_OVERHEAD = 10
"""Characters charged for a piece besides its text: two quotes on each side, and the reader's effort."""
_HUNK_OVERHEAD = 4
"""Characters that a hunk takes at least besides its lines."""
_MAX_PIECE_CHARS = 120
"""Characters of the longest piece, with the text around it that makes it unambiguous."""
_MAX_WORD_CHARS = 60
_word = re.compile(r"\w{1,60}|\s{1,60}|[^\w\s]")


def diff_strings(base: str, new: str, effort: Effort, allow_splices: bool) -> tuple[Splices | LineEdits, int] | None:
    """Returns the edit from `base` to `new` and about how many characters it takes; None if it is not worth it.

    With `allow_splices` the edit may quote a piece of a line in order to replace it.
    """
    if len(base) < _MIN_STRING_CHARS:
        return None
    effort.work.scan(_SEARCH_FACTOR * (len(base) + len(new)))
    if "\n" in base:
        if base.count("\n") + new.count("\n") > _MAX_LINES:
            return None
        lines = _diff_lines(base.split("\n"), new.split("\n"), effort, allow_splices)
        return lines if lines[1] < len(new) else None
    splices = _diff_words(base, new, effort) if allow_splices else None
    return splices if splices is not None and splices[1] < len(new) else None


def changed_middle(base: str, new: str) -> tuple[str, str] | None:
    """Returns the old and the new text between the words that both begin and end with; None if the old is empty."""
    head, tail = _common_text_ends(base, new)
    old = base[head : len(base) - tail]
    return (old, new[head : len(new) - tail]) if old else None


def _diff_lines(base: list[str], new: list[str], effort: Effort, allow_splices: bool) -> tuple[LineEdits, int]:
    hunks: list[Hunk] = []
    cost = 0
    for start, stop, new_start, new_stop in gaps(align(base, new, effort), len(base), len(new)):
        for hunk, size in _stretch_hunks(
            base, new, (start, stop, new_start, new_stop), effort if allow_splices else None
        ):
            hunks.append(hunk)
            cost += size
    return LineEdits(tuple(hunks)), cost


def _stretch_hunks(
    base: list[str], new: list[str], stretch: Stretch, effort: Effort | None
) -> Iterator[tuple[Hunk, int]]:
    """Yields the hunks of a stretch, and their costs. Where the number of lines stays, a line may become splices."""
    start, stop, new_start, new_stop = stretch
    replaced: list[str] = []
    first = start
    for place in range(start, stop if stop - start == new_stop - new_start else start):
        line = new[new_start + place - start]
        pieces = None if effort is None or len(line) < _MIN_STRING_CHARS else _diff_words(base[place], line, effort)
        if pieces is None or pieces[1] >= len(line) + 1:
            replaced.append(line)
            continue
        if replaced:
            yield _replacement_hunk(first, place, replaced)
        yield Hunk(place, place + 1, pieces[0]), _HUNK_OVERHEAD + pieces[1]
        replaced, first = [], place + 1
    if stop - start != new_stop - new_start:
        replaced = new[new_start:new_stop]
    if replaced or first < stop:
        yield _replacement_hunk(END, END, replaced) if first == len(base) else _replacement_hunk(first, stop, replaced)


def _replacement_hunk(start: int, stop: int, lines: list[str]) -> tuple[Hunk, int]:
    return Hunk(start, stop, tuple(lines)), _HUNK_OVERHEAD + sum(len(line) + 2 for line in lines)


def _diff_words(base: str, new: str, effort: Effort) -> tuple[Splices, int] | None:
    """Returns the words that differ as splices, each with the context that makes it unambiguous; None if it cannot."""
    head, tail = _common_text_ends(base, new)
    middle = max(len(base), len(new)) - head - tail
    if middle > _MAX_MIDDLE_CHARS or not effort.spend(middle + _EFFORT_PER_STRING):
        return None
    olds = _word.findall(base[head : len(base) - tail])
    news = _word.findall(new[head : len(new) - tail])
    places = [head]
    for word in olds:
        places.append(places[-1] + len(word))
    pieces: list[tuple[str, str]] = []
    cost, at = 0, 0
    for start, stop, new_start, new_stop in gaps(
        _drop_lone_words(align(olds, news, effort), len(olds), len(news)), len(olds), len(news)
    ):
        piece = _unambiguous_piece(base, at, places[start], places[stop], "".join(news[new_start:new_stop]), effort)
        if piece is None or len(pieces) == _MAX_PIECES:
            return None
        old, text, at = piece
        pieces.append((old, text))
        cost += len(old) + len(text) + _PIECE_OVERHEAD
    return (Splices(tuple(pieces)), cost) if pieces else None


def _common_text_ends(base: str, new: str) -> tuple[int, int]:
    """Returns how many characters both strings begin with, and end with, cut back to where words end in both."""
    head = common_prefix_length(base, new)
    tail = common_prefix_length(base[head:][::-1], new[head:][::-1])
    min_head, min_tail = head - _MAX_WORD_CHARS, tail - _MAX_WORD_CHARS
    while head and head > min_head and _is_inside_word(base, head) | _is_inside_word(new, head):
        head -= 1
    while tail and tail > min_tail and _is_inside_word(base, len(base) - tail) | _is_inside_word(new, len(new) - tail):
        tail -= 1
    return head, tail


def _is_inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and (text[at - 1] + text[at]).replace("_", "a").isalnum()


def _drop_lone_words(runs: list[Run], length: int, new_length: int) -> list[Run]:
    """Drops runs of one word, such as a space between two words that change: one piece costs less than two."""
    ends = ((0, 0), (length, new_length))
    return [
        run
        for run in runs
        if run.length > 1 or run[:2] in ends or (run.at + run.length, run.new_at + run.length) in ends
    ]


def _unambiguous_piece(
    base: str, at: int, start: int, stop: int, new: str, effort: Effort
) -> tuple[str, str, int] | None:
    """Returns the old text, new text and end of a piece, widened until no equal text comes before it from `at` on."""
    begin, end = start, stop
    while begin == end or base.find(base[begin:end], at) != begin:
        effort.work.scan(begin - at)
        if end - begin > _MAX_PIECE_CHARS:
            return None
        before = _word_before(base, at, begin)
        if before < begin:
            begin = before
        elif end < len(base):
            match = _word.match(base, end)
            end = match.end() if match is not None else len(base)
        else:
            return None
    return base[begin:end], base[begin:start] + new + base[stop:end], end


def _word_before(base: str, at: int, place: int) -> int:
    if place <= at:
        return place
    begin = place - 1
    while begin > at and place - begin < _MAX_WORD_CHARS and _is_inside_word(base, begin):
        begin -= 1
    return begin


_COMMON_KEY_NAMES = (
    "id",
    "key",
    "uid",
    "uuid",
    "guid",
    "name",
    "path",
    "url",
    "sha",
    "number",
    "slug",
    "code",
    "login",
)
_COMMON_KEY_ENDINGS = ("id", "_key", "uuid", "guid")
_MAX_TRIED_KEYS = 4
"""Members that `find_key` tries as keys."""
_SAMPLED_ROWS = 50
"""Changed rows from which the cost of a key is estimated."""
_MAX_KEY_CHARS = 200


def find_key(base: list[Any], new: list[Any], base_forms: Sequence[Any], new_forms: Sequence[Any]) -> str | None:
    """Returns the member that identifies the rows at the least cost; None if no member identifies them.

    `base_forms` and `new_forms` are equal where rows are equal.
    """
    if not base or not new or type(base[0]) is not dict:
        return None
    best: tuple[float, str] | None = None
    tried = 0
    for name in sorted(base[0], key=key_rank):
        values = unique_values(base, name)
        new_values = None if values is None else unique_values(new, name)
        if values is None or new_values is None or type(values[0]) is not type(new_values[0]):
            continue
        places = {value: place for place, value in enumerate(values)}
        pairs = [(places.get(value), place) for place, value in enumerate(new_values)]
        changed = [
            (place, new_place)
            for place, new_place in pairs
            if place is not None and base_forms[place] != new_forms[new_place]
        ]
        added = [len(new_forms[new_place]) for place, new_place in pairs if place is None]
        if len(added) < len(pairs):
            cost = sum(added) + _change_cost(base, new, name, changed)
            if best is None or cost < best[0]:
                best = (cost, name)
        tried += 1
        if tried == _MAX_TRIED_KEYS:
            break
    return None if best is None else best[1]


def _change_cost(base: list[Any], new: list[Any], key: str, pairs: list[tuple[int, int]]) -> float:
    """Estimates how many characters the changes between the paired rows take."""
    if not pairs:
        return 0.0
    cost = 0
    sample = pairs[:: max(1, len(pairs) // _SAMPLED_ROWS)]
    for place, new_place in sample:
        before, after = base[place], new[new_place]
        cost += len(str(after[key]))
        cost += sum(len(name) + len(str(item)) for name, item in after.items() if before.get(name) != item)
    return cost * len(pairs) / len(sample)


def key_rank(name: str) -> int:
    """Returns a rank by which names that keys commonly have sort first."""
    lowered = name.lower()
    if lowered in _COMMON_KEY_NAMES:
        return _COMMON_KEY_NAMES.index(lowered)
    return len(_COMMON_KEY_NAMES) if lowered.endswith(_COMMON_KEY_ENDINGS) else len(_COMMON_KEY_NAMES) + 1


def unique_values(rows: list[Any], name: str) -> list[Any] | None:
    """Returns the rows' values under a name if all are strings, or all integers from 0, and all differ; else None."""
    try:
        values = [row[name] for row in rows]
    except (KeyError, TypeError, IndexError):
        return None
    kind = type(values[0])
    if kind is not str and kind is not int:
        return None
    if any(type(value) is not kind for value in values) or len(set(values)) < len(values):
        return None
    if kind is int:
        return values if min(values) >= 0 else None
    return values if max(map(len, values)) <= _MAX_KEY_CHARS else None


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
    """Returns the edit that turns `base` into `new`, and its cost; None if the values are the same.

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
                else self._shorter_edit(diff_strings(base, new, self._effort, not self._self_contained), new)
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
        """Returns an edit that adds the value, as a changed copy of a similar model if that is shorter."""
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
    """Returns a hashable form of each item, equal for the same items only: ints or strings alone serve as their own."""
    kinds = {*map(type, base), *map(type, new)}
    if kinds in ({int}, {str}):
        return base, new
    return list(map(canonical_bytes, base)), list(map(canonical_bytes, new))


def most_similar(value: dict[str, Any], candidates: Sequence[Any]) -> int | None:
    """Returns the index of the candidate that is most similar to the value; None if no candidate is similar."""
    scores = [_similarity(model, value) for model in candidates]
    best = max(scores, default=0)
    return scores.index(best) if best > 0 else None


def _is_shared_key(base: list[Any], new: list[Any], key: str) -> bool:
    if not base or not new:
        return False
    values, new_values = unique_values(base, key), unique_values(new, key)
    return values is not None and new_values is not None and type(values[0]) is type(new_values[0])


def _nearby_rows(base: list[Any], name_of: Callable[[int], str], place: int) -> list[tuple[str, Any]]:
    """Returns the names and rows around the index of a new row, and the first row."""
    end = min(len(base), place + _MAX_MODELS // 2)
    return [(name_of(near), base[near]) for near in {0, *range(max(0, end - _MAX_MODELS), end)} if base]


def _similarity(model: Any, value: dict[str, Any]) -> int:
    """Returns how many characters of members both share, minus those of members that only the model has."""
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
    """Matches rows that have the same value under the key. `forms` and `new_forms` are equal where rows are equal."""
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
    """Matches equal rows in order. Rows between them change one for one; the remaining ones are removed or new."""
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
    """Returns how many equal rows both lists begin with, and end with."""
    limit = min(len(forms), len(new_forms))
    head = next((at for at, pair in enumerate(zip(forms, new_forms, strict=False)) if pair[0] != pair[1]), limit)
    backwards = zip(reversed(forms), reversed(new_forms), strict=False)
    tail = next((at for at, pair in enumerate(backwards) if pair[0] != pair[1]), limit)
    return head, min(tail, limit - head)
