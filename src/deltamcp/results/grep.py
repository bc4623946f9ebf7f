"""Finds the lines of a text, items of a list or members of an object that contain one of several words.

The search ignores case, and `|` separates alternatives. Words are plain text, because a regular expression could run
without end. The search for a word is that of `str`, over a block of units at a time, so that its time grows with the
text and the number of words only.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from deltamcp.errors import UsageError
from deltamcp.results.document import PickedItems, RawJSON, Units
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

MAX_WORDS = 50
MAX_WORD_CHARS = 1_000
"""All words together; a model that searches for more of a text has the text."""

MAX_LINES = 10_000
"""Matching lines beyond this number are left out; a caller that got so many needs other words."""
_MAX_LINE_CHARS = 300
"""Longer lines that match are cut; a line may be megabytes long."""
_BLOCK_CHARS = 32 * 1024
"""Units are searched in blocks of this size, and one by one only in a block that has a word. The search of `str` is
linear in texts above 30,000 characters; in shorter ones it may compare a word with each place of the text."""
_PIECE_CHARS = 512 * 1024
"""Longer texts are searched in pieces, so that no single call takes long."""
_NON_ASCII_FACTOR = 8
"""Lower case of texts beyond ASCII takes so many times as long."""
_COMPARED_PER_STEP = 16
"""Characters of a word in a short text that are compared in the time of a character of a long text."""


class Matches(NamedTuple):
    """The units that match."""

    units: Units
    are_all: bool = True
    """Whether no further units match."""


def matching_units(units: Units, grep: str, work: Work) -> Matches:
    """Return the lines of a text that match, each after its offset, from which the model can read on; or the items or
    members that match, by their index or key.

    Raises:
        UsageError: there are too many words.
    """
    words = _parse_words(grep)
    search = _Search(words, work)
    if isinstance(units, str):
        lines = list(islice(_matching_lines(units, search), MAX_LINES + 1))
        return Matches("\n".join(lines[:MAX_LINES]), len(lines) <= MAX_LINES)
    if isinstance(units, bytes):
        return Matches(units)
    # Values are still encoded, so the words are escaped as JSON escapes them.
    values = _Search([jsonrpc.encode(word).decode()[1:-1] for word in words], work)
    if isinstance(units, Mapping):
        matching = {key: unit for key, unit in units.items() if values.find_in(_text(unit), search.find_in(key)) >= 0}
        return Matches(matching)
    return Matches(PickedItems(units, array("Q", _matching_places(units, values))))


def _parse_words(grep: str) -> list[str]:
    words = [word for word in grep.split("|", MAX_WORDS + 1) if word] or [grep]
    if len(words) > MAX_WORDS or len(grep) > MAX_WORD_CHARS:
        raise UsageError(f"grep takes up to {MAX_WORDS} words and {MAX_WORD_CHARS} characters; search for fewer.")
    return words


class _Search:
    """A search for any of several words."""

    def __init__(self, words: list[str], work: Work) -> None:
        self._words = [word.lower() for word in words]
        self._longest = max(map(len, self._words))
        self.work = work

    def find_in(self, text: str, found: int = -1) -> int:
        """Return where in a text one of the words is, about; -1 where the text has none of them.

        With a place `found` elsewhere there is nothing to search for.
        """
        for start in range(0, len(text) if found < 0 else 0, _PIECE_CHARS):
            piece = text[start : start + _PIECE_CHARS + self._longest]
            self.work.scan(len(piece) * (1 if piece.isascii() else _NON_ASCII_FACTOR))
            piece = piece.lower()
            for word in self._words:
                compared = 1 if len(piece) >= _BLOCK_CHARS else 1 + len(word) // _COMPARED_PER_STEP
                self.work.scan(len(piece) * compared)
                place = piece.find(word)
                if place >= 0:
                    return start + place
        return found


def _matching_lines(text: str, search: _Search) -> Iterator[str]:
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + _BLOCK_CHARS) + 1 or len(text)
        block = text[begin:end]
        if search.find_in(block) >= 0:
            for line in block.splitlines(keepends=True):
                place = search.find_in(line)
                if place >= 0:
                    yield f"{begin}: {_excerpt(line, place)}"
                begin += len(line)
        begin = end


def _excerpt(line: str, place: int) -> str:
    """Return a line; of a long line, the part around the match."""
    line = line.rstrip()
    if len(line) <= _MAX_LINE_CHARS:
        return line
    start = max(0, min(place - _MAX_LINE_CHARS // 3, len(line) - _MAX_LINE_CHARS))
    return f"{'…' * (start > 0)}{line[start : start + _MAX_LINE_CHARS]}{'…' * (start + _MAX_LINE_CHARS < len(line))}"


def _matching_places(units: Sequence[RawJSON], search: _Search) -> Iterator[int]:
    for first, texts in _blocks(units, search):
        if search.find_in("\n".join(texts)) >= 0:
            yield from (first + place for place, text in enumerate(texts) if search.find_in(text) >= 0)


def _blocks(units: Sequence[RawJSON], search: _Search) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of some units in a row, and the index of the first of them."""
    texts: list[str] = []
    first = chars = 0
    for place in range(len(units)):
        search.work.spend()
        texts.append(_text(units[place]))
        chars += len(texts[-1])
        if chars >= _BLOCK_CHARS:
            yield first, texts
            first, texts, chars = place + 1, [], 0
    yield first, texts


def _text(unit: RawJSON) -> str:
    return str(memoryview(unit), "utf-8")
