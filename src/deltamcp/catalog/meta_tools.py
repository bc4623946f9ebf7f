"""The meta-tools that replace the tools of a whole catalog: `discover`, `get_schema`, `execute` and others.

Their definitions cost the model the same for 10 operations as for 2,500.
"""

import enum
from collections.abc import Mapping
from typing import Any

from deltamcp.catalog.directory import Directory
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.operation import Operation
from deltamcp.results.policy import SINCE_KEY, ResolvedPolicy, size_hint
from deltamcp.results.reference import KEY as REFERENCE_KEY
from deltamcp.values import JSON

MAX_QUERIES = 10
"""Queries of one call of `discover`."""
MAX_SCHEMAS = 10
"""Operations that one call of `get_schema` can describe."""
CONTENT_LINE_TOKENS = 27
"""The budget of the line that summarizes the catalog."""


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
