"""Caches a server's tools: the index, the definitions, and how long both are valid. Pure: does no I/O."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from deltamcp.catalog import param_headers, prose
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.client.links.received_size import size_of
from deltamcp.errors import ConfigurationError
from deltamcp.results import reference
from deltamcp.results.policy import QUERY_KEY
from deltamcp.values import JSON, PROMISES_KEY
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical_json import encode_canonical
from deltamcp.wire.digest import sha256_digest
from deltamcp.work import WorkLimitError


class Tool(msgspec.Struct, frozen=True):
    """A tool's line in the index."""

    name: str
    summary: str
    """At most 60 characters: the server's summary, or the first sentence of the description."""
    title: str | None = None


class Definition:
    """A tool's full definition; `raw` is the object that the server sent."""

    def __init__(self, raw: dict[str, JSON]) -> None:
        self.raw = raw

    def copy(self) -> dict[str, JSON]:
        """Returns a deep copy, which the caller may change."""
        copied: dict[str, JSON] = jsonrpc.decode(jsonrpc.encode(self.raw))
        return copied

    @functools.cached_property
    def digest(self) -> str:
        """The digest that the server's manifest gives for this definition (SEP-2636)."""
        return sha256_digest(encode_canonical(self.raw))

    @functools.cached_property
    def parameter_headers(self) -> tuple[ParameterHeader, ...]:
        """
        Raises:
            ConfigurationError: the `x-mcp-header` annotations are invalid.
        """
        schema = self.raw.get("inputSchema")
        return param_headers.declared_headers(str(self.raw["name"]), schema) if isinstance(schema, dict) else ()

    @property
    def own_parameters(self) -> frozenset[str]:
        """The names of the parameters, without those that the server takes for the result and not for the tool."""
        schema, meta = self.raw.get("inputSchema"), self.raw.get("_meta")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        taken = meta.get(QUERY_KEY) if isinstance(meta, dict) else None
        names = frozenset(properties if isinstance(properties, dict) else ())
        return names.difference(taken) if isinstance(taken, list) else names

    @functools.cached_property
    def _validator(self) -> ForeignSchema | None:
        schema = self.raw.get("inputSchema")
        return ForeignSchema(schema) if isinstance(schema, dict) else None

    def check_arguments(
        self, arguments: dict[str, JSON], resolves_references: bool = False
    ) -> tuple[dict[str, JSON], list[str]]:
        """Returns the arguments to send, and the problems that the schema finds in them.

        An optional argument that is null is left out if the schema does not admit null: models write null for arguments
        that they leave out. If the server `resolves_references`, it alone can judge the values that `{"$result": ...}`
        stands for. Its meta-tools take an empty text, too, for an argument that is left out. Where it would take too
        long to check the arguments, the server alone checks them.
        """
        validator = self._validator
        try:
            if validator is None or validator.is_valid(arguments):
                return arguments, []
            sent = dict(validator.drop_nulls(arguments))
            if not resolves_references:
                return sent, [problem.text for problem in validator.problems(sent)]
            unknown = list(reference.reference_paths(sent))
            if str(self.raw["name"]).endswith(_META_TOOL_NAMES):
                unknown += [(name,) for name in validator.optional_names if sent.get(name) == ""]
            problems = validator.problems(sent, lambda path, keyword: _depends_on(unknown, path, keyword))
            return sent, [problem.text for problem in problems]
        except WorkLimitError:
            return arguments, []
        except (ValueError, RecursionError):
            return arguments, ["The arguments cannot be written as JSON."]

    def has_hint(self, name: str) -> bool:
        """Whether an annotation of the tool is true."""
        annotations = self.raw.get("annotations")
        return isinstance(annotations, dict) and annotations.get(name) is True

    @functools.cached_property
    def task_support(self) -> str:
        """Whether the server may go on with a call after its reply: `optional`, `required`, or anything else for no."""
        execution = self.raw.get("execution")
        return str(execution.get("taskSupport")) if isinstance(execution, dict) else ""

    @functools.cached_property
    def gives_promises(self) -> bool:
        """Whether the server knows calls of the tool by idempotency keys; servers of this library say so."""
        meta = self.raw.get("_meta")
        return isinstance(meta, dict) and meta.get(PROMISES_KEY) is True

    @functools.cached_property
    def is_repeatable(self) -> bool:
        """Whether the tool's annotations say that it only reads or is idempotent, so that a call may be repeated."""
        return self.has_hint("readOnlyHint") or self.has_hint("idempotentHint")


_MAX_DEFINITION_BYTES = 1024 * 1024
"""The size of the largest definition; values count as in `received_size.py`. The largest known have 100 kB."""
_META_TOOL_NAMES = tuple(meta.value for meta in MetaTool)
"""The names of meta-tools, before which a server may put a prefix."""
_STRUCTURE_KEYWORDS = frozenset(
    {
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "minItems",
        "maxItems",
        "type",
    }
)
"""JSON Schema keywords that concern an object or a list itself, whatever the values in it are."""


def _depends_on(unknown: Sequence[tuple[str | int, ...]], path: list[str | int], keyword: str) -> bool:
    """Whether a problem is in a value that the client does not know, or may be solved by one inside it."""
    for unknown_path in unknown:
        if tuple(path[: len(unknown_path)]) == unknown_path:
            return True
        if unknown_path[: len(path)] == tuple(path) and keyword not in _STRUCTURE_KEYWORDS:
            return True
    return False


def parse_tool(raw: Any) -> Tool | None:
    """Converts an item of `tools/list` to a line of the index; returns None if the item has no name."""
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        return None
    description, title = raw.get("description"), raw.get("title")
    summary = prose.summary(description) if isinstance(description, str) else ""
    return Tool(raw["name"], summary, title if isinstance(title, str) else None)


def _is_too_large(raw: dict[str, JSON]) -> bool:
    return size_of(jsonrpc.encode(raw)) > _MAX_DEFINITION_BYTES


class ParsedTools:
    """The items of a `tools/list`: the index, the definitions by their names, and why some were left out."""

    def __init__(self, are_definitions: bool, mirrors_arguments: bool) -> None:
        """
        Args:
            are_definitions: whether the items are full definitions, not only lines of an index.
            mirrors_arguments: whether calls go over HTTP; only there an invalid `x-mcp-header` excludes a tool
                (MCP 2026-07-28, "Custom Headers").
        """
        self.are_definitions, self._mirrors_arguments = are_definitions, mirrors_arguments
        self.index: list[Tool] = []
        self.definitions: dict[str, Definition] = {}
        self.left_out: list[str] = []

    def add(self, items: Iterable[JSON]) -> None:
        for raw in items:
            tool = parse_tool(raw)
            if tool is None:
                self.left_out.append("an item that is no tool")
                continue
            if self.are_definitions:
                if _is_too_large(raw):
                    name = tool.name[: jsonrpc.MAX_SHOWN_CHARS]
                    self.left_out.append(f"{name!r}, whose definition has more than {_MAX_DEFINITION_BYTES:,} bytes")
                    continue
                definition = Definition(raw)
                try:
                    if self._mirrors_arguments:
                        _ = definition.parameter_headers
                except ConfigurationError as error:
                    self.left_out.append(str(error))
                    continue
                self.definitions[tool.name] = definition
            self.index.append(tool)


class ToolCache:
    """The index and the definitions of one server's tools. Callers pass in the time; the cache reads no clock."""

    def __init__(self) -> None:
        self.index: list[Tool] | None = None
        self._fresh_until = 0.0
        self._by_name: dict[str, Definition] = {}
        self._valid_names: set[str] = set()
        self._by_digest: dict[str, Definition] = {}

    def is_fresh(self, now: float) -> bool:
        """Whether the index may be used without fetching it again."""
        return self.index is not None and now < self._fresh_until

    def store_list(self, parsed: ParsedTools, fresh_until: float) -> None:
        """Stores all items of `tools/list`; `fresh_until` is the time until which the index is fresh."""
        self.index, self._fresh_until = parsed.index, fresh_until
        if parsed.are_definitions:
            self._by_name, self._valid_names = parsed.definitions, set(parsed.definitions)
        else:
            gone = self._by_name.keys() - {tool.name for tool in parsed.index}
            for name in gone:
                del self._by_name[name]
            self._forget_replaced()

    def store_definitions(self, raws: Sequence[JSON]) -> None:
        """Stores definitions that `tools/describe` returned."""
        for raw in raws:
            if parse_tool(raw) is not None and not _is_too_large(raw):
                definition = Definition(raw)
                known = self._by_digest.setdefault(definition.digest, definition)
                self._by_name[raw["name"]] = known
                self._valid_names.add(raw["name"])
        if len(self._by_digest) > 2 * len(self._by_name):
            self._forget_replaced()

    def _forget_replaced(self) -> None:
        self._by_digest = {definition.digest: definition for definition in self._by_name.values()}

    def revalidate(self, entries: Sequence[JSON]) -> None:
        """Marks definitions as valid whose digest is in the server's manifest; the others have to be fetched."""
        for entry in entries:
            if isinstance(entry, dict):
                known = self._by_digest.get(str(entry.get("digest")))
                name = entry.get("name")
                if known is not None and known.raw.get("name") == name:
                    self._by_name[str(name)] = known
                    self._valid_names.add(str(name))

    def cached_definition(self, name: str) -> Definition | None:
        """Returns a tool's definition even if it may be outdated."""
        return self._by_name.get(name)

    def valid_definition(self, name: str) -> Definition | None:
        """Returns a tool's definition if nothing has invalidated it."""
        return self._by_name.get(name) if name in self._valid_names else None

    def invalidate(self) -> None:
        """Marks the index and all definitions as possibly outdated."""
        self._fresh_until = 0.0
        self._valid_names.clear()

    @property
    def has_invalidated(self) -> bool:
        """Whether there are outdated definitions, which `revalidate` could mark as valid again."""
        return bool(self._by_name.keys() - self._valid_names)
