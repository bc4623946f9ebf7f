"""The catalog of one server and those mounted in it: looks up operations, resources and prompts by name or URI."""

import copy
import functools
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from deltamcp.catalog.directory import NO_NOTICES, ServerNotices
from deltamcp.catalog.disclosure import Disclosure, uri_scheme
from deltamcp.catalog.items.function import source_line
from deltamcp.catalog.items.operation import REDEEM, Operation, is_dotted_path, is_id_segment
from deltamcp.catalog.items.prompt import Completer, Prompt
from deltamcp.catalog.items.resource import Resource, split_scheme
from deltamcp.catalog.meta_tools import MetaTool, offered_meta_tools
from deltamcp.catalog.view import SharedItems, View, WithheldOperations
from deltamcp.errors import ConfigurationError
from deltamcp.results.policy import ResultPolicy, resolve_policy
from deltamcp.values import LOCAL, Kind, Principal

if TYPE_CHECKING:
    from deltamcp.catalog.search.index import SearchIndex


_CHANGED_BY_OPERATIONS = {"operations", "version", "_ids", "_categories", "_scopes", "_views", "_unindexed"}
_CHANGED_BY_ITEMS = {
    *("resources", "templates", "prompts", "_may_cut_results", "disclosure", "_resolved_policy", "gives_promises"),
    *(_CHANGED_BY_OPERATIONS - {"version"}),
}
T = TypeVar("T", bound=Operation | Resource | Prompt)
_MAX_VIEWS = 64
"""The number of cached views; there is one for each set of scopes in use."""


class Mount:
    """Adds a prefix to names, ids and URIs; an empty prefix leaves them as they are."""

    def __init__(self, prefix: str) -> None:
        """
        Raises:
            ConfigurationError: the prefix cannot be a part of an id.
        """
        if not isinstance(prefix, str) or (prefix and not (prefix.isascii() and is_id_segment(prefix))):
            raise ConfigurationError(f"The prefix {prefix!r} must be up to 64 letters a to z, digits, '_' or '-'.")
        self._prefix = prefix

    def name(self, kind: Kind, name: str) -> str:
        """Returns the name of a tool or a prompt, or the URI of a resource or a template."""
        if kind in (Kind.RESOURCES, Kind.TEMPLATES):
            return self.uri(name)
        return f"{self._prefix}_{name}" if self._prefix else name

    def uri(self, uri: str) -> str:
        """Returns a URI with the prefix as the first segment after the scheme, which may have a meaning of its own."""
        if not self._prefix:
            return uri
        scheme, rest = split_scheme(uri)
        return f"{scheme}{self._prefix}/{rest}"

    def inner_uri(self, uri: str) -> str | None:
        """Returns the URI that the mounted server has for one of here; None if it has none."""
        if not self._prefix:
            return uri
        scheme, rest = split_scheme(uri)
        return scheme + rest.removeprefix(f"{self._prefix}/") if rest.startswith(f"{self._prefix}/") else None

    def inner_name(self, name: str) -> str | None:
        """Returns the name or id that the mounted server has for one of here; None if it has none."""
        if not self._prefix:
            return name
        ends = tuple(f"{self._prefix}{end}" for end in "_./")
        return name[len(self._prefix) + 1 :] if name.startswith(ends) else None

    def category(self, category: str) -> str:
        """Returns where a category of the mounted server is here."""
        return f"{self._prefix}.{category}" if self._prefix else category

    def item(self, item: T, policy: ResultPolicy | None) -> T:
        """Returns the item with its name in the other server; `policy` is the mounted server's result policy."""
        mounted: Operation | Resource | Prompt
        if isinstance(item, Operation):
            name = self.name(Kind.TOOLS, item.name)
            id_ = f"{self._prefix}.{item.id}" if self._prefix else item.id
            # Only a tool without a category may have a name that is no path; then it has no category here either.
            mounted = item.with_name(name, id_ if is_dotted_path(id_) else name, policy)
        elif isinstance(item, Prompt):
            mounted = item.with_name(self.name(Kind.PROMPTS, item.name))
        else:
            mounted = item.with_uri(self.uri(item.uri))
        return cast("T", mounted)


class _MountedCatalog(NamedTuple):
    """The catalog of a mounted server, and how what it finds is placed here."""

    catalog: "Catalog"
    mount: Mount
    place: Callable[[Resource], Resource]


_ViewKey = tuple[frozenset[str], frozenset[str], bool, Hashable]


class VisibilityRule(NamedTuple):
    """Shows or hides the items that it fits; without tags and names it fits all."""

    is_shown: bool
    tags: frozenset[str] | None
    """An item fits that has one of them; None if any does."""
    names: frozenset[str] | None
    """Names of tools, prompts and resources, URIs and templates; None if any fits. An item has to fit both."""

    def fits(self, names: Collection[str], tags: frozenset[str]) -> bool:
        return (self.names is None or not self.names.isdisjoint(names)) and (
            self.tags is None or not self.tags.isdisjoint(tags)
        )


Rules: TypeAlias = tuple[VisibilityRule, ...]
"""Rules in the order in which they were given; the last one that fits an item decides."""


def is_shown(rules: Rules, names: Collection[str], tags: frozenset[str]) -> bool:
    """Returns whether an item is shown; without a rule that fits, it is."""
    return next((rule.is_shown for rule in reversed(rules) if rule.fits(names, tags)), True)


def add_rule(rules: Rules, rule: VisibilityRule) -> Rules:
    """Returns rules with one more, without those that it makes meaningless, so that they do not pile up."""
    if rule.tags is None and rule.names is None:
        return (rule,)
    return (*(one for one in rules if (one.tags, one.names) != (rule.tags, rule.names)), rule)


class Visibility:
    """The rules of one server. Threads may add some; whoever reads them sees the rules before or after that."""

    def __init__(self) -> None:
        self._shared: Rules = ()
        self._own: dict[str, Rules] = {}
        """By owner, what comes after the shared rules."""

    @property
    def has_rules(self) -> bool:
        return bool(self._shared or self._own)

    @property
    def differs(self) -> bool:
        """Whether principals may see different items."""
        return bool(self._own)

    def add(self, rule: VisibilityRule, principal: Principal | None) -> None:
        """Adds a rule for all, or for one principal, whose rules come after those for all."""
        if principal is None:
            self._shared = add_rule(self._shared, rule)
        else:
            self._own[principal.owner] = add_rule(self._own.get(principal.owner, ()), rule)

    def reset(self, principal: Principal | None) -> None:
        """Shows everything again; to a principal, what is shown to others."""
        if principal is None:
            self._shared = ()
        else:
            self._own.pop(principal.owner, None)

    def rules(self, principal: Principal) -> Rules:
        """Returns the rules for a principal."""
        own = self._own.get(principal.owner) if self._own else None
        return self._shared if own is None else (*self._shared, *own)


class ItemVisibility(Protocol):
    """Says which items of a server are shown to whom."""

    def rules_for(self, principal: Principal) -> Hashable:
        """Returns what decides for a principal, and whether principals differ; for equal rules views are the same."""
        ...

    def shows(self, item: Operation | Resource | Prompt, rules: Any) -> bool:
        """Returns whether what `rules_for` returned shows an item."""
        ...

    @property
    def differs(self) -> bool:
        """Whether principals may see different items."""
        ...


class Catalog:
    """Registers what a server offers and looks it up in constant time. Each caller sees it through a `View`."""

    def __init__(
        self,
        name: str = "",
        page_size: int | None = None,
        disclosure: Disclosure | None = None,
        results: ResultPolicy | None = None,
    ) -> None:
        self._page_size = page_size
        self.disclosure: Disclosure = disclosure or Disclosure()
        self._resolved_policy = None if results is None else resolve_policy(results)
        self._may_cut_results = results is not None
        self.scheme: str = uri_scheme(self.disclosure.scheme or self.disclosure.prefix or name)
        self.operations: dict[str, Operation] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str, str], Completer] = {}
        self.absences: dict[str, str] = {}
        """By name or id of a tool or a prompt that is not offered: the sentence that whoever names it gets."""
        self._ids: dict[str, str] = {}
        """Names of operations by id."""
        self._categories: Counter[str] = Counter()
        """The number of operations below each category, by dotted path."""
        self._scopes: frozenset[str] = frozenset()
        self._views: dict[_ViewKey | None, View] = {}
        self._unindexed: dict[str, Operation | None] = {}
        self.own: Callable[[Principal], Catalog] | None = None
        """Returns the catalog of a principal, where principals are offered different items; else all see this one."""
        self.prepare: Callable[[Principal], Awaitable[None]] | None = None
        """Makes what `own` returns for a principal, where that takes a while; it is called before each request."""
        self.visibility: ItemVisibility | None = None
        """Hides items, where some may be hidden."""
        self.is_public: bool = True
        """Whether caches may share the lists of callers that see the same."""
        self.instructions: str | None = None
        """A text that tells the model how to use the server."""
        self.find_mentioned: Callable[[str, Principal], Resource | None] = lambda uri, principal: None
        """Finds the resource at a URI that is not listed to a principal, and that it was told of."""
        self.find_unlisted: Callable[[str, Principal], Resource | None] = lambda uri, principal: None
        """Finds the resource at a URI that is not listed to a principal, and that no template fits."""
        self.notices: Callable[[Principal], ServerNotices] = lambda principal: NO_NOTICES
        """Returns what a principal is told of servers behind this one that cannot be used now."""
        self.await_start: Callable[[str, Principal], Awaitable[bool]] | None = None
        """Waits for the server behind this one that an unknown operation would be of, if that is starting; returns
        whether the operation may be known now."""
        self.declares_completions: bool = False
        """Whether items may complete their arguments themselves."""
        self.declared_kinds: frozenset[Kind] = frozenset()
        """The kinds of lists that the server says it has even while they are empty."""
        self.content_lines: MutableMapping[str, str] = {}
        """The lines that summarize what was registered at some time, as `Directory` keeps them."""
        self.version: int = 0
        """Increases with every change."""
        self._mounted: list[_MountedCatalog] = []
        self.gives_promises: bool = False
        """Whether an operation may answer with a promise, or could: what was promised is redeemed when it is gone."""

    def ask_upstreams(
        self,
        find_mentioned: Callable[[str, Principal], Resource | None],
        find_unlisted: Callable[[str, Principal], Resource | None],
        notices: Callable[[Principal], ServerNotices],
        await_start: Callable[[str, Principal], Awaitable[bool]] | None = None,
    ) -> None:
        """Has the catalog ask about what servers behind this one have beside its items; see the attributes."""
        self.find_mentioned, self.find_unlisted = find_mentioned, find_unlisted
        self.notices, self.await_start = notices, await_start

    def add_mounted(self, catalog: "Catalog", mount: Mount, place: Callable[[Resource], Resource]) -> None:
        """Asks the catalog of a mounted server about what servers behind that one have beside their items.

        Args:
            place: Returns a resource of that server as one of this server.
        """
        self._mounted.append(_MountedCatalog(catalog, mount, place))

    def mentioned_resource(self, uri: str, principal: Principal) -> Resource | None:
        """Returns the resource that `find_mentioned` finds, here or in a mounted server."""
        found = self.find_mentioned(uri, principal)
        for catalog, mount, place in () if found is not None else self._mounted:
            # What a server behind this one mentions in a result has its own URI there, without any prefix.
            for inner in dict.fromkeys((mount.inner_uri(uri), uri)):
                mentioned = None if inner is None else catalog.mentioned_resource(inner, principal)
                if mentioned is not None:
                    return place(mentioned)
        return found

    def absence(self, name: str) -> str:
        """Returns why something of this name or id is not offered, here or by a mounted server; empty if for nothing
        that is known."""
        found = self.absences.get(name) or self.absences.get(name.replace("/", ".")) or "" if self.absences else ""
        for catalog, mount, _ in () if found else self._mounted:
            inner = mount.inner_name(name)
            found = found or ("" if inner is None else catalog.absence(inner))
        return found

    def server_notices(self, principal: Principal) -> ServerNotices:
        """Returns what `notices` returns, with the notices of mounted servers."""
        own = self.notices(principal)
        if not self._mounted:
            return own
        texts = own.texts
        for catalog, mount, _ in self._mounted:
            mounted = catalog.server_notices(principal)
            texts |= {mount.category(category): text for category, text in mounted.texts.items()}
        return ServerNotices(texts)

    async def wait_for_start(self, operation: str, principal: Principal) -> bool:
        """Waits as `await_start` does, also for servers behind a mounted one; returns whether one may know it now."""
        if self.await_start is not None and await self.await_start(operation, principal):
            return True
        for catalog, mount, _ in self._mounted:
            name = mount.inner_name(operation)
            if name is not None and await catalog.wait_for_start(name, principal):
                return True
        return False

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of lists that it has even while they are empty, with those of mounted servers."""
        return self.declared_kinds.union(*(one.catalog.kinds for one in self._mounted))

    @property
    def completes(self) -> bool:
        """Whether arguments may be completed, also by items of mounted servers themselves."""
        return (
            bool(self.completions) or self.declares_completions or any(one.catalog.completes for one in self._mounted)
        )

    def tell_principals_apart(
        self, own: "Callable[[Principal], Catalog]", prepare: Callable[[Principal], Awaitable[None]]
    ) -> None:
        """Has principals offered different items.

        Args:
            own: Returns the catalog of a principal.
            prepare: Makes what `own` returns, where that takes a while; it is called before each request.
        """
        self.own, self.prepare = own, prepare
        self.is_public = False
        self._mark_changed()

    def introduce(self, kinds: frozenset[Kind], completes: bool, instructions: str | None) -> None:
        """Says what clients are told beside the items: see `declared_kinds`, `declares_completions`, `instructions`."""
        self.declared_kinds, self.declares_completions, self.instructions = kinds, completes, instructions

    def keep_content_lines(self, lines: MutableMapping[str, str]) -> None:
        """Keeps the lines that summarize what is registered in `lines`, which may have some already."""
        self.content_lines = lines

    def add(self, item: Operation | Resource | Prompt) -> Kind:
        """Registers an item and returns the kind of list it belongs to.

        Raises:
            ConfigurationError: the name or the URI is taken.
        """
        if isinstance(item, Operation):
            if self.disclosure.surface != "full":
                self._check_id(item)
            if item.name == REDEEM or (item.promise_policy != "never" and REDEEM in self.operations):
                self._check_redeem(item)
            if item.resolved_policy is not None and not self._may_cut_results:
                self._may_cut_results = True
                self._check_free(self._reserved_names() & self.operations.keys())
            kind = self._put(self.operations, item.name, item, Kind.TOOLS)
            self._ids[item.id] = item.name
            if "." in item.id:
                self._categories.update(_ancestor_categories(item.id))
            self._unindexed[item.name] = item
            self._scopes |= item.scopes
            self.gives_promises = self.gives_promises or item.promise_policy != "never"
        elif isinstance(item, Prompt):
            kind = self._put(self.prompts, item.name, item, Kind.PROMPTS)
        elif item.template is not None:
            kind = self._put(self.templates, item.uri, item, Kind.TEMPLATES)
        else:
            kind = self._put(self.resources, item.uri, item, Kind.RESOURCES)
        return kind

    def _check_id(self, item: Operation) -> None:
        """Checks that an id is unique: the meta-tools call an operation by its id and place it in the tree by it."""
        taken = self._ids.get(item.id) or self._ids.get(item.name) or self.operations.get(item.id)
        if item.id == "index" or item.id.startswith("index."):
            raise ConfigurationError(
                f"{item.name}: the id 'index' is reserved for the tree; pick another name or category."
            )
        if taken is not None:
            raise ConfigurationError(f"The id {item.id!r} of {item.name!r} is taken; pick another category or action.")
        if item.id in self._categories or any(category in self._ids for category in _ancestor_categories(item.id)):
            raise ConfigurationError(f"{item.id!r} would be an operation and a category at once; rename one.")

    def _check_redeem(self, item: Operation) -> None:
        """Checks that no tool has the name of MCP-lite's own where tools give promises, which it redeems."""
        if any(one.promise_policy != "never" for one in (*self.operations.values(), item)):
            raise ConfigurationError(
                f"{REDEEM!r} is the name by which clients of MCP-lite redeem promises; give that tool another name."
            )

    def _put(self, registry: dict[str, Any], name: str, item: Any, kind: Kind) -> Kind:
        if name in registry:
            raise ConfigurationError(
                f"{name!r} is registered already, by {source_line(registry[name].function)}; "
                "remove it first or pick another name."
            )
        if kind is Kind.TOOLS:
            self._check_free({name} & self._reserved_names())
        registry[name] = item
        self._mark_changed()
        return kind

    def _check_free(self, taken: set[str]) -> None:
        for name in taken:
            raise ConfigurationError(f"{name!r} is a meta-tool's name; pick another, or give the disclosure a prefix.")

    def _reserved_names(self) -> set[str]:
        if self.disclosure.surface == "full":
            return {f"{self.disclosure.meta_tool_prefix}{MetaTool.CONTINUE.value}"} if self._may_cut_results else set()
        return self._meta_tool_names

    @functools.cached_property
    def _meta_tool_names(self) -> set[str]:
        prefix = self.disclosure.meta_tool_prefix
        return {f"{prefix}{meta.value}" for meta in offered_meta_tools(self.disclosure)}

    def change_surface(self, disclosure: Disclosure, results: ResultPolicy | None) -> None:
        """Shows the items in another way; those with results of their own are registered anew."""
        self.disclosure = disclosure
        self._resolved_policy = None if results is None else resolve_policy(results)
        self._may_cut_results = results is not None
        vars(self).pop("_meta_tool_names", None)
        self._mark_changed()

    def items(self) -> list[tuple[Kind, Operation | Resource | Prompt]]:
        """Returns all items with their kinds."""
        return [(kind, item) for kind, registry in self._registries.items() for item in registry.values()]

    def get(self, kind: Kind, name: str) -> Operation | Resource | Prompt | None:
        """Returns the item of a kind with this name or URI."""
        return self._registries[kind].get(name)

    @property
    def _registries(self) -> dict[Kind, dict[str, Any]]:
        return {
            Kind.TOOLS: self.operations,
            Kind.RESOURCES: self.resources,
            Kind.TEMPLATES: self.templates,
            Kind.PROMPTS: self.prompts,
        }

    def remove(self, kind: Kind, name: str) -> Operation | Resource | Prompt:
        """Removes an item and returns it.

        Raises:
            ConfigurationError: no item of this kind has the name.
        """
        registry = self._registries[kind]
        if name not in registry:
            raise ConfigurationError(f"{name!r} is not registered, so it cannot be removed.")
        item: Operation | Resource | Prompt = registry.pop(name)
        if isinstance(item, Operation):
            self._unindexed[name] = None
            if item.scopes:
                self._scopes = frozenset().union(*(other.scopes for other in self.operations.values()))
            self._ids.pop(item.id, None)
            self._categories -= Counter(_ancestor_categories(item.id))
        self._mark_changed()
        return item

    def _mark_changed(self) -> None:
        self.version += 1
        self._views.clear()

    def replace(self, old_names: list[str], new_operations: list[Operation]) -> None:
        """Removes some operations and adds others; on an error nothing changes.

        Raises:
            ConfigurationError: a name is taken by an operation that stays.
        """
        snapshot = self.snapshot()
        try:
            for name in old_names:
                if name in self.operations:
                    self.remove(Kind.TOOLS, name)
            for operation in new_operations:
                self.add(operation)
        except ConfigurationError:
            self.restore(snapshot)
            raise

    def sort(self, names: Iterable[tuple[Kind, str]]) -> None:
        """Lists items in the order given, by kind and name; all others come before them."""
        registries = self._registries
        for kind, name in names:
            if (item := registries[kind].pop(name, None)) is not None:
                registries[kind][name] = item
        self._mark_changed()

    def snapshot(self) -> dict[str, Any]:
        """Returns what `restore` needs to undo later changes of the operations."""
        return {name: copy.copy(value) for name, value in vars(self).items() if name in _CHANGED_BY_OPERATIONS}

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).update(snapshot)

    def draft(self) -> "Catalog":
        """Returns a copy that another thread may change, for `take_over`."""
        made = copy.copy(self)
        made.__dict__.update({name: copy.copy(vars(self)[name]) for name in _CHANGED_BY_ITEMS})
        return made

    def take_over(self, draft: "Catalog") -> None:
        """Has the items that a draft has, from one moment to the next."""
        vars(self).update({name: vars(draft)[name] for name in _CHANGED_BY_ITEMS})
        vars(self).pop("_meta_tool_names", None)
        self._mark_changed()

    def of(self, principal: Principal) -> "Catalog":
        """Returns what a principal is offered, of which its view has what its scopes allow."""
        return self if self.own is None else self.own(principal)

    def view(self, principal: Principal = LOCAL) -> View:
        """Returns the view of a principal."""
        return (self if self.own is None else self.own(principal)).scoped_view(principal)

    def empty_copy(self) -> "Catalog":
        """Returns a catalog for other items of the same server."""
        made = Catalog("", self._page_size, self.disclosure)
        made.scheme, made.is_public, made.visibility = self.scheme, self.is_public, self.visibility
        made._resolved_policy, made._may_cut_results = self._resolved_policy, self._may_cut_results
        made.gives_promises = self.gives_promises
        return made

    def scoped_view(self, principal: Principal) -> View:
        """Returns what the scopes of a principal allow of this catalog, without what is hidden from it."""
        key: _ViewKey | None = None
        if self._scopes or self.visibility is not None:
            key = (
                principal.scopes & self._scopes,
                principal.step_up & self._scopes,
                bool(self._scopes) and principal.is_authenticated,
                None if self.visibility is None else self.visibility.rules_for(principal),
            )
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            view = self._views[key] = self._make_view(*(key or (frozenset(), frozenset(), False, None)))
        return view

    def _make_view(
        self, granted: frozenset[str], step_up: frozenset[str], is_authenticated: bool, rules: Hashable
    ) -> View:
        shows: Callable[[Operation | Resource | Prompt], bool] | None = None
        if self.visibility is not None:
            shows = functools.partial(self.visibility.shows, rules=rules)
        # To a caller that nobody vouches for, what it may not call does not exist.
        known = granted | step_up if is_authenticated else granted
        shown = _select(self.operations, shows)
        visible = {name: item for name, item in shown.items() if item.scopes <= known}
        withheld = {name: item for name, item in shown.items() if not item.scopes <= granted}
        resources = _select(self.resources, shows)
        shared_items = SharedItems(
            resources,
            _select(self.templates, shows),
            _select(self.prompts, shows),
            self.absence,
            self.completions,
            self.mentioned_resource,
            lambda uri, principal: self.find_unlisted(uri, principal),
            self.server_notices,
            frozenset() if shows is None else self.resources.keys() - resources.keys(),
        )
        return View(
            visible,
            shared_items,
            self.disclosure,
            self.scheme,
            self._page_size,
            self,
            self.is_public and not self._scopes and not (self.visibility is not None and self.visibility.differs),
            self._resolved_policy,
            WithheldOperations(withheld if is_authenticated else {}, granted),
            self.content_lines,
        )

    @property
    def unindexed_count(self) -> int:
        """The number of changes that the search index lacks; each takes 0.07 ms at the next search."""
        return len(self._unindexed)

    @functools.cached_property
    def _search_index(self) -> "SearchIndex":
        from deltamcp.catalog.search.index import SearchIndex  # 10 ms of tables, which only a search needs

        return SearchIndex()

    def search_index(self) -> "SearchIndex":
        """Applies pending changes to the search index and returns it."""
        pending, self._unindexed = self._unindexed, {}
        for name, operation in pending.items():
            if operation is None:
                self._search_index.drop(name)
            else:
                tool, group = operation.tool, operation.id.rpartition(".")[0].replace(".", " ")
                if words := (*operation.keywords, *sorted(operation.tags)):
                    tool = {**tool, "description": " ".join([tool.get("description", ""), *words])}
                self._search_index.put(name, tool, group, operation.id)
        return self._search_index

    def registered_label(self, code: types.CodeType) -> str | None:
        """Names the tool, resource or prompt that a function's code belongs to, for reports about it."""
        registries: dict[str, Mapping[str, Operation | Resource | Prompt]] = {
            "tool": self.operations,
            "resource": {**self.resources, **self.templates},
            "prompt": self.prompts,
        }
        for noun, registry in registries.items():
            for name, item in registry.items():
                if getattr(item.function, "__code__", None) is code:
                    return f"The {noun} {name}"
        return None


def _select(items: Mapping[str, T], shows: Callable[[T], bool] | None) -> Mapping[str, T]:
    return items if shows is None else {name: item for name, item in items.items() if shows(item)}


def _ancestor_categories(id_: str) -> list[str]:
    """Returns the categories that contain an id, outermost first."""
    parts = id_.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]
