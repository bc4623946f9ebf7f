"""What `discover` and `get_schema` were asked, and what they answer."""

from collections.abc import Mapping, Set
from typing import NamedTuple

import msgspec

from deltamcp import tokens
from deltamcp.catalog import render
from deltamcp.catalog.meta_tools import Asked, Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.view import View, did_you_mean
from deltamcp.errors import UnfitError
from deltamcp.values import JSON

HITS = 5
HITS_EACH = 3
"""Hits for each of several queries."""
HITS_DEEP = 100
"""Hits one can page through."""
QUERIES = 10
QUERY_CHARS = 20_000
SCHEMAS = 10
"""Queries, and operations to describe, in one call."""
HIT_TOKENS = 34
"""What one hit may cost, so that five and the way to call them stay under 200."""
PAGE_TOKENS = 1000
"""A listing's page."""


class Discover(NamedTuple):
    """What is looked for: matches of queries, or a listing."""

    queries: list[str]
    category: str
    detail: Asked | None
    cursor: int

    @property
    def limit(self) -> int:
        return HITS if len(self.queries) == 1 else HITS_EACH * len(self.queries)


def read_discover(arguments: Mapping[str, JSON]) -> Discover:
    """
    Raises:
        UnfitError: an argument is of the wrong type.
    """
    _only(arguments, "query", "category", "detail", "cursor")
    queries = [query for query in _texts(arguments, "query") if query.strip()]
    if len(queries) > QUERIES:
        raise UnfitError(f"query takes at most {QUERIES} queries at once.")
    if sum(map(len, queries)) > QUERY_CHARS:
        raise UnfitError(f"query takes at most {QUERY_CHARS} characters; say the capability, not the whole task.")
    category = arguments.get("category") or ""
    if not isinstance(category, str):
        raise UnfitError("category must be a string.")
    cursor = str(arguments.get("cursor") or "0")
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 9:
        raise UnfitError("cursor is not one discover gave; start without it.")
    if queries and int(cursor) > HITS_DEEP:
        raise UnfitError("So far down nothing fits; use other words.")
    category = category.strip().rstrip("*/.")
    return Discover(queries, category, _detail(arguments, Asked.NAMES, Asked.BRIEF, Asked.FULL), int(cursor))


def among(view: View, asked: Discover) -> Set[str]:
    """The names of the operations to look among.

    Raises:
        UnfitError: there is no such category.
    """
    if not asked.category:
        return view.operations.keys()
    return {operation.name for operation in _inside(view, asked.category)}


def found(view: View, operations: list[Operation], asked: Discover) -> str:
    """Matches from the cursor on, a line each, and how to call them; one more than are shown says that there are."""
    is_more = len(operations) > asked.limit
    operations = operations[: asked.limit]
    if not operations and asked.cursor:
        return "No more fit."
    if not operations:
        every = f"{view.called(Meta.DISCOVER)}() for all {view.directory.size} operations"
        return f"Nothing fits. Try other words, or {every}."
    match asked.detail:
        case Asked.NAMES:
            lines = [operation.id for operation in operations]
        case Asked.FULL:
            lines = [render.noted(operation.tool, operation.id) for operation in operations]
        case _:
            lines = [render.line(operation.tool, operation.id, operation.line, HIT_TOKENS) for operation in operations]
    how = f"{view.called(Meta.EXECUTE)}(operation, params) runs one; {view.called(Meta.GET_SCHEMA)} tells more."
    more = f' More: cursor="{asked.cursor + asked.limit}".' if is_more else ""
    return "\n".join([*lines, how + more])


def listing(view: View, asked: Discover) -> str:
    """The overview, or what is in a category.

    Raises:
        UnfitError: there is no such category.
    """
    if asked.detail is Asked.FULL:
        category = view.directory.at(asked.category)
        if category is None:
            raise UnfitError(_no_category(view, asked.category))
        return _json({"operations": category.tree()})
    if not view.operations:
        return "There are no operations yet."
    if not asked.category and asked.detail is None:
        return view.directory.overview
    operations = _inside(view, asked.category)
    if asked.detail is Asked.NAMES:
        return _paged([operation.id for operation in operations], asked.cursor)
    return _paged(
        [f"{operation.id}: {operation.line}" if operation.summary else operation.id for operation in operations],
        asked.cursor,
    )


def _inside(view: View, category: str) -> list[Operation]:
    node = view.directory.at(category)
    # Where nothing is in categories, the overview groups names by their first word: `create_*`.
    operations = node.all() if node is not None else view.directory.beginning(category)
    if not operations:
        raise UnfitError(_no_category(view, category))
    return operations


def _no_category(view: View, category: str) -> str:
    known = [node.path for node in view.directory.root.walk() if node.path]
    near = view.nearest(category[:200], known)
    hint = did_you_mean(near) or f" {view.called(Meta.DISCOVER)}() shows what there is."
    return f"There is no category {category[:200]!r}.{hint}"


def _paged(lines: list[str], start: int) -> str:
    """As many lines as a page holds, at least one, and the cursor of the next."""
    if start >= len(lines):
        raise UnfitError("cursor is past the end; start without it.")
    end, spent = start, 0
    while end < len(lines):
        spent += tokens.count(lines[end]) + 1
        if spent > PAGE_TOKENS and end > start:
            break
        end += 1
    more = [f'{len(lines) - end} more: cursor="{end}"'] if end < len(lines) else []
    return "\n".join([*lines[start:end], *more])


# get_schema


def read_get_schema(arguments: Mapping[str, JSON]) -> tuple[list[str], Asked]:
    """Names and how much to say of them.

    Raises:
        UnfitError: an argument is missing or of the wrong type.
    """
    _only(arguments, "operation", "detail")
    names = _texts(arguments, "operation")
    if not names:
        raise UnfitError("operation is required: an operation's id, or a list of them.")
    if len(names) > SCHEMAS:
        raise UnfitError(f"operation takes at most {SCHEMAS} operations at once.")
    return names, _detail(arguments, Asked.NOTES, Asked.FULL, Asked.SCHEMA) or Asked.NOTES


def schemas(view: View, names: list[str], detail: Asked) -> str:
    """What there is to know of each, and of those that do not exist, the nearest.

    Raises:
        UnfitError: none of them exists.
    """
    operations = [view.find(name) for name in names]
    if not any(operations):
        raise UnfitError(" ".join(unknown(view, name) for name in names))
    if detail is Asked.SCHEMA:
        shown = [
            described(operation) if operation is not None else {"error": unknown(view, name)}
            for name, operation in zip(names, operations, strict=True)
        ]
        return _json(shown if len(shown) > 1 else shown[0])
    return "\n\n".join(
        _in_words(operation, detail) if operation is not None else unknown(view, name)
        for name, operation in zip(names, operations, strict=True)
    )


def _in_words(operation: Operation, detail: Asked) -> str:
    text = render.whole if detail is Asked.FULL else render.noted
    shown = operation.examples if detail is Asked.FULL else operation.examples[:1]
    return "\n".join([text(operation.tool, operation.id), *(f"e.g. {_json(example)}" for example in shown)])


def described(operation: Operation) -> dict[str, JSON]:
    """An operation's exact schema and what else is known of it; the same at its resource's address."""
    tool = operation.tool
    kept = ("title", "description", "inputSchema", "outputSchema", "annotations")
    made = {"id": operation.id, "name": operation.name, **{key: tool[key] for key in kept if key in tool}}
    return {**made, "examples": operation.examples} if operation.examples else made


def unknown(view: View, name: str) -> str:
    """The answer to a name that is none: the nearest ones, and what is in the category it would be in."""
    near = view.nearest_ids(name[:200])
    hint = did_you_mean(near)
    parent = name[:200].replace("/", ".").rpartition(".")[0]
    category = view.directory.at(parent) if parent else None
    inside = f" {parent} has: {' '.join(list(category.operations)[:30])}." if category and category.operations else ""
    if not near and not inside:
        hint = f" {view.called(Meta.DISCOVER)}() shows all."
    return f"There is no operation {name[:200]!r}.{hint}{inside}"


def _only(arguments: Mapping[str, JSON], *known: str) -> None:
    strange = [name for name in arguments if name not in known]
    if strange:
        raise UnfitError(f"There is no argument {strange[0][:100]!r}; there are {', '.join(known)}.")


def _texts(arguments: Mapping[str, JSON], name: str) -> list[str]:
    value = arguments.get(name)
    values = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values):
        raise UnfitError(f"{name} must be a string or a list of strings.")
    return values


def _detail(arguments: Mapping[str, JSON], *known: Asked) -> Asked | None:
    value = arguments.get("detail")
    if value is None:
        return None
    for asked in known:
        if value == asked.value:
            return asked
    raise UnfitError(f"detail must be one of {', '.join(asked.value for asked in known)}.")


def _json(value: JSON) -> str:
    return msgspec.json.encode(value).decode()
