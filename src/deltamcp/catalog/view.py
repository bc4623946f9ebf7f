"""The view that one caller has of the catalog: finds, lists and counts the operations its scopes allow."""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Set
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote

import msgspec

from deltamcp import tokens
from deltamcp.catalog import meta_tools
from deltamcp.catalog.directory import NO_NOTICES, Category, Directory, ServerNotices
from deltamcp.catalog.disclosure import Disclosure, SurfaceCosts, definition_tokens
from deltamcp.catalog.items.operation import REDEEM_DEFINITION, Operation, is_lite_name, normalize_id
from deltamcp.catalog.items.prompt import Completer, Prompt
from deltamcp.catalog.items.resource import LooseUriTemplate, Resource
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.search.words import SimilarNames
from deltamcp.catalog.text import tool_text
from deltamcp.errors import MissingScopesError
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.values import JSON, Kind, Manifest, Page, Principal, ResultShape, Surface
from deltamcp.work import Work

if TYPE_CHECKING:
    from deltamcp.catalog.search.index import Hit, SearchIndex


MAX_LISTED_OPERATIONS = 500
"""With more operations, only the index, the categories and a template are listed."""

_JSON = "application/json"


class OperationResources:
    """Lists and reads the resources of a directory of operations."""

    def __init__(self, scheme: str, directory: Directory) -> None:
        self._base = f"{scheme}://operations/"
        self._directory = directory

    def list_resources(self) -> list[dict[str, JSON]]:
        """Lists the index first, then each category and its operations."""
        size = self._directory.size
        index = {
            "uri": f"{self._base}index",
            "name": "operations",
            "description": f"The tree of all {size} operations",
            "mimeType": _JSON,
        }
        return [index, *self._list_category(self._directory.root, size <= MAX_LISTED_OPERATIONS)]

    def _list_category(self, category: Category, list_operations: bool) -> Iterator[dict[str, JSON]]:
        for action, operation in category.operations.items() if list_operations else ():
            uri = self.uri(f"{category.path}.{action}".lstrip("."))
            item = {"uri": uri, "name": operation.name, "mimeType": _JSON}
            summary = category.summaries.of(operation)
            yield {**item, "description": summary} if summary else item
        for child in category.children.values():
            count = len(child.all_operations())
            yield {
                "uri": self.uri(child.path),
                "name": child.path,
                "description": f"{count} operation{'s' if count != 1 else ''}",
                "mimeType": _JSON,
            }
            yield from self._list_category(child, list_operations)

    def template(self) -> dict[str, JSON]:
        """Returns the template that reaches every category and operation by its path."""
        return {
            "uriTemplate": f"{self._base}{{+path}}",
            "name": "operation",
            "description": "A category of operations or the schema of one: category/action",
            "mimeType": _JSON,
        }

    def read(self, uri: str, schema: Callable[[Operation], JSON], work: Work) -> JSON | None:
        """Reads the index, category or operation at a URI; None where there is none.

        Raises:
            WorkLimitError: there are too many operations.
        """
        path = self.parse_uri(uri)
        if path is None:
            return None
        if path == "index":
            return {"operations": self._directory.root.json_tree(work)}
        *above, last = path.split("/")
        category = self._directory.category_at(".".join(above))
        if category is not None and last in category.children:
            return {"operations": category.children[last].json_tree(work)}
        if category is not None and last in category.operations:
            return schema(category.operations[last])
        return None

    def parse_uri(self, uri: str) -> str | None:
        """Returns the decoded path after `operations/`; None where the URI does not belong to these resources."""
        if not uri.startswith(self._base):
            return None
        segments = [unquote(segment) for segment in uri.removeprefix(self._base).strip("/").split("/")]
        # An encoded slash would split a segment in two, and `..` would leave the tree.
        unsafe = any(segment in ("", ".", "..") or "/" in segment for segment in segments)
        return None if unsafe else normalize_id("/".join(segments))

    def uri(self, id_: str) -> str:
        """Returns the URI of an operation or a category."""
        return self._base + quote(id_.replace(".", "/"))


class WithheldOperations:
    """Says which scopes a caller lacks for the operations that it names."""

    def __init__(self, operations: Mapping[str, Operation], granted: frozenset[str]) -> None:
        """`operations` by their names; `granted`: the scopes that the caller has."""
        self._operations = operations
        self.granted = granted

    def __bool__(self) -> bool:
        return bool(self._operations)

    @functools.cached_property
    def _by_id(self) -> dict[str, Operation]:
        return {operation.id: operation for operation in self._operations.values()}

    def find(self, name: str) -> Operation | None:
        """Finds an operation by id, with dots or slashes, or by tool name."""
        if not self._operations:
            return None
        return self._operations.get(name) or self._by_id.get(name) or self._by_id.get(name.replace("/", "."))

    def check(self, names: Iterable[str]) -> None:
        """
        Raises:
            MissingScopesError: at least one of the names is that of an operation here; it has what all of them need.
        """
        if not self._operations:
            return
        named = [operation for operation in map(self.find, names) if operation is not None]
        if named:
            needed = frozenset().union(*(operation.scopes for operation in named))
            raise MissingScopesError(", ".join(operation.id for operation in named), needed - self.granted)


RESOURCES_PER_PAGE = 100
"""The page size of `resources/list` where it has operations and the author set no page size."""

_COST_SAMPLE = 64
"""The average cost of a schema is measured on so many operations, or up to twice as many."""

_MAX_COMPARED_CHARS = 200
"""The characters of an unknown name that are compared with known ones."""
_MAX_COMPARED_NAMES = 1000
"""The names that are compared in every way, in up to 3 ms; of more, those that are most alike as a whole."""


class SharedItems(msgspec.Struct, frozen=True):
    """The resources, templates and prompts of a catalog, whatever the scopes of its callers."""

    resources: Mapping[str, Resource]
    templates: Mapping[str, Resource]
    prompts: Mapping[str, Prompt]
    absence: Callable[[str], str] = lambda name: ""
    completions: Mapping[tuple[str, str, str], Completer] = {}
    find_mentioned: Callable[[str, Principal], Resource | None] = lambda uri, principal: None
    find_unlisted: Callable[[str, Principal], Resource | None] = lambda uri, principal: None
    notices: Callable[[Principal], ServerNotices] = lambda principal: NO_NOTICES
    hidden_uris: Set[str] = frozenset()
    """The URIs of resources that are hidden: neither templates nor servers behind this one have them, either."""


class OperationIndex(Protocol):
    """Has the search index of the operations of a catalog, and what the catalog says of all of them."""

    gives_promises: bool

    @property
    def unindexed_count(self) -> int:
        """The number of changes that the index lacks; each takes 0.07 ms at the next search."""
        ...

    def search_index(self) -> "SearchIndex":
        """Applies pending changes to the search index and returns it."""
        ...


class FoundOperation(NamedTuple):
    """An operation that a search found."""

    operation: Operation
    is_weak: bool
    """Whether it is probably not what was meant."""


class View:
    """Lists items in the order of registration. Views do not change: after a change the catalog makes a new one."""

    def __init__(
        self,
        operations: Mapping[str, Operation],
        shared_items: SharedItems,
        disclosure: Disclosure,
        scheme: str,
        page_size: int | None,
        index: OperationIndex,
        shared: bool,
        policy: ResolvedPolicy | None,
        withheld: WithheldOperations = WithheldOperations({}, frozenset()),  # noqa: B008 - it does not change
        content_lines: MutableMapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            index: The catalog.
            shared: Whether every caller has this view, so that caches may share its lists.
            policy: The server's result policy; None where it has none.
            withheld: The operations that the caller may not call, as far as it may know of them.
            content_lines: As of `Directory`.
        """
        self.operations = operations
        self.withheld = withheld
        self.withholds: bool = bool(withheld)
        """Whether there are operations that the caller knows of and may not call."""
        self._shared_items = shared_items
        self._disclosure = disclosure
        self._scheme = scheme
        self._page_size = page_size
        self.index = index
        self._shared = shared
        self._server_policy = policy
        self._content_lines = content_lines
        self._pages: dict[tuple[Kind, Surface, ResultShape, int, bool], Page] = {}

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the caller that some operation needs, by which the view shows what it does."""
        return self.withheld.granted

    # Finding

    def find(self, name: str) -> Operation | None:
        """Finds an operation by id, with dots or slashes, or by tool name."""
        return (
            self._by_id.get(name) or self.operations.get(name) or self._by_id.get(normalize_id(name).replace("/", "."))
        )

    def absence(self, name: str) -> str:
        """Returns why something of this name or id is not offered; empty if there is no such reason."""
        return self._shared_items.absence(name)

    def notices(self, principal: Principal) -> ServerNotices:
        """Returns what a principal is told of servers behind this one that cannot be used now."""
        return self._shared_items.notices(principal)

    def missing_name(self, query: str) -> str:
        """Returns the word of a query that names what is wanted and that no operation has; empty if there is none."""
        index = self.index.search_index()
        return index.missing_name(query, None if len(self.operations) == len(index) else self.operations.keys())

    @property
    def resources(self) -> Mapping[str, Resource]:
        return self._shared_items.resources

    @property
    def templates(self) -> Mapping[str, Resource]:
        return self._shared_items.templates

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        return self._shared_items.prompts

    @property
    def completions(self) -> Mapping[tuple[str, str, str], Completer]:
        """What completes arguments, by "prompt" or "template", its name and the argument."""
        return self._shared_items.completions

    def resource_at(self, uri: str, principal: Principal, work: Work) -> tuple[Resource, dict[str, str]] | None:
        """Finds the resource at a URI, and the values of its template's variables.

        Raises:
            WorkLimitError: too many templates have too many ways to fit.
        """
        items = self._shared_items
        if uri in items.hidden_uris:
            return None
        resource = items.resources.get(uri) or items.find_mentioned(uri, principal)
        if resource is not None:
            return resource, {}
        for template in self._sorted_templates:
            assert template.template is not None, "it is a template"
            values = template.template.match(uri, work)
            if values is not None:
                return template, values
        return None

    @functools.cached_property
    def _sorted_templates(self) -> list[Resource]:
        """Templates that are not understood fit more than they should, so that they come last."""
        return sorted(self.templates.values(), key=lambda one: isinstance(one.template, LooseUriTemplate))

    def find_unlisted(self, uri: str, principal: Principal) -> Resource | None:
        """Finds the resource at a URI that is not listed and that no template fits."""
        items = self._shared_items
        return None if uri in items.hidden_uris else items.find_unlisted(uri, principal)

    @functools.cached_property
    def _by_id(self) -> dict[str, Operation]:
        return {operation.id: operation for operation in self.operations.values()}

    @property
    def ids(self) -> Collection[str]:
        return self._by_id.keys()

    @functools.cached_property
    def directory(self) -> Directory:
        return Directory(self.operations.values(), self._content_lines)

    @functools.cached_property
    def operation_resources(self) -> OperationResources | None:
        """Operations as resources; None where they are listed as plain tools."""
        return OperationResources(self._scheme, self.directory) if self.surface is Surface.META else None

    def search(self, query: str, limit: int, names: Set[str]) -> list[FoundOperation]:
        """Finds the operations among `names` that fit a query, best first, up to where relevance stops."""
        index = self.index.search_index()
        return self.found_operations(index.search(query, limit, None if len(names) == len(index) else names))

    def found_operations(self, hits: "Iterable[Hit]") -> list[FoundOperation]:
        """Returns the operations of a ranking, best first, up to where relevance stops."""
        from deltamcp.catalog.search.index import is_weak, relevant_hits

        visible = [hit for hit in hits if hit.id in self.operations]
        return [FoundOperation(self.operations[hit.id], is_weak(hit)) for hit in relevant_hits(visible)]

    def nearest_names(self, name: str, names: Iterable[str]) -> list[str]:
        """Returns up to three of `names` that are similar to an unknown name."""
        from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a name is wrong

        name, known = name[:_MAX_COMPARED_CHARS].casefold(), list(names)
        compared = [one.casefold() for one in known]  # a `processor` is called twice for each, which takes longer
        if len(compared) > _MAX_COMPARED_NAMES:
            likely = process.extract(name, compared, scorer=fuzz.ratio, limit=_MAX_COMPARED_NAMES)
            known = [known[place] for _, _, place in likely]
            compared = [match for match, _, _ in likely]
        found = process.extract(name, compared, limit=3, score_cutoff=60)
        return [known[place] for _, _, place in found]

    def nearest_ids(self, name: str) -> list[str]:
        """Returns the ids of operations whose id or tool name is similar to an unknown name."""
        known = self._by_id | dict(self.operations)
        return list(dict.fromkeys(known[near].id for near in self.nearest_names(name, known)))

    # The surface

    @functools.cached_property
    def surface(self) -> Surface:
        """The surface for clients that do not ask for another one."""
        if len(self.operations) < self._disclosure.minimum:
            return Surface.FULL
        match self._disclosure.surface:
            case "full":
                return Surface.FULL
            case "meta":
                return Surface.META
            case "auto":
                return self.surface_costs.cheaper

    @functools.cached_property
    def surface_costs(self) -> SurfaceCosts:
        """The cost of each surface of this view."""
        return self.count_surface_costs("o200k")

    def count_surface_costs(self, model: str | float) -> SurfaceCosts:
        """Counts the cost of each surface of this view, as `tokens.count` does for a model."""
        operations = list(self.operations.values())
        step = max(1, len(operations) // _COST_SAMPLE)
        counts = [
            tokens.count(
                tool_text.signature_with_notes(operation.tool, operation.id, examples=operation.examples), model
            )
            for operation in operations[::step]
        ]
        return SurfaceCosts(
            full=sum(definition_tokens(tool, model) for tool in self._definitions(Surface.FULL, ResultShape.MCP)),
            meta=sum(definition_tokens(tool, model) for tool in self._definitions(Surface.META, ResultShape.MCP)),
            overview=tokens.count(self.directory.overview, model),
            schema=sum(counts) / len(counts) if counts else 0.0,
        )

    @functools.cached_property
    def _meta_definitions(self) -> dict[str, dict[str, JSON]]:
        has_pages = any(operation.has_pages and operation.is_read_only for operation in self.operations.values())
        return meta_tools.definitions(self.directory, self._disclosure, self._described_policy, has_pages)

    @property
    def _described_policy(self) -> ResolvedPolicy:
        """The policy that the meta-tools describe: with changes if any operation may answer with changes."""
        deltas = any(
            operation.resolved_policy and operation.resolved_policy.deltas for operation in self.operations.values()
        )
        return msgspec.structs.replace(self.resolved_policy, deltas=deltas or self.resolved_policy.deltas)

    @property
    def resolved_policy(self) -> ResolvedPolicy:
        """The result policy of operations without a policy of their own."""
        return self._server_policy or ResolvedPolicy()

    @property
    def may_cut_results(self) -> bool:
        """Whether results may be cut, so that clients need `continue`."""
        return self.surface is Surface.META or bool(self._continue_definitions)

    @functools.cached_property
    def _continue_definitions(self) -> list[dict[str, JSON]]:
        """The definition of `continue`, which plain tools need where their results may be cut; else none."""
        if not any(operation.resolved_policy for operation in self.operations.values()):
            return []
        tables = any(operation.may_send_tables for operation in self.operations.values())
        policy = msgspec.structs.replace(self._described_policy, tables=tables)
        return [meta_tools.definition(MetaTool.CONTINUE, self._disclosure.meta_tool_prefix, policy)]

    def _listed_continue(self, result_shape: ResultShape) -> list[dict[str, JSON]]:
        """Returns the definition of `continue` for clients that read a handle in a result's text, or in its note.

        Delta-MCP clients read none: programs find it in `_meta`, and `continue` answers them though it is not listed.
        """
        return [] if result_shape is ResultShape.DELTA_MCP else self._continue_definitions

    @functools.cached_property
    def meta_tools(self) -> dict[str, MetaTool]:
        """The callable meta-tools by name. `continue` is always callable, as any request may ask for a budget."""
        if self.surface is not Surface.META:
            return {self.meta_tool_name(MetaTool.CONTINUE): MetaTool.CONTINUE}
        return {
            self.meta_tool_name(meta): meta for meta in MetaTool if self.meta_tool_name(meta) in self._meta_definitions
        }

    def definition(self, name: str, result_shape: ResultShape = ResultShape.MCP) -> dict[str, JSON] | None:
        """Returns the full definition of an operation or a listed meta-tool, for clients of this result shape."""
        operation = self.operations.get(name)
        if operation is not None:
            return operation.definition(result_shape)
        listed = (
            self._meta_definitions.values() if self.surface is Surface.META else self._listed_continue(result_shape)
        )
        if result_shape is ResultShape.MCP_LITE:
            listed = [*self._redeem(), *listed]
        return next((tool for tool in listed if tool["name"] == name), None)

    def running_meta_tool(self, operation: Operation) -> MetaTool:
        """Returns the meta-tool that runs an operation."""
        return meta_tools.running_meta_tool(operation, self._disclosure)

    def meta_tool_name(self, meta: MetaTool) -> str:
        """Returns the name of a meta-tool with its prefix."""
        return f"{self._disclosure.meta_tool_prefix}{meta.value}"

    # Lists

    def page(
        self,
        kind: Kind,
        surface: Surface,
        cursor: str | None,
        whole: bool = False,
        result_shape: ResultShape = ResultShape.MCP,
    ) -> Page | None:
        """Returns one page of a list, or the whole list; None where the cursor is invalid.

        `result_shape` is that of the results the client expects; definitions explain only what the client gets.
        """
        start = _parse_cursor(cursor)
        if start is None:
            return None
        key = (kind, surface, result_shape, start, whole)
        page = self._pages.get(key)
        if page is None:
            page = self._make_page(kind, surface, result_shape, start, None if whole else self._page_size_for(kind))
            if page is not None:
                self._pages[key] = page
        return page

    def _page_size_for(self, kind: Kind) -> int | None:
        if self._page_size is None and kind is Kind.RESOURCES and self.operation_resources is not None:
            return RESOURCES_PER_PAGE
        return self._page_size

    def _make_page(
        self, kind: Kind, surface: Surface, result_shape: ResultShape, start: int, size: int | None
    ) -> Page | None:
        items = self._items(kind, surface, result_shape)
        # Pages are kept, so that only those may be asked for that follow each other.
        if start > len(items) or (start and (size is None or start % size)):
            return None
        end = len(items) if size is None else start + size
        # A cache does not see the client's capabilities, which decide whether a list is progressive.
        public = self._shared and surface is not Surface.PROGRESSIVE
        return Page(kind, tuple(items[start:end]), str(end) if end < len(items) else None, {}, public)

    def _items(self, kind: Kind, surface: Surface, result_shape: ResultShape) -> list[dict[str, JSON]]:
        match kind:
            case Kind.TOOLS:
                return self._definitions(surface, result_shape)
            case Kind.RESOURCES:
                listed = [resource.list_item for resource in self._shared_items.resources.values()]
                return (
                    listed if self.operation_resources is None else listed + self.operation_resources.list_resources()
                )
            case Kind.TEMPLATES:
                listed = [template.list_item for template in self._shared_items.templates.values()]
                if self.operation_resources is not None:
                    listed.append(self.operation_resources.template())
                return [*listed, results_template(self._scheme)] if self.may_cut_results else listed
            case Kind.PROMPTS:
                return [prompt.list_item for prompt in self._shared_items.prompts.values()]

    def _definitions(self, surface: Surface, result_shape: ResultShape) -> list[dict[str, JSON]]:
        operations = self.operations.values()
        if result_shape is ResultShape.MCP_LITE:
            return self._lite_definitions(surface)
        match surface:
            case Surface.FULL:
                return [
                    *(operation.definition(result_shape) for operation in operations),
                    *self._listed_continue(result_shape),
                ]
            case Surface.PROGRESSIVE:
                listed = [{"name": operation.name, "description": operation.summary} for operation in operations]
                return [
                    *listed,
                    *(
                        {"name": tool["name"], "description": tool["title"]}
                        for tool in self._listed_continue(result_shape)
                    ),
                ]
            case Surface.META:
                pinned = [operation.tool for operation in operations if operation.pinned]
                return [*self._meta_definitions.values(), *pinned]

    # MCP-lite

    @functools.cached_property
    def gives_promises(self) -> bool:
        """Whether the server may answer a call of an operation with a promise."""
        return any(operation.promise_policy != "never" for operation in self.operations.values())

    def redeems_promises(self, tool: str) -> bool:
        """Whether a tool of MCP-lite's own redeems promises: also those of operations that are gone."""
        return self.gives_promises or (self.index.gives_promises and tool not in self.operations)

    def _lite_definitions(self, surface: Surface) -> list[dict[str, JSON]]:
        operations = [operation for operation in self.operations.values() if is_lite_name(operation.name)]
        if surface is Surface.META:
            pinned = [operation for operation in operations if operation.pinned]
            return [*self._redeem(), *self._meta_definitions.values(), *_lite_items(pinned, surface)]
        return [*self._redeem(), *_lite_items(operations, surface), *self._continue_definitions]

    def _redeem(self) -> list[dict[str, JSON]]:
        return [REDEEM_DEFINITION] if self.gives_promises else []

    def lite_page(self, operations: Iterable[Operation], surface: Surface) -> Page:
        """Returns a list of some operations on one page."""
        listed = [operation for operation in operations if is_lite_name(operation.name)]
        return Page(Kind.TOOLS, (*self._redeem(), *_lite_items(listed, surface)), None, {}, public=False)

    @property
    def lite_names(self) -> list[str]:
        """The names of the tools that MCP-lite lists, `redeem` first."""
        return self._similar_names.names

    def similar_names(self, name: str, limit: int) -> list[tuple[str, float]]:
        """Returns those of `lite_names` that are most like an unknown name, and how much from 0 to 1, best first."""
        return self._similar_names.rank(name, limit)

    @functools.cached_property
    def _similar_names(self) -> SimilarNames:
        return SimilarNames([tool["name"] for tool in self._lite_definitions(Surface.FULL)])

    def manifest(self, cursor: str | None, result_shape: ResultShape = ResultShape.MCP) -> Manifest | None:
        """Returns the manifest of SEP-2636: each tool's digest and size; None where the cursor is invalid."""
        start = _parse_cursor(cursor)
        entries = [operation.manifest_entry(result_shape) for operation in self.operations.values()]
        if start is None or start > len(entries) or (start and self._page_size is None):
            return None
        end = len(entries) if self._page_size is None else start + self._page_size
        return Manifest(entries[start:end], str(end) if end < len(entries) else None, self._shared)


def _lite_items(operations: Iterable[Operation], surface: Surface) -> list[dict[str, JSON]]:
    shape = ResultShape.MCP_LITE
    if surface is Surface.PROGRESSIVE:
        return [operation.lite_index_entry for operation in operations]
    return [operation.definition(shape) for operation in operations]


def results_template(scheme: str) -> dict[str, JSON]:
    """Returns the resource template for results that were shown in part."""
    return {
        "uriTemplate": f"{scheme}://results/{{handle}}{{+path}}",
        "name": "result",
        "description": "A result that was shown in part: whole, or what is at a JSON Pointer in it",
    }


def did_you_mean(names: list[str]) -> str:
    """Returns the suggestion that follows an unknown name; empty where no name is similar."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


def _parse_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return 0
    return int(cursor) if len(cursor) < 10 and cursor.isascii() and cursor.isdigit() else None
