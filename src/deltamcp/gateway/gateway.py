"""`Gateway`: configuration in, a `DeltaServer` out that offers what the servers behind it offer."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from deltamcp.calls.observers import CallObserver
from deltamcp.calls.server_items import can_queue_promises
from deltamcp.catalog.directory import ServerNotices
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.resource import MAX_URI_CHARS
from deltamcp.catalog.lite_tools import REDEEM
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.client.links.process_guard import ProcessGuard
from deltamcp.delivery.stored_results import KeptResults
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.item_names import ascii_segment, distinct_segments
from deltamcp.gateway.known_listings import KnownListings
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.listing_cache import ListingCache, StoredContentLines
from deltamcp.gateway.principal_catalogs import OwnList, OwnOffer, PrincipalCatalogs, SharedOffer, declared_kinds
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.gateway.trust.principal_review import PrincipalReviews
from deltamcp.gateway.trust.quarantine import AdmittedItems, Quarantine, check_withheld, item_names
from deltamcp.gateway.upstream_items import (
    Item,
    ItemKey,
    UpstreamItems,
    UpstreamOffer,
    gateway_instructions,
    log_in_operations,
)
from deltamcp.gateway.upstream_resources import (
    ResourceClaims,
    ResourceSubscriptions,
    UnlistedResources,
    UpstreamResource,
)
from deltamcp.gateway.upstream_status import STARTING, status_resource, upstream_figures, usability_notice
from deltamcp.limits import Limits
from deltamcp.promises.runner import QUEUE_MODULES
from deltamcp.runtime.change_hub import Change, OwnChange
from deltamcp.runtime.own_files import user_folder
from deltamcp.runtime.process import collection_paused
from deltamcp.runtime.seal import Seal
from deltamcp.runtime.secrets import secrets_left_out
from deltamcp.runtime.threads import Computations
from deltamcp.server import DeltaServer
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import LoginUpstream
from deltamcp.upstreams.parked_calls import ParkedCalls
from deltamcp.upstreams.sealed_logins import KEEP_SECONDS, SealedLogins
from deltamcp.upstreams.secrets import UpstreamSecrets
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, LOCAL, Kind, Principal
from deltamcp.version import VERSION
from deltamcp.work import Work

if TYPE_CHECKING:
    from deltamcp.gateway.login_pages import LoginPages
    from deltamcp.upstreams.user_login import UserLogin

_RESERVED_NAMES = frozenset({*(meta.value for meta in MetaTool), REDEEM})
"""The names of tools that the server itself may have."""

_LOST_ADVICE = "With keep_results = true in its gateway.toml, the gateway keeps results when it is started anew."

_APPROVALS_SECONDS = 2.0
"""Between two looks at whether the user approved something."""

logger = logging.getLogger("deltamcp")


class Gateway:
    """Fronts other MCP servers. `server` is served as any other server is."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        observers: Sequence[CallObserver] = (),
        cache_folder: Path | None = None,
        approvals: Approvals | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """
        Args:
            observers: As of `DeltaServer`.
            cache_folder: Where to keep what upstreams list; the user's folder for it by default.
            approvals: The definitions that may be offered; by default those that the user approved.
            ledger: Notes what calls and lists cost; the gateway closes it.

        Raises:
            ConfigurationError: two upstreams have the same name.
        """
        names = [one.name for one in config.upstreams]
        if len({*names}) < len(names):
            raise ConfigurationError(f"Two servers have the same name; rename one of {', '.join(names)}.")
        if config.results is None:
            config = msgspec.structs.replace(config, upstreams=[_without_budget(one) for one in config.upstreams])
        self._config = config
        self._ledger = ledger
        self._guard = ProcessGuard()
        self._parked_calls = ParkedCalls(Limits().input_seconds)
        self._computations = Computations(Limits().work_steps)
        self.upstreams = {one.name: self._make_upstream(one) for one in config.upstreams}
        self.server = DeltaServer(
            config.name,
            VERSION,
            disclosure=Disclosure(config.disclosure, query=config.query, destructive=config.destructive),
            results=config.results,
            lifespan=self._run,
            observers=observers if ledger is None else (*observers, ledger),
        )
        self._logins = {name: one for name, one in self.upstreams.items() if isinstance(one, LoginUpstream)}
        self._principals: PrincipalCatalogs | None = None
        """What principals with logins of their own are offered; None while the server does not run."""
        self._claims = ResourceClaims(names, lambda principal: self.server.engine.catalog.view(principal))
        status = status_resource(self.upstreams.values(), self._known_to, self._claims.conflicts)
        self._own_items: list[Item] = [
            *log_in_operations(list(self._logins.values())),
            *([] if config.disclosure == "full" else [status]),
        ]
        if self._logins:
            self.server.pages = self._login_pages.pages
        self._cache_folder = cache_folder or user_folder("cache") / "catalogs"
        self._approvals = approvals or Approvals()
        self._quarantine = Quarantine(self._approvals, self.upstreams)
        cache = ListingCache(self._cache_folder)
        self._known = KnownListings(
            config.upstreams,
            self.upstreams,
            cache,
            self._quarantine,
            self._offer,
            self._pass_on,
            config.max_age_seconds,
        )
        self._unlisted = UnlistedResources(self._claims, status)
        self._upstream_items = UpstreamItems(config.has_prefix, _RESERVED_NAMES, self._claims, config.results)
        self._own_offer = OwnOffer(
            config.upstreams,
            self.upstreams,
            self._upstream_items,
            self._own_items,
            self._claims,
            status,
            self.server.items.make_catalog,
            self._notices,
        )
        self.beside: list[Callable[[], contextlib.AbstractAsyncContextManager[None]]] = []
        """What is open while the gateway runs, such as its dashboard; set it before the gateway starts."""
        self._items: list[Item] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._offering = asyncio.Lock()
        self._has_new_lists = False
        """Whether lists were offered that were not compared with each other yet."""
        self._resource_subscriptions: ResourceSubscriptions | None = None
        for one in config.upstreams:
            self.upstreams[one.name].on_change = functools.partial(self._receive_change, one.name)
            self.upstreams[one.name].on_own_change = functools.partial(self._receive_own_change, one.name)
            self.upstreams[one.name].compare = functools.partial(self._compare, one)
            self.upstreams[one.name].on_announcement = functools.partial(self._known.note_announcement, one.name)

    def _make_upstream(self, config: UpstreamConfig) -> Upstream:
        """
        Raises:
            ConfigurationError: users cannot log in at this upstream.
        """
        options: dict[str, Any] = {
            "guard": self._guard,
            "parked_calls": self._parked_calls,
            "local_sessions": lambda: self.server.engine.local_sessions,
            "roots": self._config.roots,
            "secrets": (secrets := UpstreamSecrets(config.secrets, [one.name for one in self._config.upstreams])),
            "redacts_results": config.redact_results or (config.redact_results is None and self._config.redact_results),
            "computations": self._computations,
            "speak": config.speak,
        }
        if config.auth is None:
            if config.resource is not None:
                raise ConfigurationError(f'{config.name}: a resource is for servers with auth = "oauth".')
            return Upstream(config.name, config.entry, config.settings, **options)
        url = config.entry.get("url")
        if not isinstance(url, str):
            raise ConfigurationError(f'{config.name}: auth = "oauth" is for servers with a url.')
        from deltamcp.client.oauth.metadata import covers  # imported late, as most gateways need no login

        resource = config.resource
        if resource is not None and not covers(resource, url):
            raise ConfigurationError(f"{config.name}: the resource is an address above the url, such as https://host.")

        def make_login(principal: Principal) -> "UserLogin":
            from deltamcp.upstreams.user_login import UserLogin, local_login

            if principal is LOCAL:
                return local_login(config.name, url, secrets, resource)
            engine = self.server.engine
            logins = SealedLogins(engine.store, self._seal, engine.info["name"], principal)
            return UserLogin(config.name, url, logins, self._login_pages, secrets, resource)

        options["shares_login"] = config.shared_login
        return LoginUpstream(config.name, config.entry, config.settings, make_login, **options)

    @functools.cached_property
    def _login_pages(self) -> "LoginPages":
        from deltamcp.gateway.login_pages import LoginPages  # with the client of OAuth, which most gateways do not need

        return LoginPages(self._config.public_url, self._config.login_client_id)

    @property
    def config(self) -> GatewayConfig:
        return self._config

    @property
    def ledger(self) -> Ledger | None:
        return self._ledger

    @property
    def approvals(self) -> Approvals:
        return self._approvals

    @property
    def known(self) -> KnownListings:
        """What upstreams are known to list to the local user."""
        return self._known

    @property
    def quarantine(self) -> Quarantine:
        """What is kept out of that."""
        return self._quarantine

    def redact(self, text: str) -> str:
        """Returns a text without what nobody is told of the upstreams' entries."""
        for upstream in self.upstreams.values():
            text = upstream.secrets.redact(text)
        return text

    @functools.cached_property
    def _seal(self) -> Seal:
        return self.server.engine.make_seal(KEEP_SECONDS)

    @contextlib.asynccontextmanager
    async def _run(self, server: DeltaServer) -> AsyncIterator[None]:
        if self._config.savings:
            server.engine.report_savings()
        server.engine.lifespan.first_modules |= self._first_modules()
        kept = self._kept_results()
        server.engine.stored_results.keep(kept, _LOST_ADVICE if kept is None else "")
        for upstream in self.upstreams.values():
            upstream.open()
        server.engine.add_figures(functools.partial(upstream_figures, self.upstreams.values()))
        server.engine.local_sessions.watch(
            lambda: self._tell_each(Upstream.tell_roots_changed),
            lambda level: self._tell_each(lambda upstream: upstream.lower_log_level(level)),
        )
        try:
            with collection_paused():
                self._known.load()
                self.server.engine.catalog.keep_content_lines(StoredContentLines(self._cache_folder))
                self.server.engine.catalog.ask_upstreams(
                    self._claims.find_mentioned, self._unlisted.find, self._notices, self._await_start
                )
                if self._logins:
                    self._tell_principals_apart()
                await self._offer()
            with secrets_left_out(self.redact):
                async with (
                    self._known.running(),
                    self._following_approvals(),
                    self._subscriptions().running(),
                    contextlib.nullcontext() if kept is None else kept.swept(),
                    contextlib.AsyncExitStack() as beside,
                ):
                    for open_ in self.beside:
                        await beside.enter_async_context(open_())
                    await self._known.wait_for_unseen(self._config.wait_seconds)
                    yield
        finally:
            self._parked_calls.close()
            if self._principals is not None:
                self._principals.close()
            await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()))
            self._guard.close()
            if kept is not None:
                await kept.close()
            if self._ledger is not None:
                await asyncio.to_thread(self._ledger.close)

    def _first_modules(self) -> set[str]:
        """Returns what first calls import: the client, and the queue if tools that come later may give promises."""
        names = {"deltamcp.client.client", "deltamcp.upstreams.task"}
        for config in self._config.upstreams:
            names.add(f"deltamcp.client.links.{'process' if 'command' in config.entry else 'http'}")
        if can_queue_promises() and any(config.promise != "never" for config in self._config.upstreams):
            names |= QUEUE_MODULES
        return names

    def _kept_results(self) -> KeptResults | None:
        """Returns where results outlive this process: for the same configuration in the same working folder."""
        if not self._config.keep_results:
            return None
        identity = msgspec.json.encode([self._config, str(Path.cwd())], order="sorted")
        return KeptResults(identity, self.server.engine.limits)

    def _tell_principals_apart(self) -> None:
        """Has each principal see what upstreams list with its own login."""
        engine, configs = self.server.engine, [one for one in self._config.upstreams if one.name in self._logins]
        catalog = engine.catalog
        catalog.is_public = False
        reviews = PrincipalReviews(self._approvals, engine.store, self._seal, engine.info["name"])
        self._principals = PrincipalCatalogs(
            configs, self._logins, reviews, catalog, self._own_offer.make, self._announce, self._config.wait_seconds
        )
        self._principals.on_update = self._look_again
        catalog.own, catalog.prepare = self._principals.of, self._principals.prepare
        if can_queue_promises() and any(config.promise != "never" for config in configs):
            self.server.start_promises()

    def _look_again(self, owner: str) -> None:
        if self._resource_subscriptions is not None:
            self._resource_subscriptions.look_again(owner)

    def _known_to(self, name: str, principal: Principal) -> UpstreamListing | None:
        """Returns what an upstream is known to list to a principal."""
        if principal is LOCAL or name not in self._logins or self._principals is None:
            return self._known.get(name)
        return self._principals.listing(name, principal)

    def _notices(self, principal: Principal) -> ServerNotices:
        """Returns what a principal is told of upstreams that it cannot use now."""
        texts = {}
        for name, upstream in self.upstreams.items():
            is_own = principal is not LOCAL and name in self._logins and self._principals is not None
            fault = self._principals.fault(name, principal) if is_own and self._principals else self._known.fault(name)
            log_in = f"log_in_{self._login_segments.get(name, '')}"
            known = None if self._known.is_untried(name) else self._known_to(name, principal)
            text = usability_notice(upstream, known, fault, principal, log_in)
            if text:
                texts[self._segments[name]] = text
        return ServerNotices(texts, is_only_server=len(self.upstreams) == 1)

    @functools.cached_property
    def _segments(self) -> dict[str, str]:
        """The categories that operations of upstreams have, or would have, by the names of those."""
        return dict(zip(self.upstreams, distinct_segments([*self.upstreams], reserved=("index",)), strict=True))

    @functools.cached_property
    def _login_segments(self) -> dict[str, str]:
        return dict(zip(self._logins, distinct_segments([*self._logins], segment=ascii_segment), strict=True))

    async def _await_start(self, operation: str, principal: Principal) -> bool:
        """Waits for the upstream that an unknown operation would be of, if that is starting, as long as a call may
        take; returns whether it has started or failed."""
        notices = self._notices(principal)
        category = notices.category_of(operation)
        if notices.texts.get(category) != STARTING:
            return False
        config = next(one for one in self._config.upstreams if self._segments[one.name] == category)
        is_own = principal is not LOCAL and config.name in self._logins and self._principals is not None
        timeout = config.settings.timeout
        try:
            async with asyncio.timeout(config.settings.start_seconds if timeout is None else timeout):
                if is_own and self._principals is not None:
                    await self._principals.wait_for(config.name, principal)
                else:
                    await self._known.wait_for(config.name)
        except TimeoutError:
            return False
        return True

    @contextlib.asynccontextmanager
    async def _following_approvals(self) -> AsyncIterator[None]:
        """Offers what the user approves meanwhile, withdraws what the user rejects, and tells of imitations."""

        async def follow() -> None:
            while True:
                await asyncio.sleep(_APPROVALS_SECONDS)
                if self._quarantine.has_new_approvals(self._config.upstreams):
                    await self._offer()
                if self._principals is not None and self._principals.has_new_approvals():
                    self._principals.review_again()
                if self._has_new_lists:
                    self._has_new_lists = False
                    async with self._offering:
                        await asyncio.to_thread(self._quarantine.tell_imitations, self._offers())

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()

    def _tell_each(self, tell: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
        for upstream in self.upstreams.values():
            task = asyncio.get_running_loop().create_task(tell(upstream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _receive_change(self, name: str, change: Kind | str) -> None:
        if isinstance(change, Kind):
            self._known.refresh(name)
        elif self._resource_subscriptions is not None:
            self._resource_subscriptions.receive(self.upstreams[name], LOCAL, change)

    def _receive_own_change(self, name: str, principal: Principal, change: Kind | str) -> None:
        if isinstance(change, Kind):
            if self._principals is not None:
                self._principals.refresh(name, principal)
        elif self._resource_subscriptions is not None:
            self._resource_subscriptions.receive(self.upstreams[name], principal, change)

    async def _compare(
        self, config: UpstreamConfig, principal: Principal, method: str, params: Mapping[str, JSON]
    ) -> bool:
        """Compares what a server lists that was started just now, before a request reaches it; see `Upstream.compare`.

        Raises:
            DeltaError: it does not list it, or what the request is for is kept out.
        """
        upstream = self.upstreams[config.name]
        if principal is LOCAL or (upstream.has_logins and upstream.login_of(principal) is LOCAL):
            await self._known.compare(config.name)
            self._quarantine.check_request(config, method, params)
            return upstream.is_compared
        if upstream.has_logins and self._principals is not None:
            check_withheld(await self._principals.compare(config.name, principal), method, params)
            return True
        return await self._quarantine.compare(config, await upstream.fetch_listing(principal), method, params)

    def _pass_on(self, announced: Collection[Kind]) -> None:
        """Tells clients that see an upstream's own lists what it announces, although the lists are the same."""
        if self._config.disclosure == "full":
            for kind in announced:
                self.server.list_changed(kind)

    def _subscriptions(self) -> ResourceSubscriptions:
        self._resource_subscriptions = ResourceSubscriptions(
            self.server.engine.hub,
            self._find_resource,
            self._announce,
            tells_principals_apart=bool(self._logins),
        )
        return self._resource_subscriptions

    def _announce(self, change: Change) -> None:
        if isinstance(change, OwnChange):
            self.server.engine.hub.publish(change, asyncio.get_running_loop())
        elif isinstance(change, Kind):
            self.server.list_changed(change)
        else:
            self.server.resource_updated(change)

    def _find_resource(self, uri: str, principal: Principal, work: Work) -> UpstreamResource | None:
        if len(uri) > MAX_URI_CHARS:  # nobody can read it
            return None
        view = self.server.engine.catalog.view(principal)
        found = view.resource_at(uri, principal, work)
        resource = found[0] if found is not None else view.find_unlisted(uri, principal)
        return resource if isinstance(resource, UpstreamResource) else None

    def _offers(self) -> list[UpstreamOffer]:
        return [
            UpstreamOffer(config, self.upstreams[config.name], listing)
            for config in self._config.upstreams
            if (listing := self._known.get(config.name)) is not None
        ]

    async def _offer(self) -> None:
        """Offers what the upstreams are known to list: all that changed, at once, when it was made in a thread."""
        async with self._offering:
            offers = self._offers()
            try:
                prepared = await asyncio.to_thread(self._prepare_offer, offers)
                prepared.change()
            except ConfigurationError:
                logger.exception("what the servers list now cannot be offered")
                return
            self.server.items.set_absences(prepared.admitted.absences)
            catalog = self.server.engine.catalog
            catalog.declared_kinds = declared_kinds(offers, len(self.upstreams))
            catalog.declares_completions = any("completions" in offer.listing.capabilities for offer in offers)
            self._unlisted.upstreams = [offer.upstream for offer in offers if Kind.RESOURCES in offer.listing.kinds]
            catalog.instructions = gateway_instructions(prepared.instructions)
            if self._principals is not None:
                self._share(self._principals, offers, prepared)
            self._items = prepared.items
            self._has_new_lists = True
        if self._resource_subscriptions is not None:
            self._resource_subscriptions.look_again()

    def _prepare_offer(self, offers: Sequence[UpstreamOffer]) -> "_PreparedOffer":
        """
        Raises:
            ConfigurationError: the items cannot be offered together.
        """
        with collection_paused():
            made = self._upstream_items.update(offers)
            admitted = self._quarantine.admit(offers, made)
            items = [*admitted.items, *self._own_items]
            change = self.server.items.prepare_replacement(self._items, items)
            instructions = {offer.config.name: self._quarantine.instructions(offer) for offer in offers}
        return _PreparedOffer(made, admitted, items, instructions, change)

    def _share(
        self,
        principals: PrincipalCatalogs,
        offers: Sequence[UpstreamOffer],
        prepared: "_PreparedOffer",
    ) -> None:
        """Offers principals what does not depend on a login, or on one that is shared with them."""
        offered = {id(item) for item in prepared.admitted.items}
        withheld = {
            key: one
            for key, one in prepared.made.items()
            if id(one) not in offered and key.upstream not in self._logins
        }
        names = {name for one in withheld.values() for name in item_names(one)}
        self._own_offer.shared = SharedOffer(
            {offer.config.name: offer for offer in offers if offer.config.name not in self._logins},
            frozenset(withheld),
            {name: text for name, text in prepared.admitted.absences.items() if name in names},
            prepared.instructions,
        )
        principals.share(
            {
                offer.config.name: OwnList(offer.listing, self._quarantine.verdicts(offer.config))
                for offer in offers
                if offer.config.name in self._logins
            }
        )


class _PreparedOffer(NamedTuple):
    """What upstreams list, made into items, and how to offer it."""

    made: Mapping[ItemKey, Item]
    admitted: AdmittedItems
    items: list[Item]
    instructions: Mapping[str, str]
    """By upstream."""
    change: Callable[[], None]


def _without_budget(config: UpstreamConfig) -> UpstreamConfig:
    """Has results of an upstream without a policy pass as they are, also through meta-tools, which have a budget."""
    return config if config.results is not None else msgspec.structs.replace(config, results=False)
