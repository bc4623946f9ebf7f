"""Makes the catalogue of a principal from what all share and from what upstreams listed with its own login."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.remote_items import RemoteResource
from deltamcp.catalog.server_notices import ServerNotices
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.gateway_instructions import gateway_instructions
from deltamcp.gateway.principal_catalogues import OwnLists
from deltamcp.gateway.trust.definition_hash import pointer
from deltamcp.gateway.trust.imitation import compare_tools
from deltamcp.gateway.trust.quarantine import ABSENCES, item_names
from deltamcp.gateway.trust.review import INSTRUCTIONS, Verdict
from deltamcp.gateway.upstream_items import Item, ItemKey, UpstreamItems, UpstreamOffer
from deltamcp.gateway.upstream_resources import ResourceClaims, UnlistedResources
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import Kind, Principal

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


class OwnOffer:
    """Makes catalogues. `make` may be called in any thread."""

    def __init__(
        self,
        configs: Sequence[UpstreamConfig],
        upstreams: Mapping[str, Upstream],
        upstream_items: UpstreamItems,
        gateway_items: Sequence[Item],
        claims: ResourceClaims,
        status: RemoteResource,
        make_catalog: Callable[[Sequence[Item]], Catalog],
        notices: Callable[[Principal], ServerNotices],
    ) -> None:
        """
        Args:
            gateway_items: The gateway's own, which everybody has.
            make_catalog: Returns a catalogue of items.
            notices: Returns what a principal is told of upstreams that cannot be used now.
        """
        self._configs = configs
        self._upstreams = upstreams
        self._upstream_items = upstream_items
        self._gateway_items = gateway_items
        self._claims = claims
        self._status = status
        self._make_catalog = make_catalog
        self._notices = notices
        self.shared = SharedOffer()

    def make(self, lists: OwnLists) -> Catalog:
        """Returns what a principal is offered to whom upstreams with logins list these."""
        shared = self.shared
        offers = [offer for config in self._configs if (offer := self._offer(config, shared, lists)) is not None]
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
        catalog = self._make_catalog([*items, *self._gateway_items])
        catalog.absences.update(absences)
        catalog.declared_kinds = declared_kinds(offers, len(self._configs))
        catalog.declares_completions = any("completions" in offer.catalogue.capabilities for offer in offers)
        having = [offer.upstream for offer in offers if Kind.RESOURCES in offer.catalogue.kinds]
        unlisted = UnlistedResources(self._claims, self._status, having)
        catalog.ask_upstreams(self._claims.find_mentioned, unlisted.find, self._notices)
        texts = {offer.config.name: self._instructions(offer, shared, lists) for offer in offers}
        catalog.instructions = gateway_instructions(texts)
        return catalog

    def _offer(self, config: UpstreamConfig, shared: SharedOffer, lists: OwnLists) -> UpstreamOffer | None:
        own = lists.get(config.name)
        if own is None:
            return shared.offers.get(config.name)
        return UpstreamOffer(config, self._upstreams[config.name], own.catalogue)

    def _instructions(self, offer: UpstreamOffer, shared: SharedOffer, lists: OwnLists) -> str:
        own = lists.get(offer.config.name)
        if own is None:
            return shared.instructions.get(offer.config.name, "")
        is_out = own.withheld is None or INSTRUCTIONS in own.withheld
        return "" if is_out else offer.catalogue.instructions

    def _withheld_imitations(self, offers: Sequence[UpstreamOffer]) -> set[ItemKey]:
        strict = {
            offer.config.name
            for offer in offers
            if offer.upstream.has_logins and offer.config.on_imitation == "quarantine"
        }
        if not strict:
            return set()
        found = compare_tools({offer.config.name: offer.catalogue.tools for offer in offers}).imitations
        return {ItemKey("tool", one.upstream, one.tool) for one in found if one.upstream in strict}


def declared_kinds(offers: Sequence[UpstreamOffer], upstream_count: int) -> frozenset[Kind]:
    """Returns the kinds of lists that a gateway says it has.

    It has tools if an upstream is not known yet: clients that are told of no tools never ask for any.
    """
    unknown = {Kind.TOOLS} if len(offers) < upstream_count else set[Kind]()
    return frozenset(unknown).union(*(offer.catalogue.kinds for offer in offers))


def _verdict(withheld: Mapping[str, Verdict] | None, key: ItemKey) -> Verdict | None:
    places = (pointer(place, key.name) for place in _PLACES[key.kind])
    return next((withheld[place] for place in places if place in withheld), None) if withheld else None
