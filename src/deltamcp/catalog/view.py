"""What one caller sees of the catalogue: the operations its scopes allow, found, listed and counted."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any

import msgspec

from deltamcp import tokens
from deltamcp.catalog import meta_tools, render
from deltamcp.catalog.directory import Directory
from deltamcp.catalog.disclosure import Costs, Disclosure
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.operation_resources import OperationResources
from deltamcp.catalog.prompt import Prompt
from deltamcp.catalog.resource import Resource
from deltamcp.catalog.search.index import Index
from deltamcp.results.policy import Shaping
from deltamcp.values import JSON, Kind, Manifest, Page, Surface

RESOURCES_A_PAGE = 100
"""Where operations are listed as resources and no page size was set."""

_MEASURED = 64
"""Operations whose schema texts are counted for the mean."""


class Shelves(msgspec.Struct, frozen=True):
    """What a server offers besides operations, the same for every caller."""

    resources: Mapping[str, Resource]
    templates: Mapping[str, Resource]
    prompts: Mapping[str, Prompt]


class View:
    """Lists in the order of registration, the same bytes until something changes; then another view takes its place."""

    def __init__(
        self,
        operations: Mapping[str, Operation],
        shelves: Shelves,
        disclosure: Disclosure,
        scheme: str,
        page_size: int | None,
        index: Callable[[], Index],
        shared: bool,
        shaping: Shaping | None,
    ) -> None:
        """`shared` tells that every caller has this view, `shaping` how the server wants results to fit."""
        self.operations = operations
        self._shelves = shelves
        self._disclosure = disclosure
        self._scheme = scheme
        self._page_size = page_size
        self._index = index
        self._shared = shared
        self._shaping = shaping
        self._pages: dict[tuple[Kind, Surface, int, bool], Page] = {}

    # Finding

    def find(self, name: str) -> Operation | None:
        """By id, dotted or slashed, or by tool name."""
        return self._by_id.get(name) or self.operations.get(name) or self._by_id.get(name.replace("/", "."))

    @functools.cached_property
    def _by_id(self) -> dict[str, Operation]:
        return {operation.id: operation for operation in self.operations.values()}

    @property
    def ids(self) -> Collection[str]:
        return self._by_id.keys()

    @functools.cached_property
    def directory(self) -> Directory:
        return Directory(self.operations.values())

    @functools.cached_property
    def resources(self) -> OperationResources | None:
        """Operations as resources, where they stand behind meta-tools."""
        return OperationResources(self._scheme, self.directory) if self.surface is Surface.META else None

    def search(self, queries: list[str], limit: int, among: Set[str]) -> list[Operation]:
        """The best for each query, best first, of those among which one is sought."""
        index = self._index()
        hits = index.search(queries, limit, None if len(among) == len(index) else among)
        return [self.operations[hit.id] for hit in hits if hit.id in self.operations]

    def nearest(self, name: str, among: Iterable[str]) -> list[str]:
        """Up to three names one may have meant."""
        from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

        found = process.extract(name, list(among), processor=str.casefold, limit=3, score_cutoff=60)
        return [match for match, _, _ in found]

    def nearest_ids(self, name: str) -> list[str]:
        """The ids one may have meant, whether by id or by tool name."""
        known = self._by_id | dict(self.operations)
        return list(dict.fromkeys(known[near].id for near in self.nearest(name, known)))

    # The surface

    @functools.cached_property
    def surface(self) -> Surface:
        """What a client sees that did not ask for anything else."""
        if len(self.operations) < self._disclosure.minimum:
            return Surface.FULL
        match self._disclosure.surface:
            case "full":
                return Surface.FULL
            case "meta":
                return Surface.META
            case "auto":
                return self.costs.cheaper

    @functools.cached_property
    def costs(self) -> Costs:
        """What each surface of this catalogue costs."""
        operations = list(self.operations.values())
        every = max(1, len(operations) // _MEASURED)
        texts = [tokens.count(render.noted(operation.tool, operation.id)) for operation in operations[::every]]
        return Costs(
            full=tokens.count(as_seen(operation.tool for operation in operations)),
            meta=tokens.count(as_seen(self._meta_definitions.values())),
            overview=tokens.count(self.directory.overview),
            schema=sum(texts) / len(texts) if texts else 0.0,
        )

    @functools.cached_property
    def _meta_definitions(self) -> dict[str, dict[str, JSON]]:
        return meta_tools.tools(self.directory, self._disclosure.before, self._disclosure.query, self._told_shaping)

    @property
    def _told_shaping(self) -> Shaping:
        """What the meta-tools tell of: whatever one of the operations does."""
        deltas = any(operation.shaping and operation.shaping.deltas for operation in self.operations.values())
        return msgspec.structs.replace(self.shaping, deltas=deltas or self.shaping.deltas)

    @property
    def shaping(self) -> Shaping:
        """How results are made to fit where their operation does not say."""
        return self._shaping or Shaping()

    @property
    def bounds(self) -> bool:
        """Whether results may be cut, so that there is something to read on in."""
        return self.surface is Surface.META or bool(self._read_on)

    @functools.cached_property
    def _read_on(self) -> list[dict[str, JSON]]:
        """The one meta-tool that plain tools need, where their results may be cut."""
        if not any(operation.shaping for operation in self.operations.values()):
            return []
        return [meta_tools.tool(Meta.CONTINUE, self._disclosure.before, self._told_shaping)]

    @functools.cached_property
    def meta_tools(self) -> dict[str, Meta]:
        """The meta-tools that can be called by name. A request may ask for a budget, so one always can read on."""
        if self.surface is not Surface.META:
            return {self.called(Meta.CONTINUE): Meta.CONTINUE}
        return {self.called(meta): meta for meta in Meta if self.called(meta) in self._meta_definitions}

    def definition(self, name: str) -> dict[str, JSON] | None:
        """A listed tool, or an operation behind one, whole."""
        operation = self.operations.get(name)
        if operation is not None:
            return operation.tool
        listed = self._meta_definitions.values() if self.surface is Surface.META else self._read_on
        return next((tool for tool in listed if tool["name"] == name), None)

    def called(self, meta: Meta) -> str:
        """What a meta-tool is called here."""
        return f"{self._disclosure.before}{meta.value}"

    # Lists

    def page(self, kind: Kind, surface: Surface, cursor: str | None, whole: bool = False) -> Page | None:
        """One page of a list, or all of it; None where the cursor is not one of ours."""
        start = _start(cursor)
        if start is None:
            return None
        key = (kind, surface, start, whole)
        page = self._pages.get(key)
        if page is None:
            page = self._make_page(kind, surface, start, None if whole else self._size(kind))
            if page is not None:
                self._pages[key] = page
        return page

    def _size(self, kind: Kind) -> int | None:
        if self._page_size is None and kind is Kind.RESOURCES and self.resources is not None:
            return RESOURCES_A_PAGE
        return self._page_size

    def _make_page(self, kind: Kind, surface: Surface, start: int, size: int | None) -> Page | None:
        items = self._items(kind, surface)
        if start > len(items) or (start and size is None):
            return None
        end = len(items) if size is None else start + size
        # The same request gives another list to who declares another capability, which a cache does not look at.
        public = self._shared and surface is not Surface.PROGRESSIVE
        return Page(kind, tuple(items[start:end]), str(end) if end < len(items) else None, {}, public)

    def _items(self, kind: Kind, surface: Surface) -> list[dict[str, JSON]]:
        match kind:
            case Kind.TOOLS:
                return self._tools(surface)
            case Kind.RESOURCES:
                listed = [resource.listed for resource in self._shelves.resources.values()]
                return listed if self.resources is None else listed + self.resources.listed()
            case Kind.TEMPLATES:
                listed = [template.listed for template in self._shelves.templates.values()]
                if self.resources is not None:
                    listed.append(self.resources.template())
                return [*listed, results_template(self._scheme)] if self.bounds else listed
            case Kind.PROMPTS:
                return [prompt.listed for prompt in self._shelves.prompts.values()]

    def _tools(self, surface: Surface) -> list[dict[str, JSON]]:
        operations = self.operations.values()
        match surface:
            case Surface.FULL:
                return [*(operation.tool for operation in operations), *self._read_on]
            case Surface.PROGRESSIVE:
                listed = [{"name": operation.name, "description": operation.summary} for operation in operations]
                return [*listed, *({"name": tool["name"], "description": tool["title"]} for tool in self._read_on)]
            case Surface.META:
                pinned = [operation.tool for operation in operations if operation.pinned]
                return [*self._meta_definitions.values(), *pinned]

    def manifest(self, cursor: str | None) -> Manifest | None:
        """SEP-2636: every tool by digest and size; None where the cursor is not one of ours."""
        start = _start(cursor)
        entries = [operation.entry for operation in self.operations.values()]
        if start is None or start > len(entries) or (start and self._page_size is None):
            return None
        end = len(entries) if self._page_size is None else start + self._page_size
        return Manifest(entries[start:end], str(end) if end < len(entries) else None, self._shared)


def results_template(scheme: str) -> dict[str, JSON]:
    """Results that were shown in part, as resources."""
    return {
        "uriTemplate": f"{scheme}://results/{{handle}}{{+path}}",
        "name": "result",
        "description": "A result that was shown in part: whole, or what is at a JSON Pointer in it",
    }


def did_you_mean(names: list[str]) -> str:
    """The sentence that follows a name nobody knows; nothing where none is near."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


def as_seen(listed: Iterable[Mapping[str, Any]]) -> str:
    """Tools as a host puts them before a model: name, description and schema, as compact JSON."""
    seen = [
        {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}
        for tool in listed
    ]
    return msgspec.json.encode(seen).decode()


def _start(cursor: str | None) -> int | None:
    if cursor is None:
        return 0
    return int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else None
