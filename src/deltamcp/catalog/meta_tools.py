"""The meta-tools that replace the tools of a whole catalog: `discover`, `get_schema`, `execute` and others.

Their definitions cost the model the same for 10 operations as for 2,500. Common mistakes in the arguments of `execute`
are repaired where a single interpretation fits the operation, and each repair is reported.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from deltamcp.catalog.arguments import InvalidArgumentsError
from deltamcp.catalog.directory import Directory
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.text import tool_text
from deltamcp.errors import UsageError
from deltamcp.results.pages import MAX_PAGES
from deltamcp.results.policy import SINCE_KEY, ResolvedPolicy, size_hint, take_since
from deltamcp.results.queries.query import Query, parse_query
from deltamcp.results.reference import KEY as REFERENCE_KEY
from deltamcp.values import ANSWERS_KEY, JSON
from deltamcp.wire.codecs import JSON_CODEC
from deltamcp.wire.message_bounds import MessageBoundError

if TYPE_CHECKING:
    from deltamcp.catalog.view import View

MAX_QUERIES = 10
"""Queries of one call of `discover`."""
MAX_SCHEMAS = 10
"""Operations that one call of `get_schema` can describe."""
CONTENT_LINE_TOKENS = 27
"""The budget of the line that summarizes the catalog."""
_OPERATION_ALIASES = ("name", "tool", "tool_name", "operation_id", "operationId", "id")
_PARAMS_ALIASES = ("arguments", "args", "parameters", "input", "inputs", "parameter", "kwargs")


class MetaTool(enum.Enum):
    """The meta-tools; the value is the name without the prefix."""

    DISCOVER = "discover"
    GET_SCHEMA = "get_schema"
    EXECUTE = "execute"
    QUERY = "query"
    EXECUTE_DESTRUCTIVE = "execute_destructive"
    CONTINUE = "continue"


RUNNING_META_TOOLS = frozenset({MetaTool.EXECUTE, MetaTool.QUERY, MetaTool.EXECUTE_DESTRUCTIVE})
"""The meta-tools that run operations; the others only tell of them, or of their results."""


class DetailLevel(enum.Enum):
    """How much detail `discover` and `get_schema` show."""

    NAMES = "names"
    BRIEF = "brief"
    NOTES = "notes"
    FULL = "full"
    SCHEMA = "schema"


_STRINGS_SCHEMA: Mapping[str, JSON] = {"type": "array", "items": {"type": "string"}}
"""A single text is taken too: to say so costs 10 tokens in each of two definitions, and no model asked."""
_STRING_SCHEMA: Mapping[str, JSON] = {"type": "string"}
_FIELDS_SCHEMA: Mapping[str, JSON] = {"type": "string", "description": "JMESPath: [?n>`9`].id, count_by(@,&k)"}
"""The examples have a filter and an aggregate: of "id,user.login" alone, models did not guess that there are any."""
_PAGES_SCHEMA: Mapping[str, JSON] = {"type": "integer"}
_SINCE_SCHEMA: Mapping[str, JSON] = {"type": "string", "description": "earlier handle: only changes"}
_READ_ONLY_HINTS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ANNOTATIONS: Mapping[MetaTool, dict[str, JSON]] = {
    MetaTool.DISCOVER: _READ_ONLY_HINTS,
    MetaTool.GET_SCHEMA: _READ_ONLY_HINTS,
    MetaTool.CONTINUE: _READ_ONLY_HINTS,
    # `execute` runs what says nothing of itself, too, which MCP has clients take for destructive; `query` runs only
    # operations that say they are read-only.
    MetaTool.EXECUTE: {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    MetaTool.EXECUTE_DESTRUCTIVE: {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    },
    MetaTool.QUERY: {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True},
}
_TITLES: Mapping[MetaTool, str] = {
    MetaTool.DISCOVER: "Find operations",
    MetaTool.GET_SCHEMA: "Show an operation's parameters",
    MetaTool.EXECUTE: "Run an operation",
    MetaTool.QUERY: "Run a read-only operation",
    MetaTool.EXECUTE_DESTRUCTIVE: "Run a destructive operation",
    MetaTool.CONTINUE: "Read on in a long result",
}


def offered_meta_tools(disclosure: Disclosure) -> list[MetaTool]:
    """Returns the meta-tools of a server that lists its operations behind them."""
    switches = {MetaTool.QUERY: disclosure.query, MetaTool.EXECUTE_DESTRUCTIVE: disclosure.destructive}
    return [meta for meta in MetaTool if switches.get(meta, True)]


def running_meta_tool(operation: Operation, disclosure: Disclosure) -> MetaTool:
    """Returns the meta-tool that runs an operation, by what the operation says of itself."""
    if disclosure.query and operation.is_read_only:
        return MetaTool.QUERY
    if disclosure.destructive and operation.is_destructive:
        return MetaTool.EXECUTE_DESTRUCTIVE
    return MetaTool.EXECUTE


def definitions(
    directory: Directory, disclosure: Disclosure, policy: ResolvedPolicy, has_pages: bool = False
) -> dict[str, dict[str, JSON]]:
    """Returns the definitions for `tools/list` by name; `policy` decides which notations of results they explain.

    Args:
        has_pages: Whether some operation's results may have pages, which the meta-tools that run it follow.
    """
    prefix = disclosure.meta_tool_prefix
    return {
        f"{prefix}{meta.value}": definition(meta, prefix, policy, directory, has_pages)
        for meta in offered_meta_tools(disclosure)
    }


def definition(
    meta: MetaTool, prefix: str, policy: ResolvedPolicy, directory: Directory | None = None, has_pages: bool = False
) -> dict[str, JSON]:
    """Returns the definition of one meta-tool; only `discover` needs the directory."""
    return {
        "name": f"{prefix}{meta.value}",
        "title": _TITLES[meta],
        "description": _description(meta, policy, directory),
        "inputSchema": _schema(meta, policy, directory is not None, has_pages),
        "annotations": _ANNOTATIONS[meta],
        # Hosts that hide tools behind a search of their own would hide the meta-tools, which are a search themselves.
        "_meta": {"anthropic/alwaysLoad": True, **size_hint(policy)},
    }


def _description(meta: MetaTool, policy: ResolvedPolicy, directory: Directory | None) -> str:
    match meta:
        case MetaTool.DISCOVER:
            assert directory is not None, "discover needs a directory"
            content = directory.content_line(CONTENT_LINE_TOKENS)
            summary = f"{directory.size} operation{'s' * (directory.size != 1)}: {content}."
            return f"{summary} Queries: verb, object, service, not the user's words; or a category; neither: overview."
        case MetaTool.GET_SCHEMA:
            return "Parameters of operations."
        case MetaTool.EXECUTE:
            return f'Run an operation; params may hold {{"{REFERENCE_KEY}":handle,"fields":...}}.'
        case MetaTool.QUERY:
            return "Run a read-only one."
        case MetaTool.EXECUTE_DESTRUCTIVE:
            return "Run one that destroys."
        case MetaTool.CONTINUE:
            passed_on = "" if directory is not None else f' {{"{REFERENCE_KEY}":handle}} as an argument passes it on.'
            return f"Read on in a result, or ask more of one.{passed_on}"


def _schema(meta: MetaTool, policy: ResolvedPolicy, is_beside_execute: bool, has_pages: bool) -> dict[str, JSON]:
    since: dict[str, JSON] = {} if policy.deltas is False else {SINCE_KEY: _STRING_SCHEMA}
    match meta:
        case MetaTool.DISCOVER:
            return _object_schema(
                {
                    "query": _STRINGS_SCHEMA,
                    "category": {"type": "string"},
                    "cursor": {"type": "string"},
                    **(since if policy.deltas else {}),
                }
            )
        case MetaTool.GET_SCHEMA:
            return _object_schema(
                {
                    "operation": _STRINGS_SCHEMA,
                    "detail": {"enum": [DetailLevel.FULL.value, DetailLevel.SCHEMA.value]},
                },
            )
        case MetaTool.EXECUTE | MetaTool.QUERY | MetaTool.EXECUTE_DESTRUCTIVE:
            # Said once: models take what one of these tools says of an argument for all of them.
            fields = _FIELDS_SCHEMA if meta is MetaTool.EXECUTE else _STRING_SCHEMA
            if since and meta is MetaTool.EXECUTE:
                since = {SINCE_KEY: _SINCE_SCHEMA}
            # Only what reads is asked for page after page.
            pages = {"pages": _PAGES_SCHEMA} if has_pages and meta is not MetaTool.EXECUTE_DESTRUCTIVE else {}
            return _object_schema(
                {
                    "operation": _STRING_SCHEMA,
                    "params": {"type": "object"},
                    "fields": fields,
                    "grep": _STRING_SCHEMA,
                    **pages,
                    **since,
                },
            )
        case MetaTool.CONTINUE:
            # Beside the other meta-tools `execute` says what fields are.
            return _object_schema(
                {
                    "handle": {"type": "string"},
                    "offset": {"type": "integer"},
                    "path": {"type": "string"},
                    "fields": _STRING_SCHEMA if is_beside_execute else _FIELDS_SCHEMA,
                    "grep": {"type": "string"},
                    **since,
                },
                "handle",
            )


def _object_schema(properties: dict[str, Any], *required: str) -> dict[str, JSON]:
    schema: dict[str, JSON] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


class UnknownOperationError(UsageError):
    """The arguments name no operation that there is; `name` is what they name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no operation {name[:200]!r}.")
        self.name = name


class ExecuteArguments(NamedTuple):
    """The parsed arguments of `execute`."""

    operation: Operation
    params: dict[str, JSON]
    query: Query
    """The parts of the result that the caller wants."""
    since: str | None
    """The handle or root of the result that the caller already has, where it sends one."""
    pages: int
    """How many pages of a service's results the caller wants."""
    repair: str
    """Sentences that report the repairs; empty where there were none."""


def parse_execute_arguments(view: "View", arguments: Mapping[str, JSON]) -> ExecuteArguments:
    """Parses the arguments of `execute`, and repairs them where needed.

    Raises:
        UnknownOperationError: there is no operation of that name.
        UsageError: the arguments do not name an operation, or cannot be repaired.
        MissingScopesError: the caller may not call the operation.
    """
    remaining = dict(arguments)
    repairs: list[str] = []
    name = remaining.pop("operation", None)
    if name is None:
        name = _take_alias(remaining, _OPERATION_ALIASES, repairs, "operation", str)
    if not isinstance(name, str):
        raise UsageError(
            f'operation must be a string: {view.meta_tool_name(MetaTool.EXECUTE)}(operation="...", params={{...}}).'
        )
    view.withheld.check({name, name.strip().removesuffix("()")})
    operation = view.find(name) or view.find(name.strip().removesuffix("()"))
    if operation is None:
        raise UnknownOperationError(name)
    own_names = _stray_names(operation, remaining.get("params"))
    query = _take_query(operation, remaining)
    since = take_since(remaining, own_names)
    pages = _take_pages(operation, remaining)
    answers = remaining.pop(ANSWERS_KEY, None)
    params = _take_params(operation, remaining, repairs)
    if answers is not None:
        params = {**params, ANSWERS_KEY: answers}
    if remaining:
        params = _add_stray_params(operation, remaining, params, repairs)
    return ExecuteArguments(operation, params, query, since, pages, " ".join(repairs))


def _stray_names(operation: Operation, params: JSON) -> Collection[str]:
    """Returns the names of the operation's parameters that are not in `params`, and so may be out of their place."""
    if operation.takes_since:
        return ()
    return operation.parameter_names - params.keys() if isinstance(params, dict) else operation.parameter_names


def _take_query(operation: Operation, remaining: dict[str, JSON]) -> Query:
    """Takes fields and grep, unless the operation has parameters of these names."""
    taken = {name: remaining.pop(name, None) for name in ("fields", "grep") if name not in operation.parameter_names}
    return parse_query(taken.get("fields"), taken.get("grep"))


def _take_pages(operation: Operation, remaining: dict[str, JSON]) -> int:
    """Takes the number of pages, unless the operation has a parameter of this name.

    Raises:
        UsageError: it is no such number, or the operation may not be called again and again.
    """
    if "pages" not in remaining or "pages" in operation.parameter_names:
        return 1
    pages = remaining.pop("pages")
    if pages is None:
        return 1
    if isinstance(pages, str) and pages.isdecimal() and len(pages) < 4:
        pages = int(pages)
    if not isinstance(pages, int) or isinstance(pages, bool) or not 1 <= pages <= MAX_PAGES:
        raise UsageError(f"pages must be a number from 1 to {MAX_PAGES}.")
    if pages > 1 and not (operation.is_read_only and operation.consent_policy == "allow"):
        raise UsageError(f"{operation.id} is not declared read-only, so that pages cannot follow it; ask page by page.")
    return pages


def _take_params(operation: Operation, remaining: dict[str, JSON], repairs: list[str]) -> dict[str, JSON]:
    known = operation.parameter_names
    sent = remaining.pop("params", None)
    if sent is None or sent == "":
        aliases = [name for name in _PARAMS_ALIASES if name not in known]
        sent = _take_alias(remaining, aliases, repairs, "params", (dict, str))
    params: dict[str, JSON] | None = _decode_params(sent, repairs)
    if params is None:
        raise UsageError(f"params must be an object: {tool_text.signature_line(operation.tool, operation.id)}.")
    inner = next(iter(params), "") if len(params) == 1 else ""
    wrapped = inner in ("params", *_PARAMS_ALIASES) and inner not in known and isinstance(params[inner], dict)
    if wrapped and not _can_bind(operation, params):
        repairs.append(f"Took params out of a second {inner!r} around them.")
        params = params[inner]
    repeated = params.get("operation") in (operation.id, operation.name) and "operation" not in known
    if repeated and not _can_bind(operation, params):
        repairs.append("Left out the operation repeated inside params.")
        params = {key: value for key, value in params.items() if key != "operation"}
    return params


def _can_bind(operation: Operation, params: dict[str, JSON]) -> bool:
    """Returns whether the operation accepts the parameters as they are."""
    try:
        operation.bind(params)
    except InvalidArgumentsError:
        return False
    return True


def _decode_params(sent: JSON, repairs: list[str]) -> dict[str, JSON] | None:
    """Returns params that came as an object, as text or not at all as an object; None for any other value."""
    if sent is None:
        return {}
    if isinstance(sent, str):
        try:
            # The text is one value to the check of messages, so that what is in it has the same bounds again.
            sent = JSON_CODEC.decode(sent.encode())
        except MessageBoundError as error:
            raise UsageError(f"params cannot be read: {error}") from None
        except ValueError:
            return None
        repairs.append("Read params, which came as a string, as JSON.")
    return sent if isinstance(sent, dict) else None


def _add_stray_params(
    operation: Operation, stray: dict[str, JSON], params: dict[str, JSON], repairs: list[str]
) -> dict[str, JSON]:
    """Adds parameters that came next to `params` instead of inside."""
    known = operation.parameter_names
    unknown = [name for name in stray if name not in known or name in params]
    if unknown:
        raise UsageError(
            f"{', '.join(repr(name[:50]) for name in unknown[:5])} is neither operation nor params. "
            f"{operation.id} takes: {tool_text.signature_line(operation.tool, operation.id)}."
        )
    repairs.append(f"Moved {', '.join(stray)} into params, where parameters belong.")
    return {**params, **stray}


def _take_alias(
    remaining: dict[str, JSON],
    aliases: Iterable[str],
    repairs: list[str],
    proper_name: str,
    types: type | tuple[type, ...],
) -> JSON:
    """Takes the value of the only alias that is present; None where there is no alias, or more than one."""
    present = [name for name in aliases if isinstance(remaining.get(name), types)]
    if len(present) != 1:
        return None
    repairs.append(f"Took {present[0]!r} for {proper_name!r}.")
    return remaining.pop(present[0])
