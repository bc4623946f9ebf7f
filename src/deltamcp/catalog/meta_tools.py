"""The four tools that stand for a whole catalogue: `discover`, `get_schema`, `execute`, `continue`; and `query`.

What they show the model costs the same for 10 operations and for 2,500.
"""

import enum
from collections.abc import Mapping
from typing import Any

from deltamcp.catalog.directory import Directory
from deltamcp.results.encode import LEGEND
from deltamcp.results.policy import ROOT, Shaping, hint
from deltamcp.values import JSON

CHANGES = ' Changes: k=v set, -k gone, +row new, "like x": copy of x but for what follows, ~"a">"b": a is now b.'
"""What a model should have read before it is told what changed."""
_READ_ON = "Read on in a cut result."
DIGEST_TOKENS = 48
"""What the line naming the catalogue's content may cost."""


class Meta(enum.Enum):
    """The meta-tools; the value is the name without prefix."""

    DISCOVER = "discover"
    GET_SCHEMA = "get_schema"
    EXECUTE = "execute"
    QUERY = "query"
    CONTINUE = "continue"


class Asked(enum.Enum):
    """How much `discover` and `get_schema` say."""

    NAMES = "names"
    BRIEF = "brief"
    NOTES = "notes"
    FULL = "full"
    SCHEMA = "schema"


_STRINGS: Mapping[str, JSON] = {"type": ["string", "array"], "items": {"type": "string"}}
_TEXT: Mapping[str, JSON] = {"type": "string"}
_READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ANNOTATIONS: Mapping[Meta, dict[str, JSON]] = {
    Meta.DISCOVER: _READS,
    Meta.GET_SCHEMA: _READS,
    Meta.CONTINUE: _READS,
    # An operation may do anything its server can; `query` runs only those that say they read.
    Meta.EXECUTE: {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    Meta.QUERY: {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True},
}
_TITLES: Mapping[Meta, str] = {
    Meta.DISCOVER: "Find operations",
    Meta.GET_SCHEMA: "Show an operation's parameters",
    Meta.EXECUTE: "Run an operation",
    Meta.QUERY: "Run a read-only operation",
    Meta.CONTINUE: "Read on in a long result",
}


def tools(directory: Directory, prefix: str, query: bool, shaping: Shaping) -> dict[str, dict[str, JSON]]:
    """The definitions by name, as `tools/list` shows them; `shaping` is how results are made to fit."""
    among = [meta for meta in Meta if meta is not Meta.QUERY or query]
    return {f"{prefix}{meta.value}": tool(meta, prefix, shaping, directory) for meta in among}


def tool(meta: Meta, prefix: str, shaping: Shaping, directory: Directory | None = None) -> dict[str, JSON]:
    """One of them; only `discover` tells of the directory."""
    return {
        "name": f"{prefix}{meta.value}",
        "title": _TITLES[meta],
        "description": _description(meta, shaping, directory),
        "inputSchema": _schema(meta, shaping),
        "annotations": _ANNOTATIONS[meta],
        # Hosts that defer tools behind a search of their own would hide what is itself a search.
        "_meta": {"anthropic/alwaysLoad": True, **hint(shaping)},
    }


def _description(meta: Meta, shaping: Shaping, directory: Directory | None) -> str:
    legend = f" {LEGEND}" if shaping.tables else ""
    match meta:
        case Meta.DISCOVER:
            assert directory is not None, "what there is to discover"
            there = f"{directory.size} operation{'s' * (directory.size != 1)}: {directory.digest(DIGEST_TOKENS)}."
            return (
                f"{there} Search by query (verb, object, service; not the user's words) "
                "or list a category; neither: overview."
            )
        case Meta.GET_SCHEMA:
            return 'Parameters of operations; detail "full": every word, "schema": JSON Schema.'
        case Meta.EXECUTE:
            return f"Run an operation.{legend}"
        case Meta.QUERY:
            return "Run an operation that only reads."
        case Meta.CONTINUE:
            return f"Read on in a cut result, or all of a changed one.{CHANGES}" if shaping.deltas else _READ_ON


def _schema(meta: Meta, shaping: Shaping) -> dict[str, JSON]:
    root: dict[str, JSON] = {ROOT: _TEXT} if shaping.deltas else {}
    match meta:
        case Meta.DISCOVER:
            return _object(
                {
                    "query": _STRINGS,
                    "category": {"type": "string"},
                    "detail": {"enum": [Asked.NAMES.value, Asked.BRIEF.value, Asked.FULL.value]},
                    "cursor": {"type": "string"},
                    **root,
                }
            )
        case Meta.GET_SCHEMA:
            return _object(
                {
                    "operation": _STRINGS,
                    "detail": {"enum": [Asked.NOTES.value, Asked.FULL.value, Asked.SCHEMA.value]},
                },
                "operation",
            )
        case Meta.EXECUTE | Meta.QUERY:
            return _object(
                {"operation": _TEXT, "params": {"type": "object"}, "fields": _TEXT, **root},
                "operation",
            )
        case Meta.CONTINUE:
            return _object(
                {
                    "handle": {"type": "string"},
                    "offset": {"type": "integer"},
                    "page": {"type": "integer"},
                    "path": {"type": "string"},
                    "fields": {"type": "string"},
                    "grep": {"type": "string"},
                },
                "handle",
            )


def _object(properties: dict[str, Any], *required: str) -> dict[str, JSON]:
    made: dict[str, JSON] = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made
