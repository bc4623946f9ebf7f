"""The meta-tools `discover` and `get_schema`: parses their arguments and writes their answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from deltamcp import tokens
from deltamcp.catalog.directory import NO_NOTICES, ServerNotices
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import MAX_QUERIES, MAX_SCHEMAS, DetailLevel, MetaTool
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import json_text, visible_line
from deltamcp.catalog.text.parameter_text import deepest_names, has_parameter, name_text
from deltamcp.catalog.view import FoundOperation, View, did_you_mean
from deltamcp.errors import UsageError
from deltamcp.results.learned_shape import LearnedShape, learned_text
from deltamcp.values import JSON
from deltamcp.work import Work

MAX_HITS = 5
"""Hits for each query."""
MAX_SIGNATURES_EACH = 3
"""Hits with a signature for each query where there are several; the others are named."""
MAX_HIT_CURSOR = 100
"""The last hit that a cursor can reach."""
MAX_QUERY_CHARS = 20_000
MAX_HEADING_CHARS = 80
"""Characters of a query that its heading repeats."""
_MAX_PATH_CHARS = 500
"""The characters of a name in which `get_schema` looks for an id and the path of a parameter."""
HIT_TOKENS = 34
"""The budget of one hit, so that five hits stay under 200 tokens."""
_SHAPE_TOKENS = 80
"""What `get_schema` says of an operation's results."""
_MIN_SHAPE_TOKENS = 10
"""In less room a hit does not say what its operation returns."""
_OBSERVED_TOKENS = 4
NO_SHAPES: Mapping[str, LearnedShape] = MappingProxyType({})
PAGE_TOKENS = 1000
"""The budget of one page of a listing."""


class DiscoverArguments(NamedTuple):
    """The arguments of `discover`: queries to search for, or a category to list."""

    queries: list[str]
    category: str
    detail: DetailLevel | None
    cursor: int


def parse_discover_arguments(arguments: Mapping[str, JSON]) -> DiscoverArguments:
    """Parses the arguments of `discover`.

    Raises:
        UsageError: an argument is unknown, of the wrong type or out of bounds.
    """
    _check_names(arguments, "query", "category", "detail", "cursor")
    queries = list(dict.fromkeys(query.strip() for query in _string_list(arguments, "query") if query.strip()))
    if len(queries) > MAX_QUERIES:
        raise UsageError(f"query takes at most {MAX_QUERIES} queries at once.")
    if sum(map(len, queries)) > MAX_QUERY_CHARS:
        raise UsageError(f"query takes at most {MAX_QUERY_CHARS} characters; say the capability, not the whole task.")
    category = arguments.get("category") or ""
    if not isinstance(category, str):
        raise UsageError("category must be a string.")
    if len(category) > _MAX_PATH_CHARS:
        raise UsageError(f"category takes at most {_MAX_PATH_CHARS} characters.")
    cursor = arguments.get("cursor") or "0"
    cursor = str(cursor) if isinstance(cursor, str | int) else ""
    if len(cursor) > 9 or not (cursor.isascii() and cursor.isdigit()):
        raise UsageError("cursor is not one discover gave; start without it.")
    if len(queries) > 1 and int(cursor):
        raise UsageError("cursor goes on in one query; send that query alone.")
    if queries and int(cursor) > MAX_HIT_CURSOR:
        raise UsageError("No operation fits so far down the list; use other words.")
    category = category.strip().rstrip("*/.")
    return DiscoverArguments(
        queries, category, _parse_detail(arguments, DetailLevel.NAMES, DetailLevel.BRIEF, DetailLevel.FULL), int(cursor)
    )


def searched_names(view: View, arguments: DiscoverArguments) -> Set[str]:
    """Returns the names of the operations to search: all, or those of a category.

    Raises:
        UsageError: there is no such category.
    """
    if not arguments.category:
        return view.operations.keys()
    return {operation.name for operation in _operations_in(view, arguments.category)}


def hits_text(
    view: View,
    found: Mapping[str, Sequence[FoundOperation]],
    arguments: DiscoverArguments,
    shapes: Mapping[str, LearnedShape] = NO_SHAPES,
    notices: ServerNotices = NO_NOTICES,
    missing: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Writes search hits: good ones a line each, weak ones by id only; several queries under a heading each.

    Args:
        shapes: What operations were seen to return, by id; a hit that has room says it.
        found: The hits of each query from the cursor on; one more than `MAX_HITS` tells that there is a next page.
        notices: Of servers that cannot be used, those that the queries name or that have one of the hits come first.
        missing: The names in queries that no operation has, by query.
    """
    shown = (hit.operation.id for hits in found.values() for hit in hits[:MAX_HITS])
    about = {id_.partition(".")[0] for id_ in shown if "." in id_}.union(*map(notices.categories_in, found))
    return "\n".join([*notices.lines(about), _hits_text(view, found, arguments, shapes, notices, missing)])


def _hits_text(
    view: View,
    found: Mapping[str, Sequence[FoundOperation]],
    arguments: DiscoverArguments,
    shapes: Mapping[str, LearnedShape],
    notices: ServerNotices,
    missing: Mapping[str, str],
) -> str:
    more = any(len(hits) > MAX_HITS and not hits[MAX_HITS].is_weak for hits in found.values())
    cursor = f'cursor="{arguments.cursor + MAX_HITS}"'
    shown: dict[str, Operation] = {}
    if len(found) == 1:
        [(query, hits)] = found.items()
        if not hits:
            return "No more fit." if arguments.cursor else f"Nothing fits. {_other_words_hint(view)}"
        lines = [
            *_heading_lines(query, hits, arguments, notices, missing),
            *_query_lines(view, hits, arguments, shapes, MAX_HITS, shown),
        ]
        hints = [*_run_hints(view, shown), *_omission_hint(view, lines)]
        return "\n".join([*lines, *hints, *([f"More: {cursor}."] if more else [])])
    lines = []
    for query, hits in found.items():
        heading = json_text(query[:MAX_HEADING_CHARS] + "…" * (len(query) > MAX_HEADING_CHARS))
        lines.append(f"{heading}:" if hits else f"{heading}: nothing fits.")
        lines += _heading_lines(query, hits, arguments, notices, missing)
        lines += _query_lines(view, hits, arguments, shapes, MAX_SIGNATURES_EACH, shown)
    lines += [*_run_hints(view, shown), *_omission_hint(view, lines)]
    if not all(found.values()):
        lines.append(_other_words_hint(view))
    return "\n".join([*lines, *([f"More: one query alone with {cursor}."] if more else [])])


def _heading_lines(
    query: str,
    hits: Sequence[FoundOperation],
    arguments: DiscoverArguments,
    notices: ServerNotices,
    missing: Mapping[str, str],
) -> list[str]:
    """Says before hits that they are probably not what was meant; nothing if they may be."""
    if not hits or arguments.cursor:
        return []
    are_weak = all(hit.is_weak for hit in hits[:MAX_HITS])
    named = notices.categories_in(query)
    if named and not any(hit.operation.id.partition(".")[0] in named for hit in hits):
        return ["Of others:"]
    if name := missing.get(query):
        found = "only weak matches" if are_weak else "similar"
        return [f"Nothing is named {json_text(name[:MAX_HEADING_CHARS])}; {found}:"]
    return ["No good match, only weak ones:"] if are_weak else []


def _query_lines(
    view: View,
    hits: Sequence[FoundOperation],
    arguments: DiscoverArguments,
    shapes: Mapping[str, LearnedShape],
    max_lines: int,
    shown: dict[str, Operation],
) -> list[str]:
    """Writes the hits of one query, those in `shown` by id only, and adds to `shown` what it describes."""
    hits = hits[:MAX_HITS]
    lines: list[str] = []
    if all(hit.is_weak for hit in hits) and not arguments.cursor:
        described, named = hits[:max_lines], hits[max_lines:]
    else:
        described = [hit for hit in hits if not hit.is_weak][:max_lines]
        named = [hit for hit in hits if hit not in described]
    for operation, _ in described:
        lines.append(
            f"{operation.id} (above)" if operation.id in shown else _hit_line(view, operation, arguments.detail, shapes)
        )
        shown[operation.id] = operation
    if named:
        lines.append(f"Weaker: {', '.join(operation.id for operation, _ in named)}")
    return lines


def _hit_line(view: View, operation: Operation, detail: DetailLevel | None, shapes: Mapping[str, LearnedShape]) -> str:
    match detail:
        case DetailLevel.NAMES:
            return operation.id
        case DetailLevel.FULL:
            return tool_text.signature_with_notes(operation.tool, operation.id)
        case _:
            summary = view.directory.summary_of(operation)
            line = tool_text.signature_and_summary(operation.tool, operation.id, summary, HIT_TOKENS)
            room = HIT_TOKENS - tokens.count(line)
            returned = _returned_text(operation, shapes, room) if room >= _MIN_SHAPE_TOKENS else ""
            return f"{line}; {returned}" if returned else line


def _returned_text(operation: Operation, shapes: Mapping[str, LearnedShape], max_tokens: int) -> str:
    """Says what an operation returns: what it declares, or else what it was seen to; empty if neither is known."""
    if operation.output_schema is not None and operation.declares_names:
        return tool_text.declared_result(operation.output_schema, operation.shown_result, max_tokens)
    shape = shapes.get(operation.id)
    text = "" if shape is None else learned_text(shape, max_tokens - _OBSERVED_TOKENS)
    return f"observed: {text}" if text else ""


def _run_hints(view: View, shown: Mapping[str, Operation]) -> list[str]:
    """Says which operations another meta-tool than `execute` runs; nothing if there are none."""
    ids: dict[MetaTool, list[str]] = {}
    for id_, operation in shown.items():
        ids.setdefault(view.running_meta_tool(operation), []).append(id_)
    return [
        f"Run with {view.meta_tool_name(meta)}{'' if len(ids) == 1 else ': ' + ', '.join(some)}."
        for meta, some in ids.items()
        if meta is not MetaTool.EXECUTE
    ]


def _omission_hint(view: View, lines: list[str]) -> list[str]:
    """Says where the fields are that signatures leave out; nothing if they leave out none."""
    has_omissions = any(map(tool_text.has_omissions, lines))
    return [f"What … leaves out: {view.meta_tool_name(MetaTool.GET_SCHEMA)}."] if has_omissions else []


def _other_words_hint(view: View) -> str:
    return f"Try other words, or {view.meta_tool_name(MetaTool.DISCOVER)}() for all {view.directory.size} operations."


def listing_text(view: View, arguments: DiscoverArguments, work: Work, notices: ServerNotices = NO_NOTICES) -> str:
    """Writes the overview, or the operations of a category, and what is wrong with the servers that would have them.

    Raises:
        UsageError: there is no such category.
        WorkLimitError: the whole tree has too many operations.
    """
    about = {notices.category_of(arguments.category)} if arguments.category and notices else None
    told = notices.lines(about) if notices and not arguments.cursor else []
    try:
        if arguments.detail is not DetailLevel.FULL:
            return "\n".join([_listing_text(view, arguments), *told])
        category = view.directory.category_at(arguments.category)
        if category is None:
            raise UsageError(_unknown_category_text(view, arguments.category))
    except UsageError:
        if told:
            raise UsageError(told[0]) from None
        raise
    unusable: dict[str, JSON] = {name: text for name, text in notices.texts.items() if about is None or name in about}
    return json_text({"operations": category.json_tree(work), **({"unusable": unusable} if unusable else {})})


def _listing_text(view: View, arguments: DiscoverArguments) -> str:
    """
    Raises:
        UsageError: there is no such category.
    """
    if not view.operations:
        return "There are no operations yet."
    if not arguments.category and arguments.detail is None:
        return view.directory.overview
    operations = _operations_in(view, arguments.category)
    if arguments.detail is DetailLevel.NAMES:
        return _page_text(operations, lambda operation: operation.id, arguments.cursor)

    def line(operation: Operation) -> str:
        summary = view.directory.summary_of(operation)
        return f"{operation.id}: {summary}" if summary else operation.id

    return _page_text(operations, line, arguments.cursor)


def _operations_in(view: View, category: str) -> list[Operation]:
    node = view.directory.category_at(category)
    # The overview groups operations without category by their first word, `create_*`, which works as a category here.
    operations = node.all_operations() if node is not None else view.directory.operations_with_prefix(category)
    if not operations:
        raise UsageError(_unknown_category_text(view, category))
    return operations


def _unknown_category_text(view: View, category: str) -> str:
    known = [node.path for node in view.directory.root.walk() if node.path]
    near = view.nearest_names(category[:200], known)
    hint = did_you_mean(near) or f" {view.meta_tool_name(MetaTool.DISCOVER)}() shows what there is."
    return f"There is no category {category[:200]!r}.{hint}"


def _page_text(operations: list[Operation], line: Callable[[Operation], str], start: int) -> str:
    """Returns the lines of one page, at least one, and the cursor of the next page; writes no other line."""
    if start >= len(operations):
        raise UsageError("cursor is past the end; start without it.")
    lines: list[str] = []
    spent = 0
    for operation in operations[start:]:
        text = line(operation)
        spent += tokens.count(text) + 1
        if spent > PAGE_TOKENS and lines:
            break
        lines.append(text)
    end = start + len(lines)
    more = [f'{len(operations) - end} more: cursor="{end}"'] if end < len(operations) else []
    return "\n".join([*lines, *more])


# get_schema


def parse_get_schema_arguments(arguments: Mapping[str, JSON]) -> tuple[list[str], DetailLevel]:
    """Parses the arguments of `get_schema`: names of operations and the level of detail.

    Raises:
        UsageError: an argument is missing or of the wrong type.
    """
    _check_names(arguments, "operation", "detail")
    names = _string_list(arguments, "operation")
    if not names:
        raise UsageError("operation is required: an operation's id, or a list of them.")
    if len(names) > MAX_SCHEMAS:
        raise UsageError(f"operation takes at most {MAX_SCHEMAS} operations at once.")
    return names, _parse_detail(arguments, DetailLevel.NOTES, DetailLevel.FULL, DetailLevel.SCHEMA) or DetailLevel.NOTES


class RequestedSchema(NamedTuple):
    """An operation, and the path of the parameter that is asked for; an empty path means all parameters."""

    operation: Operation
    path: str


def find_schemas(view: View, names: list[str], notices: ServerNotices = NO_NOTICES) -> Iterator[RequestedSchema | str]:
    """Finds each operation, one at each step; a text with the nearest names stands for one that does not exist.

    Raises:
        MissingScopesError: the caller may not see one of them.
    """
    view.withheld.check(name for name in names if view.find(name) is None)
    for name in names:
        yield _find_schema(view, name, notices)


def schemas_text(
    view: View,
    found: Iterable[RequestedSchema | str],
    detail: DetailLevel,
    shapes: Mapping[str, LearnedShape] = NO_SHAPES,
    notices: ServerNotices = NO_NOTICES,
) -> str:
    """Describes what `find_schemas` found, and what the operations return.

    Raises:
        UsageError: there is no operation among it.
    """
    found = list(found)
    if not any(isinstance(one, RequestedSchema) for one in found):
        raise UsageError(" ".join(map(str, found)))
    described = {one.operation.id: one.operation for one in found if isinstance(one, RequestedSchema)}
    told = {id_: notices.of(id_) for id_ in described if notices.of(id_)}
    if detail is DetailLevel.SCHEMA:
        details = [
            {
                **operation_details(one.operation),
                **_observation(one.operation, shapes),
                **({"notice": line} if (line := told.get(one.operation.id)) else {}),
            }
            if isinstance(one, RequestedSchema)
            else {"error": one}
            for one in found
        ]
        return json_text(details if len(details) > 1 else details[0])
    texts = "\n\n".join(_schema_text(one, detail, shapes) if isinstance(one, RequestedSchema) else one for one in found)
    return "\n".join([texts, *dict.fromkeys(told.values()), *_run_hints(view, described)])


def _find_schema(view: View, name: str, notices: ServerNotices) -> RequestedSchema | str:
    """Finds an operation by its id, or by its id and the path of a parameter: `mail.send.body.message`.

    Returns a text with the nearest names if there is no such operation, or if it has no such parameter.
    """
    operation = view.find(name)
    if operation is not None:
        return RequestedSchema(operation, "")
    id_, dot, path = name[:_MAX_PATH_CHARS].rpartition(".")
    while dot:
        operation = view.find(id_)
        if operation is not None and has_parameter(operation.tool["inputSchema"], path):
            return RequestedSchema(operation, path)
        if operation is not None and view.directory.category_at(id_) is None:
            return _unknown_parameter_text(view, operation, path)
        id_, dot, segment = id_.rpartition(".")
        path = f"{segment}.{path}"
    return unknown_operation_text(view, name, notices)


def _unknown_parameter_text(view: View, operation: Operation, path: str) -> str:
    """Writes the answer to an unknown parameter: the nearest path, or the names where the path leads no further."""
    around, names = deepest_names(operation.tool["inputSchema"], path)
    prefix = f"{around}." if around else ""
    near = view.nearest_names(path.removeprefix(prefix).partition(".")[0][:200], names)
    where = around or operation.id
    where = visible_line(where)
    inside = f" {where} has: {' '.join(map(name_text, names[:30]))}." if names else f" {where} has no parameters."
    suggested = [visible_line(prefix) + name_text(one) for one in near]
    return f"{operation.id} has no parameter {path[:200]!r}.{did_you_mean(suggested) or inside}"


def _schema_text(requested: RequestedSchema, detail: DetailLevel, shapes: Mapping[str, LearnedShape]) -> str:
    operation = requested.operation
    write = tool_text.full_text if detail is DetailLevel.FULL else tool_text.signature_with_notes
    text = write(operation.tool, operation.id, requested.path, operation.examples)
    returned = "" if requested.path else _returned_text(operation, shapes, _SHAPE_TOKENS)
    return f"{text}\n{returned}" if returned else text


def _observation(operation: Operation, shapes: Mapping[str, LearnedShape]) -> dict[str, JSON]:
    """Returns what an operation that declares no names was seen to return, as a member beside its schema."""
    text = "" if operation.declares_names else _returned_text(operation, shapes, _SHAPE_TOKENS)
    return {"observed": text.removeprefix("observed: ")} if text else {}


def operation_details(operation: Operation) -> dict[str, JSON]:
    """Returns the exact schema and the metadata of an operation, as its resource shows them, too."""
    tool = operation.tool
    keys = ("title", "description", "inputSchema", "outputSchema", "annotations")
    details = {"id": operation.id, "name": operation.name, **{key: tool[key] for key in keys if key in tool}}
    return {**details, "examples": operation.examples} if operation.examples else details


def unknown_operation_text(view: View, name: str, notices: ServerNotices = NO_NOTICES) -> str:
    """Writes the answer to an unknown name: the nearest names, and the operations of the category it would be in.

    If a server that cannot be used would have it, that is the answer.
    """
    if absence := view.absence(name) or notices.of(name):
        return absence
    if notices:
        return "\n".join([_unknown_operation_text(view, name), *notices.lines()])
    return _unknown_operation_text(view, name)


def _unknown_operation_text(view: View, name: str) -> str:
    near = view.nearest_ids(name[:200])
    hint = did_you_mean(near)
    parent = name[:200].replace("/", ".").rpartition(".")[0]
    category = view.directory.category_at(parent) if parent else None
    inside = f" {parent} has: {' '.join(list(category.operations)[:30])}." if category and category.operations else ""
    if not near and not inside:
        hint = f" {view.meta_tool_name(MetaTool.DISCOVER)}() shows all."
    return f"There is no operation {name[:200]!r}.{hint}{inside}"


def _check_names(arguments: Mapping[str, JSON], *known: str) -> None:
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise UsageError(f"There is no argument {unknown[0][:100]!r}; there are {', '.join(known)}.")


def _string_list(arguments: Mapping[str, JSON], name: str) -> list[str]:
    value = arguments.get(name)
    values = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values):
        raise UsageError(f"{name} must be a string or a list of strings.")
    return values


def _parse_detail(arguments: Mapping[str, JSON], *known: DetailLevel) -> DetailLevel | None:
    value = arguments.get("detail")
    if value is None or value == "":
        return None
    for level in known:
        if value == level.value:
            return level
    raise UsageError(f"detail must be one of {', '.join(level.value for level in known)}.")
