"""What changes in a string: pieces of it, or lines."""

import re
from collections.abc import Iterator

from deltamcp.deltas.alignment import Effort, Run, Stretch, align, gaps
from deltamcp.deltas.edits import END, Hunk, LineEdits, Splices
from deltamcp.deltas.prefix import common_prefix_length

_MIN_STRING_CHARS = 24
"""Characters from which on a string is worth an edit of its parts."""
_MAX_PIECES = 12
_EFFORT_PER_STRING = 300
"""Items that could be compared in the time it takes to look at one string, however short."""
_MAX_MIDDLE_CHARS = 1_000
"""Between the common ends of two lines whose words are compared."""
_PIECE_OVERHEAD = 10
"""Characters a piece has to save beside its own: two quotes on each side, and the reader's care."""
_HUNK_OVERHEAD = 4
"""Characters around a hunk, at least."""
_MAX_PIECE_CHARS = 120
"""Characters of a piece, its surroundings included."""
_MAX_WORD_CHARS = 60
_word = re.compile(r"\w{1,60}|\s{1,60}|[^\w\s]")


def diff_strings(base: str, new: str, effort: Effort, allow_splices: bool) -> tuple[Splices | LineEdits, int] | None:
    """How to get from one to the other, and about how many characters that takes; None where it is not worth it.

    With `splices` a piece of a line may be told by what it was.
    """
    if len(base) < _MIN_STRING_CHARS:
        return None
    if "\n" in base:
        made = _diff_lines(base.split("\n"), new.split("\n"), effort, allow_splices)
        return made if made[1] < len(new) else None
    made_of_pieces = _diff_words(base, new, effort) if allow_splices else None
    return made_of_pieces if made_of_pieces is not None and made_of_pieces[1] < len(new) else None


def changed_middle(base: str, new: str) -> tuple[str, str] | None:
    """What lies between the words that both begin and end with, where that is a word or more in the base."""
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
    """A stretch of lines; where as many stand for as many, each by its pieces if that is shorter."""
    start, stop, new_start, new_stop = stretch
    whole: list[str] = []
    since = start
    for place in range(start, stop if stop - start == new_stop - new_start else start):
        line = new[new_start + place - start]
        pieces = None if effort is None or len(line) < _MIN_STRING_CHARS else _diff_words(base[place], line, effort)
        if pieces is None or pieces[1] >= len(line) + 1:
            whole.append(line)
            continue
        if whole:
            yield _replacement_hunk(since, place, whole)
        yield Hunk(place, place + 1, pieces[0]), _HUNK_OVERHEAD + pieces[1]
        whole, since = [], place + 1
    if stop - start != new_stop - new_start:
        whole = new[new_start:new_stop]
    if whole or since < stop:
        yield _replacement_hunk(END, END, whole) if since == len(base) else _replacement_hunk(since, stop, whole)


def _replacement_hunk(start: int, stop: int, lines: list[str]) -> tuple[Hunk, int]:
    return Hunk(start, stop, tuple(lines)), _HUNK_OVERHEAD + sum(len(line) + 2 for line in lines)


def _diff_words(base: str, new: str, effort: Effort) -> tuple[Splices, int] | None:
    """The words that differ, each told by what makes it the next of its kind."""
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
        piece = _unambiguous_piece(base, at, places[start], places[stop], "".join(news[new_start:new_stop]))
        if piece is None or len(pieces) == _MAX_PIECES:
            return None
        old, text, at = piece
        pieces.append((old, text))
        cost += len(old) + len(text) + _PIECE_OVERHEAD
    return (Splices(tuple(pieces)), cost) if pieces else None


def _common_ends(base: str, new: str) -> tuple[int, int]:
    """How much both begin and end with, drawn back to where words begin and end in both."""
    head = common_prefix_length(base, new)
    tail = common_prefix_length(base[head:][::-1], new[head:][::-1])
    least, least_tail = head - _MAX_WORD_CHARS, tail - _MAX_WORD_CHARS
    while head and head > least and _is_inside_word(base, head) | _is_inside_word(new, head):
        head -= 1
    while (
        tail and tail > least_tail and _is_inside_word(base, len(base) - tail) | _is_inside_word(new, len(new) - tail)
    ):
        tail -= 1
    return head, tail


def _is_inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and (text[at - 1] + text[at]).replace("_", "a").isalnum()


def _drop_lone_words(runs: list[Run], length: int, new_length: int) -> list[Run]:
    """Without single words, such as spaces, that stay between two that change: one piece costs less than two."""
    ends = ((0, 0), (length, new_length))
    return [
        run
        for run in runs
        if run.length > 1 or run[:2] in ends or (run.at + run.length, run.new_at + run.length) in ends
    ]


def _unambiguous_piece(base: str, at: int, start: int, stop: int, new: str) -> tuple[str, str, int] | None:
    """What is replaced, with as much before or after it as makes it the first of its kind from `at` on."""
    begin, end = start, stop
    while begin == end or base.find(base[begin:end], at) != begin:
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
    found = place - 1
    while found > at and place - found < _MAX_WORD_CHARS and _is_inside_word(base, found):
        found -= 1
    return found
