"""The summaries of operations that stand side by side: where several would be the same, each says what differs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from deltamcp.catalog import prose

_MIN_BOILERPLATE_COUNT = 3
"""From this many operations on, the sentence that they share says nothing about any of them."""
_COMPARED_CHARS = 24
"""Operations are compared if so many characters at the beginning of their descriptions are the same."""
_MAX_DIFFERENCE_CHARS = 30
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class DescribedOperation(Protocol):
    """An operation, as far as its summary depends on it."""

    name: str

    @property
    def description(self) -> str: ...

    @property
    def summary_line(self) -> str: ...

    @property
    def has_own_summary(self) -> bool: ...

    @property
    def parameter_names(self) -> frozenset[str]: ...


class SiblingSummaries:
    """The summaries of a category's operations; those that are compared with each other are computed together."""

    def __init__(self, operations: Iterable[DescribedOperation]) -> None:
        self._siblings: dict[str, list[DescribedOperation]] = {}
        for operation in operations:
            self._siblings.setdefault(operation.description[:_COMPARED_CHARS], []).append(operation)
        self._by_name: dict[str, str] = {}

    def of(self, operation: DescribedOperation) -> str:
        """Returns the summary of an operation on one line; the one that its author gave is never changed."""
        if operation.has_own_summary:
            return operation.summary_line
        if operation.name not in self._by_name:
            siblings = self._siblings.get(operation.description[:_COMPARED_CHARS], [])
            # An operation whose id another one has, too, is not among them.
            self._by_name |= {operation.name: operation.summary_line} | distinct_summaries(siblings)
        return self._by_name[operation.name]


def distinct_summaries(operations: Sequence[DescribedOperation]) -> dict[str, str]:
    """Returns summaries by name. Equal ones get the next sentence, or what differs in names or parameters."""
    chosen = {operation.name: operation.summary_line for operation in operations}
    changeable = [operation for operation in operations if not operation.has_own_summary]
    for siblings in _equal_summaries(chosen, changeable):
        if len(siblings) >= _MIN_BOILERPLATE_COUNT:
            shared = chosen[siblings[0].name]
            for one in siblings:
                others = (text for text in prose.summaries(one.description) if text != shared)
                chosen[one.name] = next(others, shared)
    sentences = dict(chosen)
    # What differs within a group may be the same in two groups, so names are compared once more.
    for words in (_name_words, _name_words, _parameter_words):
        for siblings in _equal_summaries(chosen, changeable):
            chosen |= _with_differences(sentences, {one.name: words(one) for one in siblings})
    return chosen


def _equal_summaries(
    chosen: Mapping[str, str], operations: Sequence[DescribedOperation]
) -> Iterator[list[DescribedOperation]]:
    """Yields the operations that have one summary, if it is not empty and there are several."""
    by_summary: dict[str, list[DescribedOperation]] = {}
    for operation in operations:
        by_summary.setdefault(chosen[operation.name], []).append(operation)
    yield from (siblings for text, siblings in by_summary.items() if text and len(siblings) > 1)


def _name_words(operation: DescribedOperation) -> list[str]:
    return _WORD.findall(operation.name)


def _parameter_words(operation: DescribedOperation) -> list[str]:
    return sorted(operation.parameter_names)


def _with_differences(sentences: Mapping[str, str], words: Mapping[str, list[str]]) -> dict[str, str]:
    """Returns the summaries with the words in brackets that neither they nor all of the operations have."""
    common = set.intersection(*({word.casefold() for word in found} for found in words.values()))
    marked: dict[str, str] = {}
    for name, found in words.items():
        said = common | {word.casefold() for word in _WORD.findall(sentences[name])}
        difference = " ".join(word for word in found if word.casefold() not in said)
        suffix = f" ({prose.cut(difference, _MAX_DIFFERENCE_CHARS)})" if difference else ""
        room = prose.SUMMARY_CHARS - prose.utf16_length(suffix)
        marked[name] = prose.fit_summary(sentences[name], room) + suffix if suffix else sentences[name]
    return marked
