"""Finds tools that a reader, or a model, could take for another upstream's. Pure: does no I/O."""

import functools
import importlib.resources
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from deltamcp.catalog.text.clean_text import clean
from deltamcp.upstreams.listing import MAX_NAME_CHARS
from deltamcp.values import JSON
from deltamcp.work import Work, WorkLimitError

_FURTHER = {"k": "κкĸ", "m": "мʍ", "n": "п", "r": "гꮁ", "t": "тτ", "w": "ωшщ", "x": "χ", "y": "γ"}
"""What differs from a Latin letter by its height or a stroke; to Unicode that is no confusion."""
_ALIKE = {"0": "o", "1": "l", "i": "l", "|": "l", "!": "l", "5": "s", "$": "s", "@": "a"}
_PAIRS = {"rn": "m", "vv": "w", "cl": "d"}
"""ASCII characters that look alike."""


def latin(text: str) -> str:
    """Returns a text without hidden characters and marks, and with Latin letters for all that look like them."""
    if text.isascii():
        return text
    mapped = unicodedata.normalize("NFKC", clean(text)).translate(_table())
    decomposed = unicodedata.normalize("NFKD", mapped.translate(_table()))
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def skeleton(name: str) -> str:
    """Returns what a reader sees of a name at a glance: no case, no separators, one letter for all that look alike."""
    folded = latin(latin(name).casefold()).translate(_ascii_table())
    seen = "".join(char for char in folded if char.isalnum())
    for pair, letter in _PAIRS.items():
        seen = seen.replace(pair, letter)
    return seen


@functools.cache
def _ascii_table() -> Mapping[int, str]:
    return str.maketrans(_ALIKE)


@functools.cache
def _table() -> Mapping[int, str]:
    table = {lookalike: letter for letter, lookalikes in _FURTHER.items() for lookalike in lookalikes}
    text = importlib.resources.files("deltamcp.gateway.trust").joinpath("confusables.txt").read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            letters, _, lookalikes = line.partition(" ")
            table.update(dict.fromkeys(lookalikes, letters))
    return str.maketrans(table)


_WORD = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STYLE = re.compile(
    r"[a-z0-9]+(?:[_./-][a-z0-9]+)*|[A-Z0-9]+(?:[_./-][A-Z0-9]+)*"
    r"|[a-z0-9]+(?:[A-Z][a-z0-9]*)*|(?:[A-Z][a-z0-9]*)+|[A-Z][a-z0-9]*(?:[_./-][A-Z][a-z0-9]*)*"
)
"""The ways in which servers join words: `read_file`, `READ_FILE`, `readFile`, `ReadFile`, `Read_File`."""
_MIN_EDITED_CHARS = 7
"""The characters of the shortest names of which one character may differ."""
_MIN_EDITED_WORD_CHARS, _MIN_EXCHANGED_WORD_CHARS = 5, 7
"""The characters of the shortest word that lacks a letter, or has another one: `get` and `git`, `notes` and `nodes` are
words."""
_TAKEOVER = re.compile(
    r"\b(?:instead of|rather than|in place of|replaces|supersedes|before (?:using|calling|any|you use|you call))\b",
    re.IGNORECASE,
)
"""What a description says that wants its tool used in place of another, or ahead of it."""
_TAKEOVER_CHARS = 160
"""How far from such words the name of the other tool may be."""
_TEXT_KEYS = ("description", "title")
_MAX_TEXT_CHARS = 20_000
_NAME = re.compile(r"[\w.-]{4,}")
_TEXT_CHARS_PER_STEP = 16
_MAX_STEPS = 200_000
"""The work of a comparison of all upstreams: a second in a thread, and 27 MB meanwhile. 1,531 tools of 56 published
servers take 91,000. An upstream that lists more than its share is compared in part; others are not affected."""


class Imitation(NamedTuple):
    """A tool that could be taken for another upstream's."""

    upstream: str
    tool: str
    of_upstream: str
    of_tool: str
    how: str
    """Completes the sentence `'x' of a ... 'y' of b`."""

    def __str__(self) -> str:
        return f"{self.tool!r} of {self.upstream} {self.how} {self.of_tool!r} of {self.of_upstream}"


class Comparison(NamedTuple):
    """What came of a comparison of the tools of several upstreams."""

    imitations: list[Imitation]
    unfinished: list[str]
    """The upstreams that list too much to be compared whole."""

    def sentences(self) -> Iterator[str]:
        """Yields what an operator is told."""
        yield from map(str, self.imitations)
        for upstream in self.unfinished:
            yield f"{upstream} lists too much for all of it to be compared with the tools of other servers"


class _Named(NamedTuple):
    upstream: str
    name: str
    skeleton: str


def compare_tools(tools: Mapping[str, Sequence[Mapping[str, JSON]]]) -> Comparison:
    """Finds the tools of upstreams, given in the order of the configuration, that imitate one of another upstream.

    Equal names are none: many servers have a `search`, and its id says whose it is. Of two that are alike the later one
    imitates, or the one with characters that are not ASCII.
    """
    named = [
        _Named(upstream, name, skeleton(name))
        for upstream, listed in tools.items()
        for tool in listed
        if len(name := str(tool.get("name"))) <= MAX_NAME_CHARS
    ]
    shares = _Shares(tools, named)
    alike = (
        *_takeovers(tools, named, shares),
        *_titles(tools, named),
        *_alike(named),
        *_misspelt(named, shares),
        *_full_names(named),
    )
    found = {(one.upstream, one.tool): one for one in alike}
    return Comparison(list(found.values()), shares.unfinished)


class _Shares:
    """The work that each upstream may cause: all that it needs, or the same part of what others leave."""

    def __init__(self, tools: Mapping[str, Sequence[Mapping[str, JSON]]], named: Sequence[_Named]) -> None:
        needed = {upstream: sum(_text_steps(_text(tool)) for tool in listed) for upstream, listed in tools.items()}
        for one in named:
            needed[one.upstream] += len(one.skeleton)
        self._work: dict[str, Work] = {}
        left = _MAX_STEPS
        for upstream in sorted(needed, key=needed.__getitem__):
            share = min(needed[upstream], left // (len(needed) - len(self._work)))
            self._work[upstream] = Work(share)
            left -= share
        self.unfinished: list[str] = []

    def spend(self, upstream: str, steps: int) -> bool:
        """Counts work that an upstream causes; returns False if it has no more."""
        try:
            self._work[upstream].spend(steps)
        except WorkLimitError:
            if upstream not in self.unfinished:
                self.unfinished.append(upstream)
            return False
        return True


def similar_upstreams(names: Sequence[str]) -> Iterator[str]:
    """Yields sentences about upstreams whose names look like that of an earlier one."""
    for index, name in enumerate(names):
        for other in names[:index]:
            if skeleton(name) == skeleton(other) or _is_misspelling(name, other):
                yield f"the server {name!r} has almost the name of the server {other!r}"


def _alike(named: Sequence[_Named]) -> Iterator[Imitation]:
    """Yields names that differ and look the same."""
    for alike in _by_skeleton(named).values():
        if len(alike) > 1:
            plain = (one for one in alike if _STYLE.fullmatch(one.name))
            first = next(plain, next((one for one in alike if one.name.isascii()), alike[0]))
            for one in alike:
                is_other_style = _STYLE.fullmatch(one.name) and _words(one.name) == _words(first.name)
                if one.upstream != first.upstream and one.name != first.name and not is_other_style:
                    yield Imitation(one.upstream, one.name, first.upstream, first.name, "looks like")


def _misspelt(named: Sequence[_Named], shares: _Shares) -> Iterator[Imitation]:
    """Yields names that look the same but for one letter."""
    by_skeleton = _by_skeleton(named)
    order = {key: index for index, key in enumerate(by_skeleton)}
    by_variant: dict[int, str] = {}
    for key, alike in by_skeleton.items():
        if len(key) < _MIN_EDITED_CHARS or not shares.spend(alike[0].upstream, len(key)):
            continue
        for place in range(len(key)):
            shorter = key[:place] + key[place + 1 :]
            exchanged = by_variant.setdefault(hash((place, shorter)), key)
            for near in (one for one in (exchanged, shorter) if one != key and one in order):
                first, later = (by_skeleton[one][0] for one in sorted((key, near), key=order.__getitem__))
                if first.upstream != later.upstream and _is_misspelling(first.name, later.name):
                    yield Imitation(later.upstream, later.name, first.upstream, first.name, "is one letter apart from")


def _by_skeleton(named: Sequence[_Named]) -> dict[str, list[_Named]]:
    found: dict[str, list[_Named]] = {}
    for one in named:
        found.setdefault(one.skeleton, []).append(one)
    return found


def _is_misspelling(name: str, other: str) -> bool:
    """Returns whether two names have the same words but for one letter inside a long one: `mesage`, not `messages`."""
    words, others = _words(name), _words(other)
    if len(words) != len(others):
        return False
    differ = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
    if len(differ) != 1:
        return False
    one, two = sorted(differ[0], key=len)
    is_long = len(two) >= (_MIN_EXCHANGED_WORD_CHARS if len(one) == len(two) else _MIN_EDITED_WORD_CHARS)
    return is_long and _is_one_letter_apart(one, two) and one[:-1] != two[: len(one) - 1] and one[-1] == two[-1]


def _is_one_letter_apart(one: str, two: str) -> bool:
    """Returns whether two words, the shorter one first, differ by one letter that is another or that is missing."""
    same = next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
    rest = one[same:] if len(one) < len(two) else one[same + 1 :]
    return one != two and rest == two[same + 1 :]


def _words(name: str) -> list[str]:
    return _WORD.findall(_CAMEL.sub("_", name).casefold())


def _full_names(named: Sequence[_Named]) -> Iterator[Imitation]:
    """Yields names of one upstream that begin with another's name and end with one of its tools."""
    upstreams = {skeleton(upstream): upstream for upstream in dict.fromkeys(one.upstream for one in named)}
    own = {(one.upstream, one.skeleton): one for one in named}
    for one in named:
        for start, upstream in upstreams.items():
            if upstream != one.upstream and one.skeleton.startswith(start):
                imitated = own.get((upstream, one.skeleton[len(start) :]))
                if imitated is not None:
                    yield Imitation(one.upstream, one.name, upstream, imitated.name, "has the name of")


def _takeovers(
    tools: Mapping[str, Sequence[Mapping[str, JSON]]], named: Sequence[_Named], shares: _Shares
) -> Iterator[Imitation]:
    """Yields tools whose texts say to use them in place of another upstream's tool, or ahead of it."""
    owners: dict[str, set[str]] = {}
    for one in named:
        owners.setdefault(one.name, set()).add(one.upstream)
    for upstream, listed in tools.items():
        for tool in listed:
            text = _text(tool)
            if not shares.spend(upstream, _text_steps(text)):
                break
            for word in _words_after_takeover(text):
                others = owners.get(word, ())
                if others and upstream not in others and len(_words(word)) > 1:
                    yield Imitation(upstream, str(tool.get("name")), min(others), word, "wants to be used for")
                    break


def _words_after_takeover(text: str) -> Iterator[str]:
    """Yields each word that is near after such words, once."""
    end = 0
    for found in _TAKEOVER.finditer(text):
        start, end = max(found.end(), end), found.end() + _TAKEOVER_CHARS
        for word in _NAME.finditer(text, start, end):
            yield word[0].strip(".")


def _text_steps(text: str) -> int:
    return 1 + len(text) // _TEXT_CHARS_PER_STEP


def _titles(tools: Mapping[str, Sequence[Mapping[str, JSON]]], named: Sequence[_Named]) -> Iterator[Imitation]:
    """Yields tools whose titles have characters that make them look like the name or the title of another's tool."""
    titles = [
        _Named(upstream, str(tool.get("name")), skeleton(title))
        for upstream, listed in tools.items()
        for tool in listed
        for title in _own_titles(tool)
    ]
    known = {one.skeleton: one for one in reversed((*named, *titles))}
    for upstream, listed in tools.items():
        for tool in listed:
            for title in _own_titles(tool):
                other = None if latin(title) == title else known.get(skeleton(title))
                if other is not None and other.upstream != upstream:
                    yield Imitation(
                        upstream, str(tool.get("name")), other.upstream, other.name, "has a title that looks like"
                    )


def _own_titles(tool: Mapping[str, JSON]) -> Iterator[str]:
    annotations = tool.get("annotations")
    for title in (tool.get("title"), annotations.get("title") if isinstance(annotations, dict) else None):
        if isinstance(title, str) and len(title) <= MAX_NAME_CHARS:
            yield title


def _text(tool: Mapping[str, JSON]) -> str:
    """Returns what a tool says of itself and of its parameters, as a reader sees it."""
    texts: list[str] = []
    left = _MAX_TEXT_CHARS
    values: list[JSON] = [tool]
    for value in values:  # which grows meanwhile
        for key, child in value.items() if isinstance(value, dict) else ((None, child) for child in value):
            if isinstance(child, dict | list):
                values.append(child)
            elif isinstance(child, str) and key in _TEXT_KEYS and left > 0:
                texts.append(child[:left])
                left -= len(child)
    return " ".join(latin(clean("\n".join(texts))).split())
