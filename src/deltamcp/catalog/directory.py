"""The tree of operations, and its forms for a model: an overview, lines and JSON; with servers that cannot be used."""

import bisect
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Protocol

from deltamcp import tokens
from deltamcp.catalog.items.operation import Operation, normalize_id
from deltamcp.catalog.text import prose
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.values import JSON
from deltamcp.work import Work

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


OVERVIEW_TOKENS = 200
"""The budget of the overview for up to `_MAX_FULLY_NAMED` operations; each further one adds `_TOKENS_PER_OPERATION`."""
_MAX_FULLY_NAMED = 84
_TOKENS_PER_OPERATION = 3
_CATEGORIES_ONLY_ABOVE = 300
_MAX_OVERVIEW_TOKENS = 900
_MIN_PREFIX_GROUP = 3
"""The number of names with the same first word from which they are written as `word_{a,b,c}`."""

_STEPS_PER_SUMMARY = 40
"""The work of a summary that is not known yet."""


class Category:
    """A node of the tree: operations by action and child categories by name, both in order of registration."""

    __slots__ = ("__dict__", "children", "operations", "path")

    def __init__(self, path: str) -> None:
        self.path: str = path
        self.operations: dict[str, Operation] = {}
        self.children: dict[str, Category] = {}

    def walk(self) -> Iterator["Category"]:
        """Yields this category and all categories below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def all_operations(self) -> list[Operation]:
        return [operation for category in self.walk() for operation in category.operations.values()]

    @functools.cached_property
    def summaries(self) -> SiblingSummaries:
        """The summaries of its operations, which differ from each other."""
        return SiblingSummaries(self.operations.values())

    def json_tree(self, work: Work) -> dict[str, JSON]:
        """Returns the category as JSON in the form of an operations file: names and summaries, without schemas.

        Raises:
            WorkLimitError: there are too many operations.
        """
        work.spend(_STEPS_PER_SUMMARY * len(self.operations))
        tree: dict[str, JSON] = {
            action: {"name": operation.name, "description": self.summaries.of(operation)}
            for action, operation in self.operations.items()
        }
        for name, child in self.children.items():
            # Where an operation and a category have the same name, the category is listed.
            tree[name] = child.json_tree(work)
        return tree


class Directory:
    """The tree of all operations of a view."""

    def __init__(self, operations: Iterable[Operation], content_lines: MutableMapping[str, str] | None = None) -> None:
        """`content_lines` has the content lines of earlier directories, and gets that of this one."""
        self._content_lines = {} if content_lines is None else content_lines
        self.root: Category = Category("")
        self.size: int = 0
        for operation in operations:
            *path, action = operation.id.split(".")
            node = self.root
            for segment in path:
                child_path = f"{node.path}.{segment}" if node.path else segment
                node = node.children.setdefault(segment, Category(child_path))
            node.operations[action] = operation
            self.size += 1

    def category_at(self, path: str) -> Category | None:
        """Finds the category at a path with dots or slashes; an empty path is the root."""
        node = self.root
        for segment in normalize_id(path).replace("/", ".").strip(".").split(".") if path.strip("./") else ():
            child = node.children.get(segment)
            if child is None:
                return None
            node = child
        return node

    def operations_with_prefix(self, prefix: str) -> list[Operation]:
        """Finds the operations whose ids begin with a prefix."""
        return [operation for operation in self.root.all_operations() if operation.id.startswith(normalize_id(prefix))]

    def summary_of(self, operation: Operation) -> str:
        """Returns the summary of an operation, which differs from those of its category's other operations."""
        category = self.category_at(operation.id.rpartition(".")[0])
        assert category is not None, "every operation is in its category"
        return category.summaries.of(operation)

    # Texts

    @functools.cached_property
    def overview(self) -> str:
        """The operations, one line a category, within a budget that grows with their number; `+n` counts omissions."""
        max_tokens = OVERVIEW_TOKENS + _TOKENS_PER_OPERATION * max(0, self.size - _MAX_FULLY_NAMED)
        if self.size > _CATEGORIES_ONLY_ABOVE:
            return _first_within(self._overviews_by_size(), _MAX_OVERVIEW_TOKENS)
        return _first_within(self._overviews_by_name(), max_tokens)

    def content_line(self, max_tokens: int) -> str:
        """Summarizes all operations on one line of at most `max_tokens`."""
        # To load a tokenizer takes longer than all else that a gateway does before it lists its tools.
        key = f"{max_tokens} {next(self._overviews_by_size())}"
        if key not in self._content_lines:
            self._content_lines[key] = self._make_content_line(max_tokens).replace("\n", " ")
        return self._content_lines[key]

    @functools.cached_property
    def _part_sizes(self) -> dict[str, int]:
        """The numbers of operations in categories, and below first words, by texts that have those numbers."""
        sizes = _prefix_sizes(list(self.root.operations))
        return sizes | {
            f"{child.path}({len(child.all_operations())})": len(child.all_operations())
            for child in self.root.children.values()
        }

    def _parts_by_size(self) -> list[str]:
        return sorted(self._part_sizes, key=lambda part: -self._part_sizes[part])

    def _make_content_line(self, max_tokens: int) -> str:
        with_sizes = next(self._overviews_by_size())
        if tokens.count(with_sizes) <= max_tokens:
            return with_sizes
        # A model looks for the service that it needs, so that more names are worth more than sizes.
        largest = [part.rpartition("(")[0] or part for part in self._parts_by_size()]

        def line(shown: int) -> str:
            left_out = len(largest) - shown
            return f"{' '.join(largest[:shown])} +{left_out} more" if left_out else " ".join(largest)

        shown = bisect.bisect_right(range(1, len(largest) + 1), max_tokens, key=lambda count: tokens.count(line(count)))
        return line(shown) if shown else f"in {len(largest)} groups"

    def _overviews_by_name(self) -> Iterator[str]:
        categories = [category for category in self.root.walk() if category.operations]
        yield _category_lines(categories, " ".join)
        yield _category_lines(categories, _join_by_prefix)
        shown = max((len(category.operations) for category in categories), default=0)
        while shown > 1:
            shown = shown * 3 // 4
            yield _category_lines(categories, functools.partial(_join_by_prefix, shown=shown))
        yield from self._overviews_by_size()

    def _overviews_by_size(self) -> Iterator[str]:
        """Yields shorter and shorter lists of categories with their sizes, and of first words of other operations."""
        yield " ".join(self._part_sizes)
        largest = self._parts_by_size()
        shown = len(largest)
        while shown > 1:
            shown = shown * 3 // 4
            yield f"{' '.join(largest[:shown])} +{len(largest) - shown} more"
        yield f"in {len(largest)} groups"


def _first_within(texts: Iterator[str], max_tokens: int) -> str:
    """Returns the first text within the budget, or else the last text."""
    chosen = ""
    for text in texts:
        chosen = text
        if tokens.count(text) <= max_tokens:
            break
    return chosen


def _category_lines(categories: list[Category], join_names: Callable[[list[str]], str]) -> str:
    return "\n".join(
        f"{category.path}: {join_names(list(category.operations))}"
        if category.path
        else join_names(list(category.operations))
        for category in categories
    )


def _group_by_first_word(names: list[str]) -> dict[str, list[str]]:
    """Groups names by their first word with its separator; a name of one word forms a group of its own."""
    groups: dict[str, list[str]] = {}
    for name in names:
        word = next((name[: place + 1] for place, char in enumerate(name) if char in "_-"), name)
        groups.setdefault(word, []).append(name)
    return groups


def _join_by_prefix(names: list[str], shown: int = 1 << 30) -> str:
    """Joins names, those with the same first word as `create_{issue,branch,tag}`; `+n` counts names beyond `shown`."""
    groups = _group_by_first_word(names)
    parts: list[str] = []
    for word, group in list(groups.items())[:shown]:
        rest = [name.removeprefix(word) for name in group]
        if len(group) < _MIN_PREFIX_GROUP or not all(rest):
            parts += group
        else:
            more = [f"+{len(rest) - shown}"] if len(rest) > shown else []
            parts.append(f"{word}{{{','.join([*rest[:shown], *more])}}}")
    left_out = sum(map(len, list(groups.values())[shown:]))
    return " ".join([*parts, *([f"+{left_out}"] if left_out else [])])


def _prefix_sizes(names: list[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for word, group in _group_by_first_word(names).items():
        sizes |= {f"{word}*({len(group)})": len(group)} if len(group) >= _MIN_PREFIX_GROUP else dict.fromkeys(group, 1)
    return sizes


_MAX_CHARS = 160
"""Of what is said of one server; some 40 tokens."""
_MAX_LINES = 12
"""The servers of which a line says why; further ones are named."""
_MAX_NAMED = 50


class ServerNotices:
    """One line for each server that cannot be used; there are none while all are well."""

    def __init__(self, texts: Mapping[str, str], *, is_only_server: bool = False) -> None:
        """
        Args:
            texts: What is wrong, by the category that the server's operations have or would have; texts of others in
                them are not trusted.
            is_only_server: Whether all operations would be those of the one server.
        """
        self._texts = texts
        self._is_only_server = is_only_server

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def texts(self) -> dict[str, str]:
        return {category: _one_line(text) for category, text in self._texts.items()}

    def lines(self, categories: Collection[str] | None = None) -> list[str]:
        """Returns the lines of these categories, or of all; of very many servers only the names."""
        named = [category for category in self._texts if categories is None or category in categories]
        lines = [f"{category}: {_one_line(self._texts[category])}" for category in named[:_MAX_LINES]]
        others = named[_MAX_LINES:]
        if others:
            left_out = f" +{len(others) - _MAX_NAMED}" if len(others) > _MAX_NAMED else ""
            lines.append(f"Not usable either: {' '.join(others[:_MAX_NAMED])}{left_out}")
        return lines

    def category_of(self, name: str) -> str:
        """Returns the category of the server that an unknown operation would be of; empty if it can be of any."""
        if self._is_only_server:
            return next(iter(self._texts), "")
        folded = _flat_name(name.strip())
        found = [
            category
            for category in self._texts
            if folded == _flat_name(category) or folded.startswith(f"{_flat_name(category)}_")
        ]
        return max(found, key=len, default="")

    def of(self, name: str) -> str:
        """Returns the line of the server that an unknown operation would be of; empty if no server has that name."""
        category = self.category_of(name)
        return self.lines({category})[0] if category else ""

    def categories_in(self, query: str) -> set[str]:
        """Returns the categories of servers that a query names."""
        words = f" {_plain(query)} "
        return {category for category in self._texts if any(f" {name} " in words for name in _spellings(category))}


def _flat_name(name: str) -> str:
    """Returns a name or an id in one spelling: that of names of tools, whose words are joined by `_`."""
    return name.casefold().replace(".", "_").replace("/", "_")


NO_NOTICES = ServerNotices({})


def _spellings(category: str) -> Iterator[str]:
    """Yields the names by which people may mean a server: `my-sqlite-server` is meant by `my sqlite`, too."""
    plain = _plain(category)
    if plain:
        yield plain
    words = [word for word in plain.split() if word not in ("mcp", "server")]
    if words:
        yield " ".join(words)
        yield "".join(words)


def _plain(text: str) -> str:
    return " ".join("".join(char if char.isalnum() else " " for char in text.casefold()).split())


def _one_line(text: str) -> str:
    return visible_line(prose.cut(" ".join(text.split()), _MAX_CHARS))
