"""What the texts of a column have in common: with each other, and with other columns of their rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from deltamcp.results.tables.syntax import PLACEHOLDER, ColumnPath, ColumnReference, TemplatePart

_MAX_REFERENCES = 4
_MIN_IDENTIFIER_RUN = 8
"""Letters a prefix may end in although the word goes on: less is a word cut in two, more an identifier's beginning."""


class TemplateSource(NamedTuple):
    """A column others may be made of."""

    path: ColumnPath
    texts: Sequence[str]
    typed: bool
    """Whether its values are numbers, whose text alone would not say so."""


class ColumnTemplate(NamedTuple):
    parts: list[TemplatePart]
    cells: list[str] | None
    """What stands for `*`, row by row; None where there is none."""


def find_template(values: Sequence[str], sources: Sequence[TemplateSource]) -> ColumnTemplate:
    """The template the values follow: literals, references to sources, and at most one place for what remains."""
    near = _likely_sources(values, sources)
    rest: Sequence[str] = values
    left: list[TemplatePart] = []
    right: list[TemplatePart] = []
    for _ in range(_MAX_REFERENCES):
        hit = _leading_reference(rest, near)
        if hit is None:
            break
        literal, source = hit
        left += [literal] * bool(literal) + [ColumnReference(source.path)]
        rest = [text[len(literal) + len(known) :] for text, known in zip(rest, source.texts, strict=True)]
    prefix = common_prefix(rest)
    prefix = prefix[: _whole_words_length(prefix, rest)]
    rest = [text[len(prefix) :] for text in rest] if prefix else rest
    left += [prefix] * bool(prefix)
    for _ in range(_MAX_REFERENCES):
        hit = _trailing_reference(rest, near)
        if hit is None:
            break
        literal, source = hit
        right = [ColumnReference(source.path), *[literal] * bool(literal), *right]
        rest = [text[: len(text) - len(literal) - len(known)] for text, known in zip(rest, source.texts, strict=True)]
    suffix = common_prefix([text[::-1] for text in rest])
    suffix = suffix[: _whole_words_length(suffix, [text[::-1] for text in rest])][::-1]
    if suffix:
        rest = [text[: -len(suffix)] for text in rest]
        right.insert(0, suffix)
    if any(rest):
        return ColumnTemplate([*left, PLACEHOLDER, *right], list(rest))
    return ColumnTemplate(_merge_literals([*left, *right]), None)


def _merge_literals(parts: list[TemplatePart]) -> list[TemplatePart]:
    made: list[TemplatePart] = []
    for part in parts:
        if isinstance(part, str) and made and isinstance(made[-1], str):
            made[-1] += part
        else:
            made.append(part)
    return made


def _likely_sources(values: Sequence[str], sources: Sequence[TemplateSource]) -> list[TemplateSource]:
    """The few sources worth a closer look, longest first: in three of the rows they are part of the value."""
    looked_at = {0, len(values) // 2, len(values) - 1}
    near = [
        source for source in sources if all(source.texts[row] and source.texts[row] in values[row] for row in looked_at)
    ]
    return sorted(near, key=lambda source: -len(source.texts[0]))


def _leading_reference(rest: Sequence[str], near: list[TemplateSource]) -> tuple[str, TemplateSource] | None:
    if not near:
        return None
    first, reach = rest[0], len(common_prefix(rest))
    for source in near:
        for at in _find_positions(first, source.texts[0], reach):
            if not is_word_boundary(first, at) or not is_word_boundary(first, at + len(source.texts[0])):
                continue
            if all(text.startswith(known, at) for text, known in zip(rest, source.texts, strict=True)):
                return first[:at], source
    return None


def _trailing_reference(rest: Sequence[str], near: list[TemplateSource]) -> tuple[str, TemplateSource] | None:
    if not near:
        return None
    first = rest[0]
    for source in near:
        at = first.rfind(source.texts[0])
        if at < 0 or not is_word_boundary(first, at) or not is_word_boundary(first, at + len(source.texts[0])):
            continue
        tail = first[at + len(source.texts[0]) :]
        if all(text.endswith(known + tail) for text, known in zip(rest, source.texts, strict=True)):
            return tail, source
    return None


def _find_positions(text: str, part: str, reach: int) -> Iterator[int]:
    at = text.find(part)
    while 0 <= at <= reach:
        yield at
        at = text.find(part, at + 1)


def is_word_boundary(text: str, at: int) -> bool:
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


def _whole_words_length(prefix: str, texts: Sequence[str]) -> int:
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
    return end if end - start >= _MIN_IDENTIFIER_RUN else start
