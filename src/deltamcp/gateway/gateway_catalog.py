"""What a gateway offers: made from what its upstreams list, off the event loop, and changed in one step."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from deltamcp import item_tools
from deltamcp.calls.server_items import ServerSurface, can_queue_promises
from deltamcp.catalog.directory import ServerNotices
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.operation import REDEEM
from deltamcp.catalog.items.resource import MAX_URI_CHARS
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway_upstream import STARTING, GatewayUpstream, status_resource, usability_notice
from deltamcp.gateway.item_names import ascii_segment, distinct_segments
from deltamcp.gateway.live_configuration import LiveConfiguration
from deltamcp.gateway.principal_catalogs import OwnList, OwnOffer, PrincipalCatalogs, SharedOffer, introduce
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.gateway.trust.quarantine import AdmittedItems, PrincipalReviews, Quarantine, item_names
from deltamcp.gateway.trust.review import Verdict
from deltamcp.gateway.upstream_items import Item, ItemKey, UpstreamItems, UpstreamOffer, log_in_operations
from deltamcp.gateway.upstream_resources import (
    ResourceClaims,
    ResourceSubscriptions,
    UnlistedResources,
    UpstreamResource,
)
from deltamcp.runtime.change_hub import Change, OwnChange
from deltamcp.runtime.files import read_own_file, replace_own_file
from deltamcp.runtime.process import collection_paused
from deltamcp.runtime.seal import Seal
from deltamcp.server import DeltaServer
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import LoginUpstream
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import LOCAL, Kind, Principal
from deltamcp.work import Work

_RESERVED_NAMES = frozenset({*(meta.value for meta in MetaTool), REDEEM})
"""The names of tools that the server itself may have."""
_APPROVALS_SECONDS = 2.0
"""Between two looks at whether the user approved something."""

_MAX_LINES, _MAX_LINES_BYTES = 16, 16 * 1024 * 1024
"""The content lines that are kept, of which gateways of several configurations may use one file."""
logger: logging.Logger = logging.getLogger("deltamcp")


class GatewayCatalog:
    """Keeps what a server offers up to date with what upstreams list. It implements `ListingUser`."""

    def __init__(
        self,
        server: DeltaServer,
        config: GatewayConfig,
        upstreams: dict[str, GatewayUpstream],
        approvals: Approvals,
        quarantine: Quarantine,
        seal: Callable[[], Seal],
        live: LiveConfiguration | None,
    ) -> None:
        """
        Args:
            upstreams: Those of the gateway, by name, in the order of its configuration; `change` replaces them.
            seal: Returns what encrypts the logins of principals.
            live: What the status says of the configuration.
        """
        self._server = server
        self._config = config
        self._upstreams = upstreams
        self._approvals = approvals
        self._quarantine = quarantine
        self._seal = seal
        self._claims = ResourceClaims(self.connections, lambda principal: server.engine.catalog.view(principal))
        self._status = status_resource(
            self.connections, self._known_to, self._claims.conflicts, None if live is None else live.describe
        )
        self._unlisted = UnlistedResources(self._claims, self._status)
        self._upstream_items = UpstreamItems(
            _RESERVED_NAMES | (item_tools.NAMES if config.as_tools else frozenset()), self._claims
        )
        self._upstream_items.configure(config.has_prefix, config.results)
        make_catalog = server.items.make_catalog
        # A client of the handshake era is told once what there is; a gateway that follows its files may get all of it.
        self._kinds = frozenset[Kind]() if live is None else frozenset(Kind)
        self._own_offer = OwnOffer(
            upstreams, self._upstream_items, self._claims, self._status, make_catalog, self._notices, self._kinds
        )
        self._principals: PrincipalCatalogs | None = None
        """What principals with logins of their own are offered; None while no upstream has logins."""
        self._subscriptions: ResourceSubscriptions | None = None
        self._items: list[Item] = []
        self._replacing, self._offering = asyncio.Lock(), asyncio.Lock()
        self._has_new_lists = False
        """Whether lists were offered that were not compared with each other yet."""

    def connections(self) -> list[Upstream]:
        """Returns the connections to all upstreams, in the order of the configuration."""
        return [one.connection for one in self._upstreams.values()]

    @property
    def _logins(self) -> list[LoginUpstream]:
        return [one for one in self.connections() if isinstance(one, LoginUpstream)]

    # Its life

    async def open(self, cache_folder: Path | None) -> None:
        """Offers what is known of the upstreams.

        Raises:
            ConfigurationError: users log in at one of them, and the server is mounted in another.
        """
        catalog = self._server.engine.catalog
        if cache_folder is not None:
            catalog.keep_content_lines(StoredContentLines(cache_folder))
        catalog.ask_upstreams(self._claims.find_mentioned, self._unlisted.find, self._notices, self._await_start)
        if self._logins:
            self._tell_principals_apart()
        await self.offer()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows what clients watch, and what the user approves."""
        self._subscriptions = ResourceSubscriptions(
            self._server.engine.hub,
            self._find_resource,
            self._announce,
            tells_principals_apart=self._principals is not None,
        )
        task = asyncio.create_task(self._follow_approvals())
        try:
            async with self._subscriptions.running():
                yield
        finally:
            task.cancel()
            self._subscriptions = None

    def close(self) -> None:
        if self._principals is not None:
            self._principals.close()

    def _tell_principals_apart(self) -> None:
        """Has each principal see what upstreams list with its own login.

        Raises:
            ConfigurationError: the server is mounted in another, whose principals see the same.
        """
        if self._server.items.is_mounted:
            names = ", ".join(one.name for one in self._logins)
            raise ConfigurationError(
                f"Users log in at {names}, so that this gateway cannot be mounted; serve it by itself, or leave out "
                'auth = "oauth".'
            )
        engine, seal = self._server.engine, self._seal()
        self._principals = PrincipalCatalogs(
            self._upstreams,
            PrincipalReviews(self._approvals, engine.store, seal, engine.info["name"]),
            engine.catalog,
            self._own_offer.make,
            self._announce,
            self._look_again,
            lambda: self._config.wait_seconds,
        )
        engine.catalog.tell_principals_apart(self._principals.of, self._principals.prepare)
        configs = [one.config for one in self._upstreams.values() if one.connection.has_logins]
        if can_queue_promises() and any(config.promise != "never" for config in configs):
            self._server.start_promises()

    async def _follow_approvals(self) -> None:
        """Offers what the user approves meanwhile, withdraws what the user rejects, and tells of imitations."""
        while True:
            await asyncio.sleep(_APPROVALS_SECONDS)
            if any(self._quarantine.has_new_approvals(one.config, one.connection) for one in self._upstreams.values()):
                await self.offer()
            if self._principals is not None and self._principals.has_new_approvals():
                self._principals.review_again()
            if self._has_new_lists:
                self._has_new_lists = False
                async with self._offering:
                    await asyncio.to_thread(self._quarantine.tell_imitations, self._offers())

    # What upstreams list

    async def replace_listing(
        self, upstream: GatewayUpstream, listing: UpstreamListing, announced: Collection[Kind]
    ) -> None:
        async with self._replacing:  # what cannot be offered must not be in the way of what another one lists
            known = upstream.use_listing(listing)
            if listing != known:
                try:
                    await self.offer()
                except BaseException:
                    upstream.use_listing(known)
                    raise
            elif announced and self._config.disclosure == "full":
                for kind in announced:  # clients see the upstream's own lists, and are told though these are the same
                    self._server.list_changed(kind)

    def receive_change(self, upstream: GatewayUpstream, principal: Principal, change: Kind | str) -> None:
        if not isinstance(change, Kind):
            if self._subscriptions is not None:
                self._subscriptions.receive(upstream.connection, principal, change)
        elif self._principals is not None:
            self._principals.refresh(upstream.name, principal)

    async def compare_own(self, upstream: GatewayUpstream, principal: Principal) -> Mapping[str, Verdict] | None:
        assert self._principals is not None, "an upstream has logins"
        return await self._principals.compare(upstream.name, principal)

    def _offers(self) -> list[UpstreamOffer]:
        return [offer for one in self._upstreams.values() if (offer := one.offer) is not None]

    async def offer(self) -> None:
        """Offers what the upstreams are known to list; if that is impossible, what they listed before stays."""
        try:
            await self._offer()
        except ConfigurationError as error:
            logger.error("what the servers list now cannot be offered: %s", error)

    async def _offer(self, surface: ServerSurface | None = None) -> None:
        """Offers what the upstreams are known to list: all that changed, at once, when it was made in a thread.

        Raises:
            ConfigurationError: the items cannot be offered together.
        """
        async with self._offering:
            offers = self._offers()
            prepared = await asyncio.to_thread(self._prepare, offers, surface)
            prepared.change()
            self._server.items.set_absences(prepared.admitted.absences)
            texts = prepared.instructions
            introduce(self._server.engine.catalog, offers, len(self._upstreams), texts, self._kinds)
            self._unlisted.ask([offer.upstream for offer in offers if Kind.RESOURCES in offer.listing.kinds])
            if self._principals is not None:
                self._share(self._principals, offers, prepared)
            self._items = prepared.items
            self._has_new_lists = True
        self._look_again()

    def _prepare(self, offers: Sequence[UpstreamOffer], surface: ServerSurface | None) -> "_PreparedOffer":
        """
        Raises:
            ConfigurationError: the items cannot be offered together.
        """
        with collection_paused():
            made = self._upstream_items.update(offers)
            admitted = self._quarantine.admit(offers, made)
            items = [*admitted.items, *self._own_items]
            change = self._server.items.prepare_replacement(self._items, items, surface)
            instructions = {offer.config.name: self._quarantine.instructions(offer) for offer in offers}
        return _PreparedOffer(made, admitted, items, instructions, change)

    @functools.cached_property
    def _own_items(self) -> list[Item]:
        """The gateway's own items, which are the same until its configuration changes."""
        status = [] if self._config.disclosure == "full" else [self._status]
        return [*log_in_operations(self._logins), *status]

    async def change(self, config: GatewayConfig, upstreams: Sequence[tuple[GatewayUpstream, UpstreamConfig]]) -> None:
        """Offers, in one step, what other upstreams list, or the same in another configuration.

        Raises:
            ConfigurationError: it cannot be offered together; then all is as before.
        """
        if self._principals is None and any(one.connection.has_logins for one, _ in upstreams):
            self._tell_principals_apart()
            if self._subscriptions is not None:
                self._subscriptions.tell_principals_apart()
        before = self._config, [(one, one.config) for one in self._upstreams.values()]
        gone = {one.name: one for one in self._upstreams.values() if all(one is not other for other, _ in upstreams)}
        surfaces = _surface(before[0]), _surface(config)
        async with self._replacing:
            self._configure(config, upstreams)
            try:
                await self._offer(surfaces[1] if surfaces[0] != surfaces[1] else None)
            except BaseException:
                self._configure(*before)
                raise
        for name, upstream in gone.items():
            self._claims.forget(name)
            if self._principals is not None:
                self._principals.forget(name)
            if self._subscriptions is not None:
                self._subscriptions.leave(upstream.connection)

    def _configure(self, config: GatewayConfig, upstreams: Sequence[tuple[GatewayUpstream, UpstreamConfig]]) -> None:
        is_shown_anew = _surface(config) != _surface(self._config)
        self._config = config
        self._upstream_items.configure(config.has_prefix, config.results, anew=is_shown_anew)
        self._upstreams.clear()
        for upstream, own_config in upstreams:
            upstream.configure(own_config)
            self._upstreams[upstream.name] = upstream
        vars(self).pop("_own_items", None)

    def _share(
        self, principals: PrincipalCatalogs, offers: Sequence[UpstreamOffer], prepared: "_PreparedOffer"
    ) -> None:
        """Offers principals what does not depend on a login, or on one that is shared with them."""
        offered = {id(item) for item in prepared.admitted.items}
        logins = {offer.config.name for offer in offers if offer.upstream.has_logins}
        withheld = {
            key: one for key, one in prepared.made.items() if id(one) not in offered and key.upstream not in logins
        }
        names = {name for one in withheld.values() for name in item_names(one)}
        self._own_offer.share(
            SharedOffer(
                {offer.config.name: offer for offer in offers if offer.config.name not in logins},
                frozenset(withheld),
                {name: text for name, text in prepared.admitted.absences.items() if name in names},
                prepared.instructions,
                self._own_items,
            )
        )
        principals.share(
            {
                offer.config.name: OwnList(offer.listing, self._quarantine.verdicts(offer.upstream))
                for offer in offers
                if offer.config.name in logins
            }
        )

    # What requests ask

    def _look_again(self, owner: str | None = None) -> None:
        if self._subscriptions is not None:
            self._subscriptions.look_again(owner)

    def _announce(self, change: Change) -> None:
        if isinstance(change, OwnChange):
            self._server.engine.hub.publish(change, asyncio.get_running_loop())
        elif isinstance(change, Kind):
            self._server.list_changed(change)
        else:
            self._server.resource_updated(change)

    def _find_resource(self, uri: str, principal: Principal, work: Work) -> UpstreamResource | None:
        if len(uri) > MAX_URI_CHARS:  # nobody can read it
            return None
        view = self._server.engine.catalog.view(principal)
        found = view.resource_at(uri, principal, work)
        resource = found[0] if found is not None else view.find_unlisted(uri, principal)
        return resource if isinstance(resource, UpstreamResource) else None

    def _known_to(self, upstream: Upstream, principal: Principal) -> UpstreamListing | None:
        """Returns what an upstream is known to list to a principal."""
        if principal is not LOCAL and upstream.has_logins and self._principals is not None:
            return self._principals.listing(upstream.name, principal)
        found = self._upstreams.get(upstream.name)
        return None if found is None else found.listing

    def _notices(self, principal: Principal) -> ServerNotices:
        """Returns what a principal is told of upstreams that it cannot use now."""
        texts, upstreams = dict[str, str](), list(self._upstreams.values())
        segments = self._segments
        for one in upstreams:
            is_own = principal is not LOCAL and one.connection.has_logins and self._principals is not None
            fault = self._principals.fault(one.name, principal) if is_own and self._principals else one.fault
            log_in = f"log_in_{self._login_segments.get(one.name, '')}"
            known = None if one.is_untried else self._known_to(one.connection, principal)
            text = usability_notice(one.connection, known, fault, principal, log_in)
            if text:
                texts[segments[one.name]] = text
        return ServerNotices(texts, is_only_server=len(upstreams) == 1)

    @property
    def _segments(self) -> Mapping[str, str]:
        """The categories that operations of upstreams have, or would have, by the names of those."""
        return _category_segments(tuple(self._upstreams))

    @property
    def _login_segments(self) -> Mapping[str, str]:
        return _login_segments(tuple(one.name for one in self._logins))

    async def _await_start(self, operation: str, principal: Principal) -> bool:
        """Waits for the upstream that an unknown operation would be of, if that is starting, as long as a call may
        take; returns whether it has started or failed."""
        notices = self._notices(principal)
        category = notices.category_of(operation)
        if notices.texts.get(category) != STARTING:
            return False
        segments = self._segments
        upstream = next(one for one in self._upstreams.values() if segments[one.name] == category)
        settings = upstream.config.settings
        try:
            async with asyncio.timeout(settings.start_seconds if settings.timeout is None else settings.timeout):
                if principal is not LOCAL and upstream.connection.has_logins and self._principals is not None:
                    await self._principals.wait_for(upstream.name, principal)
                else:
                    await upstream.wait_for_lists()
        except TimeoutError:
            return False
        return True


class _PreparedOffer(NamedTuple):
    """What upstreams list, made into items, and how to offer it."""

    made: Mapping[ItemKey, Item]
    admitted: AdmittedItems
    items: list[Item]
    instructions: Mapping[str, str]
    """By upstream."""
    change: Callable[[], None]


def _surface(config: GatewayConfig) -> ServerSurface:
    return ServerSurface(
        Disclosure(config.disclosure, query=config.query, destructive=config.destructive), config.results
    )


@functools.lru_cache(maxsize=16)
def _category_segments(names: tuple[str, ...]) -> Mapping[str, str]:
    return dict(zip(names, distinct_segments(names, reserved=("index",)), strict=True))


@functools.lru_cache(maxsize=16)
def _login_segments(names: tuple[str, ...]) -> Mapping[str, str]:
    return dict(zip(names, distinct_segments(names, segment=ascii_segment), strict=True))


class StoredContentLines(dict[str, str]):
    """The content lines of earlier gateways, as `Directory` keeps them; a new one is written into the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "content-lines.json"
        with contextlib.suppress(ValueError):
            self.update(msgspec.json.decode(read_own_file(self._path, _MAX_LINES_BYTES) or b"", type=dict[str, str]))

    def __setitem__(self, key: str, line: str) -> None:
        super().__setitem__(key, line)
        while len(self) > _MAX_LINES:
            del self[next(iter(self))]
        try:
            replace_own_file(self._path, msgspec.json.encode(self))
        except OSError as error:
            logger.info("the summary of what the servers offer is not kept: %s", error.strerror)
