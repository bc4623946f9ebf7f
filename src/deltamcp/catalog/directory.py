"""The tree of operations, and what a model reads of it: an overview, lines, JSON."""

import functools
from collections.abc import Callable, Iterable, Iterator

from deltamcp import tokens
from deltamcp.catalog.operation import Operation
from deltamcp.values import JSON

OVERVIEW_TOKENS = 200
"""The overview of up to `_FULLY_NAMED` operations; each further one adds `_TOKENS_EACH`."""
_FULLY_NAMED = 84
_TOKENS_EACH = 3
_CATEGORIES_ONLY_ABOVE = 300
_MAX_OVERVIEW_TOKENS = 900
_MIN_PREFIX_GROUP = 3
"""Names with the same first word that are worth writing as `word_{a,b,c}`."""


class Category:
    """One node: operations by action, further categories by name, both in order of registration."""

    __slots__ = ("children", "operations", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.operations: dict[str, Operation] = {}
        self.children: dict[str, Category] = {}

    def walk(self) -> Iterator["Category"]:
        """Itself and everything below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def all_operations(self) -> list[Operation]:
        return [operation for category in self.walk() for operation in category.operations.values()]

    def json_tree(self) -> dict[str, JSON]:
        """As JSON, shaped like an operations file: names and summaries, without schemas."""
        made: dict[str, JSON] = {
            action: {"name": operation.name, "description": operation.summary}
            for action, operation in self.operations.items()
        }
        for name, child in self.children.items():
            # Where an operation has the name of a category, the category is the one that is listed.
            made[name] = child.json_tree()
        return made


class Directory:
    """Every operation by its place."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.root = Category("")
        self.size = 0
        for operation in operations:
            *path, action = operation.id.split(".")
            node = self.root
            for segment in path:
                below = f"{node.path}.{segment}" if node.path else segment
                node = node.children.setdefault(segment, Category(below))
            node.operations[action] = operation
            self.size += 1

    def category_at(self, path: str) -> Category | None:
        """The category at a dotted or slashed path; the root at none."""
        node = self.root
        for segment in path.replace("/", ".").strip(".").split(".") if path.strip("./") else ():
            below = node.children.get(segment)
            if below is None:
                return None
            node = below
        return node

    def operations_with_prefix(self, prefix: str) -> list[Operation]:
        """The operations whose ids begin so."""
        return [operation for operation in self.root.all_operations() if operation.id.startswith(prefix)]

    # Texts

    @functools.cached_property
    def overview(self) -> str:
        """What there is, a line a category, in as many tokens as its size is worth; `+n` where names are left out."""
        allowed = OVERVIEW_TOKENS + _TOKENS_EACH * max(0, self.size - _FULLY_NAMED)
        if self.size > _CATEGORIES_ONLY_ABOVE:
            return _first_within(self._overviews_by_size(), _MAX_OVERVIEW_TOKENS)
        return _first_within(self._overviews_by_name(), allowed)

    def content_line(self, allowed: int) -> str:
        """What is behind the meta-tools, in one line of so many tokens, whatever their number."""
        return _first_within(self._overviews_by_size(), allowed).replace("\n", " ")

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
        """Categories by size; what has no category, by first words."""
        sizes = _prefix_sizes(list(self.root.operations))
        sizes |= {
            f"{child.path}({len(child.all_operations())})": len(child.all_operations())
            for child in self.root.children.values()
        }
        yield " ".join(sizes)
        largest = sorted(sizes, key=lambda part: -sizes[part])
        shown = len(largest)
        while shown > 1:
            shown = shown * 3 // 4
            yield f"{' '.join(largest[:shown])} +{len(largest) - shown} more"


def _first_within(texts: Iterator[str], allowed: int) -> str:
    """The first that fits, or the last."""
    made = ""
    for text in texts:
        made = text
        if tokens.count(text) <= allowed:
            break
    return made


def _category_lines(categories: list[Category], line: Callable[[list[str]], str]) -> str:
    return "\n".join(
        f"{category.path}: {line(list(category.operations))}" if category.path else line(list(category.operations))
        for category in categories
    )


def _group_by_first_word(names: list[str]) -> dict[str, list[str]]:
    """Under the word with its separator; a name of one word under itself."""
    made: dict[str, list[str]] = {}
    for name in names:
        word = next((name[: place + 1] for place, char in enumerate(name) if char in "_-"), name)
        made.setdefault(word, []).append(name)
    return made


def _join_by_prefix(names: list[str], shown: int = 1 << 30) -> str:
    """`create_{issue,branch,tag}` for names that begin alike; `+n` for what is more than so many."""
    groups = _group_by_first_word(names)
    made: list[str] = []
    for word, group in list(groups.items())[:shown]:
        rest = [name.removeprefix(word) for name in group]
        if len(group) < _MIN_PREFIX_GROUP or not all(rest):
            made += group
        else:
            more = [f"+{len(rest) - shown}"] if len(rest) > shown else []
            made.append(f"{word}{{{','.join([*rest[:shown], *more])}}}")
    left = sum(map(len, list(groups.values())[shown:]))
    return " ".join([*made, *([f"+{left}"] if left else [])])


def _prefix_sizes(names: list[str]) -> dict[str, int]:
    made: dict[str, int] = {}
    for word, group in _group_by_first_word(names).items():
        made |= {f"{word}*({len(group)})": len(group)} if len(group) >= _MIN_PREFIX_GROUP else dict.fromkeys(group, 1)
    return made
