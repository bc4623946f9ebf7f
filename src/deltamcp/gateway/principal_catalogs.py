"""What principals are offered: what all share, and what upstreams listed with the login of each.

The lists of a principal are fetched at its first request, reviewed, and kept in memory only. A principal that has asked
for nothing for longest is forgotten when there are too many, and its lists are fetched again when it comes back.
"""

import asyncio
import contextlib
import functools
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.directory import ServerNotices
from deltamcp.catalog.items.remote_items import RemoteResource
from deltamcp.errors import DeltaError, UpstreamError
from deltamcp.gateway.gateway_upstream import GatewayUpstream
from deltamcp.gateway.trust.definition import pointer
from deltamcp.gateway.trust.imitation import compare_tools
from deltamcp.gateway.trust.quarantine import ABSENCES, PrincipalReviews, item_names
from deltamcp.gateway.trust.review import INSTRUCTIONS, Verdict
from deltamcp.gateway.upstream_items import Item, ItemKey, UpstreamItems, UpstreamOffer, gateway_instructions
from deltamcp.gateway.upstream_resources import ResourceClaims, UnlistedResources
from deltamcp.runtime.change_hub import OwnChange
from deltamcp.stores.store import StoreError
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import MissingLoginError
from deltamcp.values import ANONYMOUS, LOCAL, Kind, Principal
from deltamcp.wire.canonical import sha256_digest

_MAX_PRINCIPALS = 256
_MAX_BYTES = 32 * 1024 * 1024
"""The principals whose lists are kept, and what those lists have together as JSON."""
_FETCH_SECONDS = 120.0
"""How long an upstream may take to list what it has for a principal."""
_FETCHES_AT_ONCE = 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 60.0
"""Between two fetches for a principal, while the upstream announces changes without end; the pause doubles."""
_FIRST_RETRY, _LONGEST_RETRY = 2.0, 300.0
"""After a fetch that failed: how long requests of the principal go on without asking again."""
_KINDS = {Kind.TOOLS: "tools", Kind.RESOURCES: "resources", Kind.TEMPLATES: "templates", Kind.PROMPTS: "prompts"}

logger: logging.Logger = logging.getLogger("deltamcp")


class OwnList(NamedTuple):
    """What one upstream lists to a principal."""

    listing: UpstreamListing
    withheld: Mapping[str, Verdict] | None
    """By JSON pointer, what is kept out; None for all."""
    digest: str = ""
    """Differs where anything of it differs, unless what all share differs, too."""
    size: int = 0


OwnLists = Mapping[str, OwnList]
"""What the upstreams with logins list to a principal, by their names."""


class _Fetch:
    """The state of fetching the list of one upstream for one principal."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.is_due = False
        self.pause, self.retry = _FIRST_PAUSE, _FIRST_RETRY
        self.comparison: asyncio.Task[bool] | None = None
        """A fetch that requests wait for."""
        self.has_ended = asyncio.Event()
        """Set when it has succeeded or failed for the first time."""
        self.fault = ""
        """Why it failed, if it did."""
        self.ended_at = 0.0
        self.retry_at: float | None = None
        """When it may be tried again, if it failed."""


class _Own:
    """What is known of one principal."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.lists: dict[str, OwnList] = {}
        self.fetches: defaultdict[str, _Fetch] = defaultdict(_Fetch)
        self.has_waited = False
        """Whether a request has waited for the first fetches."""
        self.catalog: Catalog | None = None
        self.made_from: _Basis | None = None


_Basis = tuple[int, tuple[tuple[str, str], ...]]
"""The version of what all share, and the digests of the lists of a principal, by upstream."""


class PrincipalCatalogs:
    """Makes the catalog of each principal, and keeps it up to date."""

    def __init__(
        self,
        upstreams: Mapping[str, GatewayUpstream],
        reviews: PrincipalReviews,
        local: Catalog,
        make: Callable[[OwnLists], Catalog],
        announce: Callable[[OwnChange], None],
        on_update: Callable[[str], None],
        wait_seconds: Callable[[], float],
    ) -> None:
        """
        Args:
            upstreams: Those of the gateway as they are now; only those with logins count here.
            local: What the local user is offered.
            make: Makes the catalog of a principal from its lists and what all share; it is called in a thread.
            announce: Tells a principal of a list that has changed.
            on_update: Called with an owner whose catalog has changed.
            wait_seconds: How long the first request of a principal waits for its lists.
        """
        self._upstreams = upstreams
        self._reviews = reviews
        self._local = local
        self._make = make
        self._announce = announce
        self._on_update = on_update
        self._wait_seconds = wait_seconds
        self._owns: OrderedDict[str, _Own] = OrderedDict()
        self._made: WeakValueDictionary[_Basis, Catalog] = WeakValueDictionary()
        """By what they were made from: principals that are listed the same share one."""
        self._version = 0
        self._anybody = _Own(ANONYMOUS)
        """Those whom nobody authenticates: they have the lists of the local user where its login is shared."""
        self._nobody = make({})
        self._fetching = asyncio.Semaphore(_FETCHES_AT_ONCE)
        self._making = asyncio.Lock()
        self._stamps = self._read_stamps()

    # Requests

    def listing(self, name: str, principal: Principal) -> UpstreamListing | None:
        """Returns what an upstream is known to list to a principal other than the local user."""
        own = self._anybody if principal is ANONYMOUS else self._owns.get(principal.owner)
        found = None if own is None else own.lists.get(name)
        return None if found is None else found.listing

    def fault(self, name: str, principal: Principal) -> str:
        """Returns why the lists of an upstream could not be had for a principal when that was last tried."""
        own = self._owns.get(principal.owner)
        return "" if own is None else own.fetches[name].fault

    async def wait_for(self, name: str, principal: Principal) -> None:
        """Waits until an upstream has listed what it has for a principal, or failed."""
        own = self._owns.get(principal.owner)
        if own is not None:
            await own.fetches[name].has_ended.wait()

    def of(self, principal: Principal) -> Catalog:
        """Returns what a principal is offered; what nobody lacks, if nothing is known of it."""
        if principal is LOCAL:
            return self._local
        own = self._anybody if principal is ANONYMOUS else self._owns.get(principal.owner)
        return self._nobody if own is None or own.catalog is None else own.catalog

    async def prepare(self, principal: Principal) -> None:
        """Makes what a principal is offered, before its request is served."""
        if principal is LOCAL:
            return
        own = self._anybody if principal is ANONYMOUS else self._find(principal)
        if not own.has_waited and principal is not ANONYMOUS:  # nothing is fetched for callers without a login
            await self._wait(own)
        await self._update(own)

    def _find(self, principal: Principal) -> _Own:
        own = self._owns.get(principal.owner)
        if own is None:
            own = self._owns[principal.owner] = _Own(principal)
            self._make_room()
        self._owns.move_to_end(principal.owner)
        now = asyncio.get_running_loop().time()
        for name in self._logins():
            fetch = own.fetches[name]
            is_first = fetch.task is None and name not in own.lists and fetch.retry_at is None
            if is_first or (fetch.retry_at is not None and now >= fetch.retry_at):
                self._start(own, name)
        return own

    def _make_room(self) -> None:
        size = sum(one.size for own in self._owns.values() for one in own.lists.values())
        while len(self._owns) > _MAX_PRINCIPALS or (size > _MAX_BYTES and len(self._owns) > 1):
            _, gone = self._owns.popitem(last=False)
            size -= sum(one.size for one in gone.lists.values())
            for fetch in gone.fetches.values():
                if fetch.task is not None:
                    fetch.task.cancel()

    async def _wait(self, own: _Own) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_seconds()):
                for name in self._logins():
                    await own.fetches[name].has_ended.wait()
        own.has_waited = True

    async def _update(self, own: _Own) -> None:
        """Makes the catalog of a principal anew, if it would differ."""
        while (basis := self._basis(own)) != own.made_from:
            made = self._made.get(basis)
            if made is None:
                async with self._making:
                    made = self._made.get(basis)
                    if made is None:
                        made = await asyncio.to_thread(self._make, dict(own.lists))
                        self._made[basis] = made
            is_first = own.catalog is None
            own.catalog, own.made_from = made, basis
            if not is_first:
                self._on_update(own.principal.owner)

    def _basis(self, own: _Own) -> _Basis:
        return self._version, tuple((name, one.digest) for name, one in own.lists.items())

    # What all share

    def share(self, lists: OwnLists) -> None:
        """Takes note that what all share has changed; `lists` are those of the local user."""
        self._version += 1
        self._anybody.lists = {name: one for name, one in lists.items() if self._upstreams[name].config.shared_login}

    def forget(self, name: str) -> None:
        """Forgets what an upstream listed that is no longer there, or is another one now."""
        for own in self._owns.values():
            own.lists.pop(name, None)
            fetch = own.fetches.pop(name, None)
            if fetch is not None and fetch.task is not None:
                fetch.task.cancel()
            own.has_waited = False

    def _logins(self) -> list[str]:
        """Returns the names of the upstreams with logins, in the order of the configuration."""
        return [name for name, one in self._upstreams.items() if one.connection.has_logins]

    # Changes

    def refresh(self, name: str, principal: Principal) -> None:
        """Has the lists of an upstream fetched for a principal, if anything is known of that."""
        own = self._owns.get(principal.owner)
        if own is not None:
            self._start(own, name)

    async def compare(self, name: str, principal: Principal) -> Mapping[str, Verdict] | None:
        """Fetches and reviews what an upstream lists to a principal whose connection is new; returns what is kept out.

        Raises:
            UpstreamError: it does not list it.
        """
        own = self._find(principal)
        fetch = own.fetches[name]
        if fetch.comparison is None:
            fetch.comparison = asyncio.get_running_loop().create_task(self._fetch_once(own, name))
        comparison = fetch.comparison
        try:
            is_done = await asyncio.shield(comparison)
        finally:
            if fetch.comparison is comparison and comparison.done():
                fetch.comparison = None
        if not is_done or name not in own.lists:
            raise UpstreamError(f"The server {name} behind this operation does not list what it has; try again later.")
        return own.lists[name].withheld

    def has_new_approvals(self) -> bool:
        """Returns whether somebody approved or rejected something since this was last asked."""
        stamps, self._stamps = self._stamps, self._read_stamps()
        return stamps != self._stamps

    def review_again(self) -> None:
        """Has all lists fetched and reviewed again."""
        for own in self._owns.values():
            for name in own.lists:
                self._start(own, name)

    def _read_stamps(self) -> list[object]:
        return [self._reviews.stamp(self._upstreams[name].config) for name in self._logins()]

    def close(self) -> None:
        """Ends what is under way, and forgets all principals."""
        for own in self._owns.values():
            for fetch in own.fetches.values():
                if fetch.task is not None:
                    fetch.task.cancel()
        self._owns.clear()

    # Fetching

    def _start(self, own: _Own, name: str) -> None:
        fetch = own.fetches[name]
        fetch.is_due, fetch.retry_at = True, None
        if fetch.task is None:
            fetch.task = asyncio.get_running_loop().create_task(self._fetch(own, name, fetch))

    async def _fetch(self, own: _Own, name: str, fetch: _Fetch) -> None:
        now = asyncio.get_running_loop().time
        try:
            while fetch.is_due:
                if now() - fetch.ended_at < 2 * fetch.pause:
                    await asyncio.sleep(fetch.pause)
                    fetch.pause = min(2 * fetch.pause, _LONGEST_PAUSE)
                else:
                    fetch.pause = _FIRST_PAUSE
                fetch.is_due = False
                async with self._fetching:
                    is_done = await self._fetch_once(own, name)
                fetch.ended_at = now()
                fetch.has_ended.set()
                if is_done:
                    fetch.retry = _FIRST_RETRY
                else:
                    fetch.retry_at = now() + fetch.retry
                    fetch.retry = min(2 * fetch.retry, _LONGEST_RETRY)
        finally:
            fetch.task = None

    async def _fetch_once(self, own: _Own, name: str) -> bool:
        """Fetches and reviews the lists of an upstream for a principal; returns whether that succeeded."""
        upstream = self._upstreams.get(name)
        if upstream is None:
            return False
        connection, found = upstream.connection, None
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                fetch = functools.partial(connection.fetch_listing, own.principal)
                listing = await fetch()
                if "tools" in listing.faults:
                    raise UpstreamError(listing.faults["tools"])
                if name in own.lists:
                    listing = listing.with_lists_of(own.lists[name].listing)
                withheld = await self._reviews.review(upstream.config, own.principal, listing, fetch)
            found = await asyncio.to_thread(_own_list, listing, withheld)
        except MissingLoginError:
            pass  # it has no lists until its user logs in
        except (DeltaError, StoreError, TimeoutError) as error:
            text = str(error) or "it took too long."
            own.fetches[name].fault = text
            logger.info("%s does not list what it has for a user: %s", name, text)
            return False
        except Exception:
            logger.exception("%s: what it lists for a user cannot be offered", name)
            own.fetches[name].fault = "what it lists cannot be offered"
            return False
        if self._upstreams.get(name) is not upstream:  # another one has its place meanwhile
            return False
        own.fetches[name].fault = ""
        self._replace(own, name, found)
        connection.note_comparison(own.principal)
        return True

    def _replace(self, own: _Own, name: str, found: OwnList | None) -> None:
        known = own.lists.pop(name, None)
        if found is not None:
            own.lists = {one: own.lists.get(one, found) for one in self._logins() if one in own.lists or one == name}
        self._make_room()
        if own.catalog is not None and (None if known is None else known.digest) != (found and found.digest):
            for kind in _KINDS:
                if _items(known, kind) != _items(found, kind):
                    self._announce(OwnChange(own.principal.owner, kind))


def _items(one: OwnList | None, kind: Kind) -> object:
    """Returns what clients may be listed, to be compared."""
    items = [] if one is None else getattr(one.listing, _KINDS[kind])
    return (items, one.withheld) if one is not None and items else None


def _own_list(listing: UpstreamListing, withheld: Mapping[str, Verdict] | None) -> OwnList:
    encoded = msgspec.json.encode(listing)
    verdicts = None if withheld is None else sorted((place, verdict.value) for place, verdict in withheld.items())
    digest = sha256_digest(encoded + repr(verdicts).encode(errors="surrogatepass"))
    return OwnList(listing, withheld, digest, len(encoded))


_PLACES: Mapping[str, tuple[str, ...]] = {
    "tool": ("/tools",),
    "prompt": ("/prompts",),
    "resource": ("/resources", "/templates"),
}
"""The lists that an item may be in, by its kind."""


class SharedOffer(NamedTuple):
    """What upstreams without logins offer to all."""

    offers: Mapping[str, UpstreamOffer] = {}
    """By the names of upstreams."""
    withheld: frozenset[ItemKey] = frozenset()
    absences: Mapping[str, str] = {}
    """Sentences about what is kept out, by the names that it would have."""
    instructions: Mapping[str, str] = {}
    gateway_items: Sequence[Item] = ()
    """The gateway's own."""


class OwnOffer:
    """Makes catalogs. `make` may be called in any thread."""

    def __init__(
        self,
        upstreams: Mapping[str, GatewayUpstream],
        upstream_items: UpstreamItems,
        claims: ResourceClaims,
        status: RemoteResource,
        make_catalog: Callable[[Sequence[Item]], Catalog],
        notices: Callable[[Principal], ServerNotices],
        kinds: frozenset[Kind],
    ) -> None:
        """
        Args:
            upstreams: Those of the gateway as they are now.
            make_catalog: Returns a catalog of items.
            notices: Returns what a principal is told of upstreams that cannot be used now.
            kinds: As of `introduce`.
        """
        self._upstreams = upstreams
        self._upstream_items = upstream_items
        self._claims = claims
        self._status = status
        self._make_catalog = make_catalog
        self._notices = notices
        self._kinds = kinds
        self._shared = SharedOffer()

    def share(self, shared: SharedOffer) -> None:
        """Offers all principals what does not depend on a login, in catalogs that are made from now on."""
        self._shared = shared

    def make(self, lists: OwnLists) -> Catalog:
        """Returns what a principal is offered to whom upstreams with logins list these."""
        shared, upstreams = self._shared, list(self._upstreams.values())
        offers = [offer for one in upstreams if (offer := self._offer(one, shared, lists)) is not None]
        imitations = self._withheld_imitations(offers)
        items, absences = list[Item](), dict(shared.absences)
        for key, item in self._upstream_items.make(offers).items():
            own = lists.get(key.upstream)
            if own is None:
                if key not in shared.withheld:
                    items.append(item)
                continue
            verdict = Verdict.IMITATION if key in imitations else _verdict(own.withheld, key)
            if own.withheld is not None and verdict is None:
                items.append(item)
            elif verdict is not None:
                for name in item_names(item):
                    absences[name] = f"{name} {ABSENCES[verdict]}"
        catalog = self._make_catalog([*items, *shared.gateway_items])
        catalog.absences.update(absences)
        unlisted = UnlistedResources(self._claims, self._status)
        unlisted.ask([offer.upstream for offer in offers if Kind.RESOURCES in offer.listing.kinds])
        catalog.ask_upstreams(self._claims.find_mentioned, unlisted.find, self._notices)
        texts = {offer.config.name: self._instructions(offer, shared, lists) for offer in offers}
        introduce(catalog, offers, len(upstreams), texts, self._kinds)
        return catalog

    def _offer(self, upstream: GatewayUpstream, shared: SharedOffer, lists: OwnLists) -> UpstreamOffer | None:
        own = lists.get(upstream.name)
        if own is None:
            return shared.offers.get(upstream.name)
        return UpstreamOffer(upstream.config, upstream.connection, own.listing)

    def _instructions(self, offer: UpstreamOffer, shared: SharedOffer, lists: OwnLists) -> str:
        own = lists.get(offer.config.name)
        if own is None:
            return shared.instructions.get(offer.config.name, "")
        is_out = own.withheld is None or INSTRUCTIONS in own.withheld
        return "" if is_out else offer.listing.instructions

    def _withheld_imitations(self, offers: Sequence[UpstreamOffer]) -> set[ItemKey]:
        strict = {
            offer.config.name
            for offer in offers
            if offer.upstream.has_logins and offer.config.on_imitation == "quarantine"
        }
        if not strict:
            return set()
        found = compare_tools({offer.config.name: offer.listing.tools for offer in offers}).imitations
        return {ItemKey("tool", one.upstream, one.tool) for one in found if one.upstream in strict}


def introduce(
    catalog: Catalog,
    offers: Sequence[UpstreamOffer],
    upstream_count: int,
    instructions: Mapping[str, str],
    kinds: frozenset[Kind],
) -> None:
    """Says in a catalog what clients are told of a gateway.

    It has tools if an upstream is not known yet: clients that are told of no tools never ask for any.

    Args:
        kinds: What it may get while it runs, so that it has that, too.
    """
    unknown = {Kind.TOOLS} if len(offers) < upstream_count else set[Kind]()
    kinds = kinds.union(unknown, *(offer.listing.kinds for offer in offers))
    completes = any("completions" in offer.listing.capabilities for offer in offers)
    catalog.introduce(kinds, completes, gateway_instructions(instructions))


def _verdict(withheld: Mapping[str, Verdict] | None, key: ItemKey) -> Verdict | None:
    places = (pointer(place, key.name) for place in _PLACES[key.kind])
    return next((withheld[place] for place in places if place in withheld), None) if withheld else None
