"""The items that a server offers, its own and those of servers that are mounted in it."""

import copy
import functools
import importlib.util
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from deltamcp.calls.middleware import Origin, ServerHooks, mount_chain
from deltamcp.catalog.catalog import Catalog, Mount, Rules, Visibility, VisibilityRule, is_shown
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.function import registration
from deltamcp.catalog.items.operation import Operation, is_dotted_path
from deltamcp.catalog.items.prompt import Completer, Prompt
from deltamcp.catalog.items.resource import Resource
from deltamcp.errors import ConfigurationError
from deltamcp.results.policy import ResultPolicy
from deltamcp.runtime.change_hub import Change, ChangeHub, OwnChange
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.values import Kind, Principal

T = TypeVar("T", bound=Operation | Resource | Prompt)
logger: logging.Logger = logging.getLogger("deltamcp")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
"""MCP 2025-11-25, "Tool Names"; hosts refuse other names."""

CompletionKey = tuple[str, str, str]
"""`"prompt"` or `"template"`, its name, and the argument."""


ItemTools: TypeAlias = Callable[[Kind, Mapping[str, object]], Iterable[Operation]]
"""Makes the tools that reach items of a kind, as far as their names are free."""


class _MountPoint(NamedTuple):
    """A server that another is mounted in, and the names it has there."""

    items: "ServerItems"
    mount: Mount


class _Replacement(NamedTuple):
    """Operations of one server, and those that come in their place."""

    items: "ServerItems"
    catalog: Catalog
    old: list[Operation]
    new: list[Operation]


class _VisibleRules(NamedTuple):
    """The rules for a principal, by server, and whether other principals have others."""

    by_server: tuple[tuple[Visibility, Rules], ...]
    differs: bool


class ServerSurface(NamedTuple):
    """How the items of a server are shown, and how their results are fitted to a budget."""

    disclosure: Disclosure
    results: ResultPolicy | None


class ServerItems:
    """The operations, resources, prompts and completions of one server, its own and those of mounted servers."""

    def __init__(
        self,
        catalog: Catalog,
        hooks: ServerHooks,
        hub: ChangeHub,
        results: ResultPolicy | None,
        strict: bool,
        item_tools: ItemTools | None,
    ) -> None:
        """
        Args:
            results: The server's result policy.
            strict: Whether to refuse an operation whose summary is too long.
            item_tools: Makes tools that reach resources and prompts, if the server is to have them.
        """
        self._item_tools = item_tools
        self._catalog = catalog
        self._hooks = hooks
        self._hub = hub
        self._results = results
        self._strict = strict
        self._mounted: list[ServerItems] = []
        self._mount_points: list[_MountPoint] = []

    def add(self, item: Operation | Resource | Prompt) -> None:
        """Adds an item.

        Raises:
            ConfigurationError: the name, the URI, the id or the summary is not allowed here or where this is mounted.
        """
        if isinstance(item, Operation):
            self._check(item)
        kind = self._catalog.add(item)
        self.announce(kind)
        try:
            for mount_point in self._mount_points:
                mount_point.items.add(self._mounted_item(item, mount_point.mount))
        except ConfigurationError:
            self.remove(kind, _item_name(item))
            raise
        if self._item_tools is not None:
            for operation in self._item_tools(kind, self._catalog.operations):
                self.add(operation)

    def remove(self, kind: Kind, name: str) -> None:
        """Removes an item by its name or URI.

        Raises:
            ConfigurationError: there is none.
        """
        item = self._catalog.remove(kind, name)
        self.announce(kind)
        for items, mount in self._mount_points:
            items.remove_mounted(item, kind, mount.name(kind, name))

    def remove_mounted(self, item: Operation | Resource | Prompt, kind: Kind, name: str) -> None:
        """Removes an item that was made from an item of a mounted server, if it is there."""
        if self.mounted_copy(item, kind, name) is not None:
            self.remove(kind, name)

    def mounted_copy(
        self, item: Operation | Resource | Prompt, kind: Kind, name: str
    ) -> Operation | Resource | Prompt | None:
        """Returns what has this name if it was made from this item of a mounted server."""
        mounted = self._catalog.get(kind, name)
        origin = None if mounted is None else mounted.origin
        return mounted if isinstance(origin, Origin) and origin.item is item else None

    def replace_operations(self, old_names: list[str], operations: list[Operation]) -> None:
        """Removes some operations and adds others, also where this is mounted; on an error nothing changes anywhere.

        Raises:
            ConfigurationError: as `add`.
        """
        replaced = [self._catalog.operations[name] for name in old_names if name in self._catalog.operations]
        replacements = list(self.replacements(replaced, operations))
        snapshots = [(replacement.catalog, replacement.catalog.snapshot()) for replacement in replacements]
        try:
            for replacement in replacements:
                replacement.catalog.replace([operation.name for operation in replacement.old], replacement.new)
        except ConfigurationError:
            for catalog, snapshot in snapshots:
                catalog.restore(snapshot)
            raise
        for replacement in replacements:
            replacement.items.announce(Kind.TOOLS)

    def replacements(self, old: list[Operation], new: list[Operation]) -> "Iterator[_Replacement]":
        """Yields what is replaced here, and then in every server that this one is mounted in, at any depth.

        What an outer server has removed, it does not get again.

        Raises:
            ConfigurationError: a new operation is not allowed in one of the servers.
        """
        for operation in new:
            self._check(operation)
        yield _Replacement(self, self._catalog, old, new)
        for items, mount in self._mount_points:
            mounted = [(item, items.mounted_copy(item, Kind.TOOLS, mount.name(Kind.TOOLS, item.name))) for item in old]
            removed = {item.name for item, outer in mounted if outer is None}
            yield from items.replacements(
                [outer for _, outer in mounted if isinstance(outer, Operation)],
                [self._mounted_item(operation, mount) for operation in new if operation.name not in removed],
            )

    def replace_items(
        self, old: Sequence[Operation | Resource | Prompt], new: Sequence[Operation | Resource | Prompt]
    ) -> None:
        """Removes some items and adds others, in one step for clients; those that are in both stay.

        The lists have the new items in the order given.

        Raises:
            ConfigurationError: as `add`; then operations are as before.
        """
        kept = {id(item) for item in old} & {id(item) for item in new}
        gone = [item for item in old if id(item) not in kept]
        added = [item for item in new if id(item) not in kept]
        gone_names = [item.name for item in gone if isinstance(item, Operation)]
        operations = [item for item in added if isinstance(item, Operation)]
        if gone_names or operations:
            self.replace_operations(gone_names, operations)
        for item in gone:
            if not isinstance(item, Operation) and self._catalog.get(_kind(item), _item_name(item)) is item:
                self.remove(_kind(item), _item_name(item))
        for item in added:
            if not isinstance(item, Operation):
                self.add(item)
        self._catalog.sort([(_kind(item), _item_name(item)) for item in new])

    def prepare_replacement(
        self,
        old: Sequence[Operation | Resource | Prompt],
        new: Sequence[Operation | Resource | Prompt],
        surface: ServerSurface | None = None,
    ) -> Callable[[], None]:
        """Does the work of `replace_items`; what it returns makes the change, on the event loop and in no time.

        The caller may use any thread. With a `surface` the items are shown in another way from then on; no operation
        may be in both lists then.

        Raises:
            ConfigurationError: as `replace_items`; then nothing has changed.
        """
        if self._mount_points:
            return functools.partial(self._replace, old, new, surface)
        version = self._catalog.version
        drafted = _DraftedItems(
            self._catalog.draft(), self._hooks, self._hub, self._results, self._strict, self._item_tools
        )
        drafted._replace(old, new, surface)

        def change() -> None:
            if self._catalog.version != version:  # somebody else has changed it meanwhile
                self._replace(old, new, surface)
                return
            self._catalog.take_over(drafted.catalog)
            self._results = self._results if surface is None else surface.results
            for kind in drafted.announced:
                self.announce(kind)

        return change

    def _replace(
        self,
        old: Sequence[Operation | Resource | Prompt],
        new: Sequence[Operation | Resource | Prompt],
        surface: ServerSurface | None,
    ) -> None:
        if surface is not None:
            self._results = surface.results
            self._catalog.change_surface(*surface)
            self.announce(Kind.TOOLS)
            self.announce(Kind.RESOURCES)  # operations are resources behind meta-tools alone
        self.replace_items(old, new)

    def make_catalog(self, items: Sequence[Operation | Resource | Prompt]) -> Catalog:
        """Returns a catalog of other items, for principals that are offered those in place of the server's own.

        An item that is not allowed is left out. The caller may use any thread.
        """
        catalog = self._catalog.empty_copy()
        for item in items:
            try:
                if isinstance(item, Operation) and self._catalog.operations.get(item.name) is not item:
                    self._check(item)
                catalog.add(item)
            except ConfigurationError as error:
                logger.warning("an item is left out of what a principal is offered: %s", error)
        self._catalog.gives_promises = self._catalog.gives_promises or catalog.gives_promises
        return catalog

    def add_completer(self, key: CompletionKey, completer: Completer) -> None:
        self._catalog.completions[key] = completer
        for mount_point in self._mount_points:
            self._mount_completer(mount_point, key, completer)

    def set_absences(self, absences: Mapping[str, str]) -> None:
        """Sets what is said to those who name a tool, by its name or id, or a prompt that is not offered."""
        self._catalog.absences.clear()
        self._catalog.absences.update(absences)

    # Mounts

    def mount(self, other: "ServerItems", prefix: str) -> None:
        """Adds the items of another server, now and whenever that server gets new ones.

        Raises:
            ConfigurationError: a name is taken, the servers would contain each other, or this server runs already.
        """
        mount_point = _MountPoint(self, Mount(prefix))
        if self in other.servers():
            raise ConfigurationError("A server cannot be mounted in itself, nor in a server that is mounted in it.")
        if self.is_running():
            raise ConfigurationError("Mount servers before the server runs, as their lifespans start with its own.")
        other.add_mount_point(mount_point)
        self._mounted.append(other)
        if any(server.visibility.has_rules for server in other.servers()):
            self.hide_items()

    def add_mount_point(self, mount_point: _MountPoint) -> None:
        """Adds all items to a server that this one is mounted in, or none of them.

        Raises:
            ConfigurationError: as `add`.
        """
        added: list[tuple[Kind, Operation | Resource | Prompt]] = []
        try:
            for kind, item in self._catalog.items():
                with registration(item.function, "server.mount({})", may_yield=True):
                    mount_point.items.add(self._mounted_item(item, mount_point.mount))
                added.append((kind, item))
        except ConfigurationError:
            for kind, item in added:
                mount_point.items.remove_mounted(item, kind, mount_point.mount.name(kind, _item_name(item)))
            raise
        for key, completer in self._catalog.completions.items():
            self._mount_completer(mount_point, key, completer)
        self._mount_points.append(mount_point)
        mount_point.items.ask_mounted(self._catalog, self._hub, mount_point.mount, self._found)

    def ask_mounted(
        self, catalog: Catalog, hub: ChangeHub, mount: Mount, found: Callable[[Mount, Resource], Resource]
    ) -> None:
        """Asks a mounted server about what it has beside its items, and tells it what clients watch."""
        self._catalog.add_mounted(catalog, mount, functools.partial(found, mount))
        self._hub.add_mounted(hub, mount.inner_uri)

    @property
    def is_mounted(self) -> bool:
        return bool(self._mount_points)

    def servers(self) -> "Iterator[ServerItems]":
        """Returns this server's items and those of the servers that are mounted in it, at any depth."""
        yield self
        for mounted in self._mounted:
            yield from mounted.servers()

    def is_running(self) -> bool:
        """Whether this server runs, or one that it is mounted in."""
        return self.lifespan.started or any(mount_point.items.is_running() for mount_point in self._mount_points)

    @property
    def mounted_lifespans(self) -> list[ServerLifespan]:
        return [mounted.lifespan for mounted in self._mounted]

    @property
    def lifespan(self) -> ServerLifespan:
        return self._hooks.lifespan

    def _mounted_item(self, item: T, mount: Mount) -> T:
        mounted = mount.item(item, self._results)
        mounted.origin = Origin(item, self._hooks, mount.uri)
        return mounted

    def _found(self, mount: Mount, resource: Resource) -> Resource:
        """Returns a resource that is not listed, and was found by its own URI, as one of a server around this."""
        placed = copy.copy(resource)
        placed.origin = Origin(resource, self._hooks, mount.uri)
        return placed

    def _mount_completer(self, mount_point: _MountPoint, key: CompletionKey, completer: Completer) -> None:
        mounted = copy.copy(completer)
        mounted.origin = Origin(completer, self._hooks, mount_point.mount.uri)
        noun, target, argument = key
        name = mount_point.mount.name(Kind.PROMPTS if noun == "prompt" else Kind.TEMPLATES, target)
        mount_point.items.add_completer((noun, name, argument), mounted)

    # Visibility

    @property
    def visibility(self) -> Visibility:
        return self._hooks.visibility

    def show(self, rule: VisibilityRule, principal: Principal | None) -> None:
        """Shows or hides what a rule fits, here and where this is mounted; to all, or to one principal."""
        self.visibility.add(rule, principal)
        self.hide_items()
        self.announce_to(principal, {kind for kind, item in self._catalog.items() if rule.fits(*_labels(item))})

    def show_all(self, principal: Principal | None) -> None:
        """Shows everything again; to a principal, what is shown to others."""
        self.visibility.reset(principal)
        self.announce_to(principal, {kind for kind, _ in self._catalog.items()})

    def hide_items(self) -> None:
        """Has the catalogs ask which items are shown, from the first rule on."""
        self._catalog.visibility = self
        for mount_point in self._mount_points:
            mount_point.items.hide_items()

    def announce_to(self, principal: Principal | None, kinds: Collection[Kind]) -> None:
        """Notifies the clients of all, or those of a principal, here and where this is mounted."""
        if self._catalog.disclosure.surface != "full" and Kind.TOOLS in kinds:
            kinds = {*kinds, Kind.RESOURCES}
        for kind in kinds:
            self._publish(kind if principal is None else OwnChange(principal.owner, kind))
        for mount_point in self._mount_points:
            mount_point.items.announce_to(principal, kinds)

    @property
    def differs(self) -> bool:
        """Whether principals may see different items."""
        return any(server.visibility.differs for server in self.servers())

    def rules_for(self, principal: Principal) -> _VisibleRules:
        """Returns the rules for a principal, of this server and those that are mounted in it."""
        return _VisibleRules(
            tuple((server.visibility, server.visibility.rules(principal)) for server in self.servers()), self.differs
        )

    def shows(self, item: Operation | Resource | Prompt, rules: _VisibleRules) -> bool:
        """Returns whether every server shows an item that is on the way to the item's own."""
        by_server = dict(rules.by_server)
        return all(
            is_shown(by_server[origin.hooks.visibility], *_labels(origin.item))
            for origin in mount_chain(item, self._hooks)
            if not isinstance(origin.item, Completer)
        )

    # Changes

    def announce(self, kind: Kind) -> None:
        """Notifies this server's own clients that a list has changed."""
        self._publish(kind)
        if kind is Kind.TOOLS and self._catalog.disclosure.surface != "full":
            self._publish(Kind.RESOURCES)  # operations are listed as resources too

    def _publish(self, change: Change) -> None:
        self._hub.publish(change, self.lifespan.loop)

    def list_changed(self, kind: Kind) -> None:
        """Notifies clients of a changed list. The caller may use any thread."""
        self._publish(kind)
        for mount_point in self._mount_points:
            mount_point.items.list_changed(kind)

    def resource_updated(self, uri: str) -> None:
        """Notifies clients of a changed resource. The caller may use any thread."""
        self._publish(uri)
        for mount_point in self._mount_points:
            mount_point.items.resource_updated(mount_point.mount.uri(uri))

    # Checks

    def _check(self, operation: Operation) -> None:
        if not _NAME.fullmatch(operation.name):
            raise ConfigurationError(
                f"the tool name {operation.name!r} must be 1 to 128 letters, digits, '_', '-' or '.'; pass name=..."
            )
        in_tree = operation.id != operation.name or self._catalog.disclosure.surface != "full"
        if in_tree and not is_dotted_path(operation.id):
            raise ConfigurationError(
                f"the id {operation.id!r} of {operation.name!r} must be words of letters, digits, '_' or '-', joined "
                "by dots; pass category=... and action=..."
            )
        if operation.is_summary_too_long and self._strict:
            raise ConfigurationError(
                f'Tool "{operation.name}" description exceeds 60 chars in summary mode; pass a shorter summary=...'
            )
        if operation.promise_policy != "never" and not can_queue_promises():
            raise ConfigurationError(f"promise={operation.promise_policy!r} needs: pip install 'delta-mcp[promises]'.")
        # Behind meta-tools `execute` takes the root of an earlier result, so the operations need not.
        operation.resolve_result_policy(self._results, flat=self._catalog.disclosure.surface != "meta")


class _DraftedItems(ServerItems):
    """The items of a draft of a catalog, whose changes are announced when it is taken over."""

    def __init__(self, catalog: Catalog, *options: Any) -> None:
        super().__init__(catalog, *options)
        self.catalog = catalog
        self.announced: dict[Kind, None] = {}

    def announce(self, kind: Kind) -> None:
        self.announced[kind] = None


@functools.cache
def can_queue_promises() -> bool:
    """Whether the package that queues promises is installed; to import it takes half a second."""
    return importlib.util.find_spec("docket") is not None


def warn_of_cut_summaries(operations: list[Operation]) -> None:
    """Logs which operations have a summary that is cut inside a sentence."""
    cut = [operation.name for operation in operations if operation.is_summary_cut]
    if cut:
        shown = ", ".join(cut[:5]) + (f" and {len(cut) - 5} more" if len(cut) > 5 else "")
        logger.warning("the first sentence is cut to 60 characters in the index: give a `summary` to %s", shown)


def _kind(item: Operation | Resource | Prompt) -> Kind:
    if isinstance(item, Operation):
        return Kind.TOOLS
    if isinstance(item, Prompt):
        return Kind.PROMPTS
    return Kind.RESOURCES if item.template is None else Kind.TEMPLATES


def _item_name(item: Operation | Resource | Prompt) -> str:
    return item.uri if isinstance(item, Resource) else item.name


def _labels(item: Operation | Resource | Prompt) -> tuple[set[str], frozenset[str]]:
    """Returns what rules of visibility know an item by: its names and its tags."""
    if isinstance(item, Resource):
        return {item.uri, str(item.list_item.get("name"))}, item.tags
    return {item.name}, item.tags
