"""Diff of two strings: by lines, or by pieces of a line."""

import re
from collections.abc import Iterator

from deltamcp.deltas.alignment import Effort, Run, Stretch, align, gaps
from deltamcp.deltas.edits import END, Hunk, LineEdits, Splices, common_prefix_length

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
    """Return the edit from `base` to `new` and about how many characters it takes; None if it is not worth it.

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
    """Return the old and the new text between the words that both begin and end with; None if the old text is empty."""
    head, tail = _common_ends(base, new)
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
    """Yield the hunks of a stretch, and their costs. Where the number of lines stays, a line may become splices."""
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
    """Return the words that differ as splices, each with the context that makes it unambiguous; None if it cannot."""
    head, tail = _common_ends(base, new)
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


def _common_ends(base: str, new: str) -> tuple[int, int]:
    """Return how many characters both strings begin with, and end with, cut back to where words end in both."""
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
    """Drop runs of one word, such as a space between two words that change: one piece costs less than two."""
    ends = ((0, 0), (length, new_length))
    return [
        run
        for run in runs
        if run.length > 1 or run[:2] in ends or (run.at + run.length, run.new_at + run.length) in ends
    ]


def _unambiguous_piece(
    base: str, at: int, start: int, stop: int, new: str, effort: Effort
) -> tuple[str, str, int] | None:
    """Return the old text, new text and end of a piece, widened until no equal text comes before it from `at` on."""
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
