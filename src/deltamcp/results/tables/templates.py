"""What the texts of a column have in common: with each other, and with other columns of their rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from deltamcp.results.tables.cells import STAR, Part, Path, Reference

_REFERENCES = 4
_LONG_RUN = 8
"""Letters a prefix may end in although the word goes on: less is a word cut in two, more an identifier's beginning."""


class Source(NamedTuple):
    """A column others may be made of."""

    path: Path
    texts: Sequence[str]
    typed: bool
    """Whether its values are numbers, whose text alone would not say so."""


class Found(NamedTuple):
    parts: list[Part]
    cells: list[str] | None
    """What stands for `*`, row by row; None where there is none."""


def find(values: Sequence[str], sources: Sequence[Source]) -> Found:
    """The template the values follow: literals, references to sources, and at most one place for what remains."""
    near = _near(values, sources)
    rest: Sequence[str] = values
    left: list[Part] = []
    right: list[Part] = []
    for _ in range(_REFERENCES):
        hit = _leading(rest, near)
        if hit is None:
            break
        literal, source = hit
        left += [literal] * bool(literal) + [Reference(source.path)]
        rest = [text[len(literal) + len(known) :] for text, known in zip(rest, source.texts, strict=True)]
    prefix = common_prefix(rest)
    prefix = prefix[: _boundary(prefix, rest)]
    rest = [text[len(prefix) :] for text in rest] if prefix else rest
    left += [prefix] * bool(prefix)
    for _ in range(_REFERENCES):
        hit = _trailing(rest, near)
        if hit is None:
            break
        literal, source = hit
        right = [Reference(source.path), *[literal] * bool(literal), *right]
        rest = [text[: len(text) - len(literal) - len(known)] for text, known in zip(rest, source.texts, strict=True)]
    suffix = common_prefix([text[::-1] for text in rest])
    suffix = suffix[: _boundary(suffix, [text[::-1] for text in rest])][::-1]
    if suffix:
        rest = [text[: -len(suffix)] for text in rest]
        right.insert(0, suffix)
    if any(rest):
        return Found([*left, STAR, *right], list(rest))
    return Found(_merged([*left, *right]), None)


def _merged(parts: list[Part]) -> list[Part]:
    made: list[Part] = []
    for part in parts:
        if isinstance(part, str) and made and isinstance(made[-1], str):
            made[-1] += part
        else:
            made.append(part)
    return made


def _near(values: Sequence[str], sources: Sequence[Source]) -> list[Source]:
    """The few sources worth a closer look, longest first: in three of the rows they are part of the value."""
    looked_at = {0, len(values) // 2, len(values) - 1}
    near = [
        source for source in sources if all(source.texts[row] and source.texts[row] in values[row] for row in looked_at)
    ]
    return sorted(near, key=lambda source: -len(source.texts[0]))


def _leading(rest: Sequence[str], near: list[Source]) -> tuple[str, Source] | None:
    if not near:
        return None
    first, reach = rest[0], len(common_prefix(rest))
    for source in near:
        for at in _places(first, source.texts[0], reach):
            if not parted(first, at) or not parted(first, at + len(source.texts[0])):
                continue
            if all(text.startswith(known, at) for text, known in zip(rest, source.texts, strict=True)):
                return first[:at], source
    return None


def _trailing(rest: Sequence[str], near: list[Source]) -> tuple[str, Source] | None:
    if not near:
        return None
    first = rest[0]
    for source in near:
        at = first.rfind(source.texts[0])
        if at < 0 or not parted(first, at) or not parted(first, at + len(source.texts[0])):
            continue
        tail = first[at + len(source.texts[0]) :]
        if all(text.endswith(known + tail) for text, known in zip(rest, source.texts, strict=True)):
            return tail, source
    return None


def _places(text: str, part: str, reach: int) -> Iterator[int]:
    at = text.find(part)
    while 0 <= at <= reach:
        yield at
        at = text.find(part, at + 1)


def parted(text: str, at: int) -> bool:
    """Whether one word or number ends there and another begins."""
    if at == 0 or at == len(text):
        return True
    before, after = text[at - 1], text[at]
    return not (before.isalpha() and after.isalpha()) and not (before.isdigit() and after.isdigit())


def common_prefix(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    if low == high:
        return low
    for at, character in enumerate(low):
        if character != high[at]:
            return low[:at]
    return low


def _boundary(prefix: str, texts: Sequence[str]) -> int:
    """How much of a common prefix leaves words and numbers whole."""
    end = len(prefix)
    if not prefix or not prefix[-1].isalnum():
        return end
    same = str.isdigit if prefix[-1].isdigit() else str.isalpha
    if not any(same(text[end : end + 1]) for text in texts):
        return end
    start = end
    while start and same(prefix[start - 1]):
        start -= 1
    return end if end - start >= _LONG_RUN else start
