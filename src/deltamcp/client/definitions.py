"""Tools as a client knows them: an index, definitions as they came, and how long both may be believed. Pure."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from deltamcp.catalog import param_headers, prose
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical_json import encode_canonical
from deltamcp.wire.digest import sha256_digest


class Tool(msgspec.Struct, frozen=True):
    """A line of the index."""

    name: str
    summary: str
    """At most 60 characters: the server's own, or the first sentence of its description."""
    title: str | None = None


class Definition:
    """One tool, whole: `raw` is the object the server sent."""

    def __init__(self, raw: dict[str, JSON]) -> None:
        self.raw = raw

    def copy(self) -> dict[str, JSON]:
        """One that may be changed."""
        made: dict[str, JSON] = jsonrpc.decode(jsonrpc.encode(self.raw))
        return made

    @functools.cached_property
    def digest(self) -> str:
        """What it is known by (SEP-2636)."""
        return sha256_digest(encode_canonical(self.raw))

    @functools.cached_property
    def parameter_headers(self) -> tuple[ParameterHeader, ...]:
        """
        Raises:
            ConfigurationError: its `x-mcp-header` annotations are not right.
        """
        schema = self.raw.get("inputSchema")
        return param_headers.declared_headers(str(self.raw["name"]), schema) if isinstance(schema, dict) else ()

    @functools.cached_property
    def _validator(self) -> ForeignSchema | None:
        schema = self.raw.get("inputSchema")
        return ForeignSchema(schema) if isinstance(schema, dict) else None

    @functools.cached_property
    def _required_names(self) -> frozenset[str]:
        schema: Any = self.raw.get("inputSchema")
        required = schema.get("required") if isinstance(schema, dict) else None
        return (
            frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()
        )

    def check_arguments(self, arguments: dict[str, JSON]) -> tuple[dict[str, JSON], list[str]]:
        """The arguments as they are to be sent, and what of them the schema does not admit.

        One that is null, where the schema admits no null and does not require it, is left out: that is what models
        mean by it.
        """
        try:
            if self._validator is None or self._validator.is_valid(arguments):
                return arguments, []
        except (ValueError, RecursionError):
            return arguments, ["The arguments cannot be written as JSON."]
        kept = {name: value for name, value in arguments.items() if value is not None or name in self._required_names}
        return kept, self._validator.problems(kept)

    def has_hint(self, name: str) -> bool:
        """One of its `annotations`."""
        annotations = self.raw.get("annotations")
        return isinstance(annotations, dict) and annotations.get(name) is True

    @property
    def is_repeatable(self) -> bool:
        """Whether calling it twice does no more than calling it once, as it says itself."""
        return self.has_hint("readOnlyHint") or self.has_hint("idempotentHint")


def parse_tool(raw: Any) -> Tool | None:
    """An item of `tools/list` as a line of the index; None where it has no name to be called by."""
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        return None
    description, title = raw.get("description"), raw.get("title")
    summary = prose.summary(description) if isinstance(description, str) else ""
    return Tool(raw["name"], summary, title if isinstance(title, str) else None)


class ToolCache:
    """What is known of a server's tools. Times are given by whoever asks: nothing here looks at a clock."""

    def __init__(self) -> None:
        self.index: list[Tool] | None = None
        self._fresh_until = 0.0
        self._by_name: dict[str, Definition] = {}
        self._valid_names: set[str] = set()
        self._by_digest: dict[str, Definition] = {}

    def is_fresh(self, now: float) -> bool:
        """Whether the index can be used as it is."""
        return self.index is not None and now < self._fresh_until

    def store_list(
        self, items: Iterable[JSON], fresh_until: float, are_definitions: bool, mirrors_arguments: bool
    ) -> list[str]:
        """A whole `tools/list`; the names of tools that were left out, each with the reason.

        `whole` says that the items are definitions and not only lines of an index, `mirrors` that calls go over
        HTTP: only there does an `x-mcp-header` that is not right rule a tool out (MCP 2026-07-28, "Custom Headers").
        """
        index: list[Tool] = []
        known: dict[str, Definition] = {}
        left_out: list[str] = []
        for raw in items:
            tool = parse_tool(raw)
            if tool is None:
                left_out.append("an item that is no tool")
                continue
            if are_definitions:
                definition = Definition(raw)
                try:
                    if mirrors_arguments:
                        _ = definition.parameter_headers
                except ConfigurationError as error:
                    left_out.append(str(error))
                    continue
                known[tool.name] = definition
            index.append(tool)
        self.index, self._fresh_until = index, fresh_until
        if are_definitions:
            self._by_name, self._valid_names = known, set(known)
        else:
            gone = self._by_name.keys() - {tool.name for tool in index}
            for name in gone:
                del self._by_name[name]
            self._by_digest = {definition.digest: definition for definition in self._by_name.values()}
        return left_out

    def store_definitions(self, raws: Sequence[JSON]) -> None:
        """What `tools/describe` gave."""
        for raw in raws:
            if parse_tool(raw) is not None:
                definition = Definition(raw)
                known = self._by_digest.setdefault(definition.digest, definition)
                self._by_name[raw["name"]] = known
                self._valid_names.add(raw["name"])

    def revalidate(self, entries: Sequence[JSON]) -> None:
        """What the manifest says is still so is believed again; the rest is to be fetched."""
        for said in entries:
            if isinstance(said, dict):
                known = self._by_digest.get(str(said.get("digest")))
                name = said.get("name")
                if known is not None and known.raw.get("name") == name:
                    self._by_name[str(name)] = known
                    self._valid_names.add(str(name))

    def cached_definition(self, name: str) -> Definition | None:
        """A definition, however old."""
        return self._by_name.get(name)

    def valid_definition(self, name: str) -> Definition | None:
        """A definition that nothing speaks against."""
        return self._by_name.get(name) if name in self._valid_names else None

    def invalidate(self) -> None:
        """The list has changed, or may have."""
        self._fresh_until = 0.0
        self._valid_names.clear()

    @property
    def has_invalidated(self) -> bool:
        """Whether there are definitions that a manifest could vouch for."""
        return bool(self._by_name.keys() - self._valid_names)
