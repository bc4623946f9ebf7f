"""Finds the template of a column: what its texts have in common with each other and with other columns."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from deltamcp.results.tables.syntax import PLACEHOLDER, ColumnPath, ColumnReference, TemplatePart
from deltamcp.work import Work

_MAX_REFERENCES = 4
_ROWS_PER_STEP = 8
"""Texts of a column that are compared in the time of a step."""
_MIN_IDENTIFIER_RUN = 8
"""A prefix may end within a word only after this many letters: a long run is the beginning of an identifier."""


class TemplateSource(NamedTuple):
    """A column that the templates of other columns may refer to."""

    path: ColumnPath
    texts: Sequence[str]
    typed: bool
    """Whether the values are numbers, which a template alone would read as text."""


class ColumnTemplate(NamedTuple):
    """The template that the texts of a column follow."""

    parts: list[TemplatePart]
    cells: list[str] | None
    """The text for `*` in each row; None where the template has no `*`."""


def find_template(values: Sequence[str], sources: Sequence[TemplateSource], work: Work) -> ColumnTemplate:
    """Return the template of the values: literals, references to sources, and at most one `*` for the rest."""
    likely = _likely_sources(values, sources, work)
    rest: Sequence[str] = values
    left: list[TemplatePart] = []
    right: list[TemplatePart] = []
    for _ in range(_MAX_REFERENCES):
        found = _leading_reference(rest, likely, work)
        if found is None:
            break
        literal, source = found
        left += [literal] * bool(literal) + [ColumnReference(source.path)]
        rest = [text[len(literal) + len(known) :] for text, known in zip(rest, source.texts, strict=True)]
    prefix = common_prefix(rest)
    prefix = prefix[: _whole_words_length(prefix, rest)]
    rest = [text[len(prefix) :] for text in rest] if prefix else rest
    left += [prefix] * bool(prefix)
    for _ in range(_MAX_REFERENCES):
        found = _trailing_reference(rest, likely, work)
        if found is None:
            break
        literal, source = found
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
    merged: list[TemplatePart] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _likely_sources(values: Sequence[str], sources: Sequence[TemplateSource], work: Work) -> list[TemplateSource]:
    """Return the sources whose texts are part of the values in three sample rows, longest first."""
    sample = {0, len(values) // 2, len(values) - 1}
    work.scan(len(sources) * sum(len(values[row]) for row in sample))
    likely = [
        source for source in sources if all(source.texts[row] and source.texts[row] in values[row] for row in sample)
    ]
    return sorted(likely, key=lambda source: -len(source.texts[0]))


def _leading_reference(
    rest: Sequence[str], likely: list[TemplateSource], work: Work
) -> tuple[str, TemplateSource] | None:
    if not likely:
        return None
    first, reach = rest[0], len(common_prefix(rest))
    for source in likely:
        for at in _find_positions(first, source.texts[0], reach):
            work.spend()
            if not is_word_boundary(first, at) or not is_word_boundary(first, at + len(source.texts[0])):
                continue
            work.spend(len(rest) // _ROWS_PER_STEP)
            if all(text.startswith(known, at) for text, known in zip(rest, source.texts, strict=True)):
                return first[:at], source
    return None


def _trailing_reference(
    rest: Sequence[str], likely: list[TemplateSource], work: Work
) -> tuple[str, TemplateSource] | None:
    if not likely:
        return None
    first = rest[0]
    for source in likely:
        at = first.rfind(source.texts[0])
        if at < 0 or not is_word_boundary(first, at) or not is_word_boundary(first, at + len(source.texts[0])):
            continue
        work.spend(1 + len(rest) // _ROWS_PER_STEP)
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
    """Whether no word or number continues across a position."""
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
    """Return the length of a common prefix after which no word or number is cut."""
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
