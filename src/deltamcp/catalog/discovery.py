"""What `discover` and `get_schema` were asked, and what they answer."""

from collections.abc import Mapping, Set
from typing import NamedTuple

import msgspec

from deltamcp import tokens
from deltamcp.catalog import tool_text
from deltamcp.catalog.meta_tools import DetailLevel, MetaTool
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.view import View, did_you_mean
from deltamcp.errors import UnfitError
from deltamcp.values import JSON

MAX_HITS = 5
MAX_HITS_EACH = 3
"""Hits for each of several queries."""
MAX_HIT_CURSOR = 100
"""Hits one can page through."""
MAX_QUERIES = 10
MAX_QUERY_CHARS = 20_000
MAX_SCHEMAS = 10
"""Queries, and operations to describe, in one call."""
HIT_TOKENS = 34
"""What one hit may cost, so that five and the way to call them stay under 200."""
PAGE_TOKENS = 1000
"""A listing's page."""


class DiscoverArguments(NamedTuple):
    """What is looked for: matches of queries, or a listing."""

    queries: list[str]
    category: str
    detail: DetailLevel | None
    cursor: int

    @property
    def limit(self) -> int:
        return MAX_HITS if len(self.queries) == 1 else MAX_HITS_EACH * len(self.queries)


def parse_discover_arguments(arguments: Mapping[str, JSON]) -> DiscoverArguments:
    """
    Raises:
        UnfitError: an argument is of the wrong type.
    """
    _check_names(arguments, "query", "category", "detail", "cursor")
    queries = [query for query in _string_list(arguments, "query") if query.strip()]
    if len(queries) > MAX_QUERIES:
        raise UnfitError(f"query takes at most {MAX_QUERIES} queries at once.")
    if sum(map(len, queries)) > MAX_QUERY_CHARS:
        raise UnfitError(f"query takes at most {MAX_QUERY_CHARS} characters; say the capability, not the whole task.")
    category = arguments.get("category") or ""
    if not isinstance(category, str):
        raise UnfitError("category must be a string.")
    cursor = str(arguments.get("cursor") or "0")
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 9:
        raise UnfitError("cursor is not one discover gave; start without it.")
    if queries and int(cursor) > MAX_HIT_CURSOR:
        raise UnfitError("So far down nothing fits; use other words.")
    category = category.strip().rstrip("*/.")
    return DiscoverArguments(
        queries, category, _parse_detail(arguments, DetailLevel.NAMES, DetailLevel.BRIEF, DetailLevel.FULL), int(cursor)
    )


def searched_names(view: View, asked: DiscoverArguments) -> Set[str]:
    """The names of the operations to look among.

    Raises:
        UnfitError: there is no such category.
    """
    if not asked.category:
        return view.operations.keys()
    return {operation.name for operation in _operations_in(view, asked.category)}


def hits_text(view: View, operations: list[Operation], asked: DiscoverArguments) -> str:
    """Matches from the cursor on, a line each, and how to call them; one more than are shown says that there are."""
    is_more = len(operations) > asked.limit
    operations = operations[: asked.limit]
    if not operations and asked.cursor:
        return "No more fit."
    if not operations:
        every = f"{view.meta_tool_name(MetaTool.DISCOVER)}() for all {view.directory.size} operations"
        return f"Nothing fits. Try other words, or {every}."
    match asked.detail:
        case DetailLevel.NAMES:
            lines = [operation.id for operation in operations]
        case DetailLevel.FULL:
            lines = [tool_text.signature_with_notes(operation.tool, operation.id) for operation in operations]
        case _:
            lines = [
                tool_text.signature_and_summary(operation.tool, operation.id, operation.summary_line, HIT_TOKENS)
                for operation in operations
            ]
    execute, get_schema = view.meta_tool_name(MetaTool.EXECUTE), view.meta_tool_name(MetaTool.GET_SCHEMA)
    how = f"{execute}(operation, params) runs one; {get_schema} tells more."
    more = f' More: cursor="{asked.cursor + asked.limit}".' if is_more else ""
    return "\n".join([*lines, how + more])


def listing_text(view: View, asked: DiscoverArguments) -> str:
    """The overview, or what is in a category.

    Raises:
        UnfitError: there is no such category.
    """
    if asked.detail is DetailLevel.FULL:
        category = view.directory.category_at(asked.category)
        if category is None:
            raise UnfitError(_unknown_category_text(view, asked.category))
        return _json({"operations": category.json_tree()})
    if not view.operations:
        return "There are no operations yet."
    if not asked.category and asked.detail is None:
        return view.directory.overview
    operations = _operations_in(view, asked.category)
    if asked.detail is DetailLevel.NAMES:
        return _page_text([operation.id for operation in operations], asked.cursor)
    return _page_text(
        [
            f"{operation.id}: {operation.summary_line}" if operation.summary else operation.id
            for operation in operations
        ],
        asked.cursor,
    )


def _operations_in(view: View, category: str) -> list[Operation]:
    node = view.directory.category_at(category)
    # Where nothing is in categories, the overview groups names by their first word: `create_*`.
    operations = node.all_operations() if node is not None else view.directory.operations_with_prefix(category)
    if not operations:
        raise UnfitError(_unknown_category_text(view, category))
    return operations


def _unknown_category_text(view: View, category: str) -> str:
    known = [node.path for node in view.directory.root.walk() if node.path]
    near = view.nearest_names(category[:200], known)
    hint = did_you_mean(near) or f" {view.meta_tool_name(MetaTool.DISCOVER)}() shows what there is."
    return f"There is no category {category[:200]!r}.{hint}"


def _page_text(lines: list[str], start: int) -> str:
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


def parse_get_schema_arguments(arguments: Mapping[str, JSON]) -> tuple[list[str], DetailLevel]:
    """Names and how much to say of them.

    Raises:
        UnfitError: an argument is missing or of the wrong type.
    """
    _check_names(arguments, "operation", "detail")
    names = _string_list(arguments, "operation")
    if not names:
        raise UnfitError("operation is required: an operation's id, or a list of them.")
    if len(names) > MAX_SCHEMAS:
        raise UnfitError(f"operation takes at most {MAX_SCHEMAS} operations at once.")
    return names, _parse_detail(arguments, DetailLevel.NOTES, DetailLevel.FULL, DetailLevel.SCHEMA) or DetailLevel.NOTES


def schemas_text(view: View, names: list[str], detail: DetailLevel) -> str:
    """What there is to know of each, and of those that do not exist, the nearest.

    Raises:
        UnfitError: none of them exists.
    """
    operations = [view.find(name) for name in names]
    if not any(operations):
        raise UnfitError(" ".join(unknown_operation_text(view, name) for name in names))
    if detail is DetailLevel.SCHEMA:
        shown = [
            operation_details(operation) if operation is not None else {"error": unknown_operation_text(view, name)}
            for name, operation in zip(names, operations, strict=True)
        ]
        return _json(shown if len(shown) > 1 else shown[0])
    return "\n\n".join(
        _schema_text(operation, detail) if operation is not None else unknown_operation_text(view, name)
        for name, operation in zip(names, operations, strict=True)
    )


def _schema_text(operation: Operation, detail: DetailLevel) -> str:
    text = tool_text.full_text if detail is DetailLevel.FULL else tool_text.signature_with_notes
    shown = operation.examples if detail is DetailLevel.FULL else operation.examples[:1]
    return "\n".join([text(operation.tool, operation.id), *(f"e.g. {_json(example)}" for example in shown)])


def operation_details(operation: Operation) -> dict[str, JSON]:
    """An operation's exact schema and what else is known of it; the same at its resource's address."""
    tool = operation.tool
    kept = ("title", "description", "inputSchema", "outputSchema", "annotations")
    made = {"id": operation.id, "name": operation.name, **{key: tool[key] for key in kept if key in tool}}
    return {**made, "examples": operation.examples} if operation.examples else made


def unknown_operation_text(view: View, name: str) -> str:
    """The answer to a name that is none: the nearest ones, and what is in the category it would be in."""
    near = view.nearest_ids(name[:200])
    hint = did_you_mean(near)
    parent = name[:200].replace("/", ".").rpartition(".")[0]
    category = view.directory.category_at(parent) if parent else None
    inside = f" {parent} has: {' '.join(list(category.operations)[:30])}." if category and category.operations else ""
    if not near and not inside:
        hint = f" {view.meta_tool_name(MetaTool.DISCOVER)}() shows all."
    return f"There is no operation {name[:200]!r}.{hint}{inside}"


def _check_names(arguments: Mapping[str, JSON], *known: str) -> None:
    strange = [name for name in arguments if name not in known]
    if strange:
        raise UnfitError(f"There is no argument {strange[0][:100]!r}; there are {', '.join(known)}.")


def _string_list(arguments: Mapping[str, JSON], name: str) -> list[str]:
    value = arguments.get(name)
    values = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values):
        raise UnfitError(f"{name} must be a string or a list of strings.")
    return values


def _parse_detail(arguments: Mapping[str, JSON], *known: DetailLevel) -> DetailLevel | None:
    value = arguments.get("detail")
    if value is None:
        return None
    for asked in known:
        if value == asked.value:
            return asked
    raise UnfitError(f"detail must be one of {', '.join(asked.value for asked in known)}.")


def _json(value: JSON) -> str:
    return msgspec.json.encode(value).decode()
