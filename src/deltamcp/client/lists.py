"""Fetches a server's lists on demand, in as few requests as the server allows, and caches its tools."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from deltamcp.catalog import param_headers
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.catalog.text import prose
from deltamcp.client.connector import Connector
from deltamcp.client.links.link import TotalSize, size_of
from deltamcp.errors import FAULTS, ClientError, ConfigurationError, Fault, PeerError
from deltamcp.results import reference
from deltamcp.results.policy import QUERY_KEY
from deltamcp.values import JSON, PROMISES_KEY, Era
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical import encode_canonical, sha256_digest
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
"""The size of the largest definition; values count as in `links/link.py`. The largest known have 100 kB."""
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
        self.are_definitions: bool = are_definitions
        self._mirrors_arguments = mirrors_arguments
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


logger: logging.Logger = logging.getLogger("deltamcp")

_MAX_PAGES = 10_000
"""How many pages of one list the client fetches before it gives up."""
_MIN_PAGE_BYTES = 1024
"""The size that a page counts at least, so that a list of empty pages ends, too."""
_MAX_TOOLS_AT_ONCE = 200
"""How many tools the client reads before other tasks get their turn, some 5 ms."""
_MAX_REASONS = 3
"""For how many of the tools that it leaves out the client logs why."""
_MAX_DESCRIBED_AT_ONCE = 64
_FIRST_DESCRIBED = 16
"""How many definitions are asked for first; of how many further answers have depends on the size of the last."""
_DESCRIBED_BYTES = 500_000
"""An answer about so large is read in some 10 ms, in which nothing else happens in a process."""
"""How many requests the client sends at once to a server that describes one tool per request."""
_MAX_ATTEMPTS = 3
"""How often the client fetches the definitions of a list that changes meanwhile."""
_FOREVER = float("inf")
_MAX_TTL_MS = 10**12
_MAX_SUGGESTIONS = 3
_MAX_COMPARED, _MAX_NAME_CHARS = 10_000, 200
"""How many names, and how long ones, the client compares with a name that does not exist."""


_MAX_REASON_CHARS = 500
"""Of what a server says of a tool that it does not have now."""


class ServerLists:
    """The lists of one server."""

    def __init__(self, connector: Connector, cache_seconds: float, max_bytes: int) -> None:
        """
        Args:
            cache_seconds: how long a list is valid if the server neither gives a TTL nor notifies of changes.
            max_bytes: the size of the largest list.
        """
        self._connector, self._max_bytes = connector, max_bytes
        self._cache_seconds = cache_seconds
        self._tool_cache = ToolCache()
        self._fetch_lock = asyncio.Lock()
        self.receives_changes = False
        """Whether the client receives the server's notifications of changed lists."""
        self._ttls: dict[str, float] = {}
        """By method, for how many seconds the server says that the list is valid which was fetched last."""
        self.continue_tool: str | None = None
        """The name of the server's `continue` tool, if a reply has told it."""
        self.operation_ids: Mapping[str, str] = {}
        """The ids that the server's last manifest gave, by tool name, where they differ."""

    def cached_definition(self, name: str) -> Definition | None:
        return self._tool_cache.cached_definition(name)

    def is_valid(self, name: str) -> bool:
        return self._tool_cache.valid_definition(name) is not None

    def is_current(self, name: str) -> bool:
        """Whether the cached definition of a tool is neither invalidated nor expired."""
        return self.is_valid(name) and self._tool_cache.is_fresh(asyncio.get_running_loop().time())

    def invalidate(self) -> None:
        """Marks the cached tools as possibly outdated."""
        self._tool_cache.invalidate()

    async def index(self) -> list[Tool]:
        await self._refresh_index()
        return list(self._tool_cache.index or ())

    async def definition(self, name: str) -> Definition | None:
        """Returns a tool's valid definition, fetching it if needed; None if the server has no such tool."""
        cached = self._tool_cache.valid_definition(name)
        if cached is not None or "tools" not in self._connector.server.capabilities:
            return cached
        try:
            return (await self.definitions((name,)))[0]
        except (UnknownToolError, PeerError):
            return None

    async def definitions(self, names: Sequence[str]) -> list[Definition]:
        """Returns the named tools' definitions, in this order; every tool's if no name is given.

        Raises:
            UnknownToolError: the server has no such tool.
        """
        if not self._is_progressive:
            if not names or not all(map(self.is_valid, names)):
                await self._refresh_index(force=bool(names))
            return [
                self._require_definition(name) for name in names or [tool.name for tool in self._tool_cache.index or ()]
            ]
        if not names:
            names = [tool.name for tool in await self.index()]
        try:
            async with self._fetch_lock:
                if self._tool_cache.has_invalidated and self._has_manifest:
                    self._tool_cache.revalidate(await self.fetch_all("tools/manifest", "entries"))
                await self._describe([name for name in dict.fromkeys(names) if not self.is_valid(name)])
        except UnknownToolError as error:
            await self._refresh_index()  # for the names to suggest
            raise self._unknown_tool_error(error.tool, error.reason) from None
        return [self._require_definition(name) for name in names]

    @property
    def _is_progressive(self) -> bool:
        """Whether this server lists names and summaries and has `tools/describe`."""
        server = self._connector.server
        tools = server.capabilities.get("tools")
        if server.is_delta:
            return (
                self._connector.is_progressive and isinstance(tools, dict) and bool(tools.get("progressiveDisclosure"))
            )
        return self._connector.is_progressive and server.progressive is not None

    @property
    def _has_manifest(self) -> bool:
        return (self._connector.server.progressive or {}).get("manifest") is True

    async def _describe(self, names: list[str]) -> None:
        async for definitions in self._definition_batches(names):
            self._tool_cache.store_definitions(definitions)

    async def _definition_batches(self, names: Sequence[str]) -> AsyncGenerator[list[JSON], None]:
        """Yields the definitions of tools, as many at a time as one request may ask for.

        Raises:
            UnknownToolError: the server has no such tool.
        """
        settings: Any = (self._connector.server.progressive or {}).get("describe")
        max_names = settings.get("maxNames") if isinstance(settings, dict) else None
        total = TotalSize("The answer to tools/describe", self._max_bytes)
        if not isinstance(max_names, int) or max_names < 1:
            # The original Delta-MCP describes one tool per request.
            for start in range(0, len(names), _MAX_DESCRIBED_AT_ONCE):
                batch = names[start : start + _MAX_DESCRIBED_AT_ONCE]
                definitions = await asyncio.gather(*map(self._describe_one, batch))
                total.add(jsonrpc.encode(definitions))
                yield [*definitions]
            return
        start, count = 0, min(max_names, _FIRST_DESCRIBED)
        while start < len(names):
            batch = names[start : start + count]
            start += count
            try:
                result = await self._connector.request("tools/describe", {"names": batch})
            except PeerError as error:
                unknown = error.data.get("unknownNames") if isinstance(error.data, dict) else None
                if isinstance(unknown, list) and unknown:
                    reasons: Any = error.data.get("reasons") if isinstance(error.data, dict) else None
                    reason = reasons.get(unknown[0]) if isinstance(reasons, dict) else None
                    raise self._unknown_tool_error(str(unknown[0]), str(reason or "")) from None
                raise
            body = jsonrpc.encode(result)
            total.add(body)
            count = max(1, min(max_names, count * _DESCRIBED_BYTES // max(len(body), 1)))
            tools = result.get("tools")
            yield tools if isinstance(tools, list) else []

    async def _describe_one(self, name: str) -> dict[str, JSON]:
        try:
            return await self._connector.request("tools/describe", {"name": name})
        except PeerError as error:
            if error.code != FAULTS[Fault.NOT_FOUND].handshake:
                raise
            raise self._unknown_tool_error(name) from None

    def _require_definition(self, name: str) -> Definition:
        definition = self._tool_cache.cached_definition(name)
        if definition is None:
            raise self._unknown_tool_error(name)
        return definition

    def _unknown_tool_error(self, name: str, reason: str = "") -> "UnknownToolError":
        """`reason` is the server's, if it says why it does not have the tool now."""
        if reason:
            return UnknownToolError(name, f"{name} cannot be called now. {reason[:_MAX_REASON_CHARS]}", reason)
        from rapidfuzz import process

        listed = [tool.name for tool in self._tool_cache.index or ()]
        candidates = [known for known in listed[:_MAX_COMPARED] if len(known) <= _MAX_NAME_CHARS]
        similar = [match for match, *_ in process.extract(name, candidates, limit=_MAX_SUGGESTIONS, score_cutoff=65)]
        if similar:
            text = f"There is no tool {name!r}; did you mean {' or '.join(similar)}?"
            return UnknownToolError(name, text, similar=similar)
        return UnknownToolError(name, f"There is no tool {name!r} among the {len(listed)} there are.")

    async def _refresh_index(self, force: bool = False) -> None:
        now = asyncio.get_running_loop().time
        if self._tool_cache.is_fresh(now()) and not force:
            return
        async with self._fetch_lock:
            if self._tool_cache.is_fresh(now()):  # another task has refreshed it while this one waited for the lock
                return
            ttls: list[float] = []
            parsed = await self.fetch_tools(ttls)
            self._tool_cache.store_list(parsed, now() + min(ttls, default=_FOREVER))

    async def fetch_tools(self, ttls: list[float] | None = None) -> ParsedTools:
        """Fetches the list of tools, and does not keep it; `ttls` as of `fetch_all`."""
        items = await self.fetch_all("tools/list", "tools", ttls) if self._has_tools else []
        are_summaries = self._is_progressive and not all(
            isinstance(item, dict) and "inputSchema" in item for item in items
        )
        parsed = ParsedTools(not are_summaries, self._connector.mirrors_arguments)
        for start in range(0, len(items), _MAX_TOOLS_AT_ONCE):
            parsed.add(items[start : start + _MAX_TOOLS_AT_ONCE])
            await asyncio.sleep(0)
        self._tell_left_out(parsed)
        return parsed

    @staticmethod
    def _tell_left_out(parsed: ParsedTools) -> None:
        for reason in parsed.left_out[:_MAX_REASONS]:
            logger.warning("a tool was left out of the list: %s", reason)
        if len(parsed.left_out) > _MAX_REASONS:
            logger.warning("%d more tools were left out of the list", len(parsed.left_out) - _MAX_REASONS)

    async def fetch_operations(self) -> ParsedTools:
        """Fetches the definitions of all that the server can call, and does not keep them.

        A server with a manifest may list meta-tools in place of its operations, which the manifest names.
        """
        if not (self._has_tools and self._has_manifest):
            return await self.fetch_tools()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._fetch_named_by_manifest()
            except UnknownToolError:  # it was removed meanwhile
                if attempt == _MAX_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _fetch_named_by_manifest(self) -> ParsedTools:
        entries = [entry for entry in await self.fetch_all("tools/manifest", "entries") if isinstance(entry, dict)]
        names = [name for entry in entries if isinstance(name := entry.get("name"), str) and name]
        parsed = ParsedTools(are_definitions=True, mirrors_arguments=self._connector.mirrors_arguments)
        async with contextlib.aclosing(self._definition_batches(names)) as batches:
            async for definitions in batches:
                parsed.add(definitions)
        self._tell_left_out(parsed)
        self.operation_ids = {
            str(entry["name"]): id_ for entry in entries if "name" in entry and isinstance(id_ := entry.get("id"), str)
        }
        return parsed

    @property
    def _has_tools(self) -> bool:
        return "tools" in self._connector.server.capabilities

    async def fetch_offered(self, capability: str, method: str, key: str) -> list[dict[str, JSON]]:
        """Fetches all items of a list; none if the server does not declare the capability or know the method."""
        if capability not in self._connector.server.capabilities:
            return []
        try:
            return [item for item in await self.fetch_all(method, key) if isinstance(item, dict)]
        except PeerError as error:
            if error.code != FAULTS[Fault.UNKNOWN_METHOD].handshake:
                raise
            return []

    async def fetch_all(self, method: str, key: str, ttls: list[float] | None = None) -> list[dict[str, JSON]]:
        """Fetches all pages of a list and returns their items; appends each page's TTL in seconds to `ttls`.

        Raises:
            ClientError: the list has no end, or is too large.
        """
        items: list[dict[str, JSON]] = []
        cursor: str | None = None
        seen: set[str] = set()
        total = TotalSize(f"The answer to {method}", self._max_bytes)
        self._ttls.pop(method, None)
        for _ in range(_MAX_PAGES):
            result = await self._connector.request(method, {} if cursor is None else {"cursor": cursor})
            total.add(jsonrpc.encode(result), _MIN_PAGE_BYTES)
            page = result.get(key)
            items += page if isinstance(page, list) else []
            if ttls is not None:
                ttls.append(self._ttl_seconds(result))
            if (given := self._given_ttl_seconds(result)) is not None:
                self._ttls[method] = min(given, self._ttls.get(method, given))
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return items
            if cursor in seen:
                raise ClientError(f"{method} has no end: its pages lead back to themselves.")
            seen.add(cursor)
        raise ClientError(f"{method} has more than {_MAX_PAGES} pages; that is no list to read to its end.")

    def _ttl_seconds(self, result: dict[str, JSON]) -> float:
        """Returns how long a page of a list is valid: for ever if the server notifies of changes, else `ttlMs`.

        MCP 2026-07-28, "Caching".
        """
        server = self._connector.server
        if self.receives_changes and server.changes("tools"):
            return _FOREVER
        given = self._given_ttl_seconds(result)
        if given is not None:
            return given
        return self._cache_seconds if server.era is Era.HANDSHAKE or server.is_lite else 0.0

    def _given_ttl_seconds(self, result: dict[str, JSON]) -> float | None:
        ttl_ms = result.get("ttlMs")
        if not isinstance(ttl_ms, int | float) or self._connector.server.era is not Era.MODERN:
            return None
        return max(0.0, min(ttl_ms, _MAX_TTL_MS) / 1000)

    @property
    def ttl_seconds(self) -> float | None:
        """For how long the lists that were fetched last are valid; None if the server notifies of changes, or does not
        say."""
        changes = self._connector.server.changes
        ttls = (seconds for method, seconds in self._ttls.items() if not changes(method.partition("/")[0]))
        return min(ttls, default=None)

    async def continue_tool_name(self) -> str:
        """Returns the name of the server's `continue` tool, which reads the rest of a stored result."""
        if self.continue_tool is not None:
            return self.continue_tool
        names = [tool.name for tool in await self.index()]
        return next((name for name in names if name == "continue" or name.endswith("_continue")), "continue")


class UnknownToolError(ClientError):
    """The server has no tool of this name."""

    def __init__(self, tool: str, message: str, reason: str = "", similar: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.tool: str = tool
        self.reason: str = reason
        self.similar: Sequence[str] = similar
