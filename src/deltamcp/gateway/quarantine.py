"""Keeps out of a gateway what its user has not approved, and tells it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deltamcp.catalog.remote_items import RemoteOperation, RemotePrompt
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.gateway.approvals import Approvals
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.definition_hash import pointer
from deltamcp.gateway.review import Review, Verdict
from deltamcp.gateway.upstream_items import Item, ItemKey, UpstreamOffer
from deltamcp.upstreams.upstream import Upstream
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue

logger = logging.getLogger("deltamcp")

ABSENCES: dict[Verdict, str] = {
    Verdict.CHANGED: "is kept out, because its definition changed after it was approved; the user can approve it with",
    Verdict.NEW: "is new, and kept out until the user approves it with",
    Verdict.REJECTED: "was rejected by the user, who can still approve it with",
}
"""What whoever names a withheld item is told, by verdict."""
_LISTS = {"tool": "/tools", "prompt": "/prompts"}


class AdmittedItems(NamedTuple):
    """The items that may be offered, and sentences about the others by the names that they would have."""

    items: list[Item]
    absences: dict[str, str]


class _LastReview(NamedTuple):
    catalogue: UpstreamCatalogue
    stamp: tuple[int, ...]
    """That of the record on disk."""
    review: Review | None
    """None if what was approved cannot be read."""


class Quarantine:
    """Reviews the lists of upstreams before a server offers them."""

    def __init__(self, approvals: Approvals, upstreams: Mapping[str, Upstream]) -> None:
        self._approvals = approvals
        self._upstreams = upstreams
        self._last: dict[str, _LastReview] = {}

    async def review(self, config: UpstreamConfig, catalogue: UpstreamCatalogue) -> None:
        """Reviews what an upstream listed just now; of one that is new also what varies from list to list."""
        reviewed = await asyncio.to_thread(self._review, config, catalogue)
        if reviewed is None or not reviewed.is_first_sight:
            return
        try:
            again = await self._upstreams[config.name].fetch_catalogue()
            await asyncio.to_thread(self._approvals.learn_varying_numbers, config, catalogue, again)
        except DeltaError as error:
            logger.info("%s: what it varies in its lists is not known: %s", config.name, error)

    def admit(self, offers: Sequence[UpstreamOffer], items: Mapping[ItemKey, Item]) -> AdmittedItems:
        """Sorts out the items that are kept out. Their names stay theirs, so that no other item gets them."""
        reviews = {offer.config.name: self._review(offer.config, offer.catalogue) for offer in offers}
        admitted = AdmittedItems([], {})
        for key, item in items.items():
            review = reviews[key.upstream]
            if review is None:
                continue
            verdict = review.withheld.get(pointer(_LISTS[key.kind], key.name)) if key.kind in _LISTS else None
            if verdict is None:
                admitted.items.append(item)
                continue
            for name in _names(item):
                admitted.absences[name] = f"{name} {ABSENCES[verdict]}: delta-mcp approve {key.upstream}"
        return admitted

    def has_new_approvals(self, configs: Sequence[UpstreamConfig]) -> bool:
        """Returns whether the record of an upstream was changed since it was read."""
        return any(
            config.name in self._last and self._last[config.name].stamp != self._approvals.stamp(config)
            for config in configs
        )

    def _review(self, config: UpstreamConfig, catalogue: UpstreamCatalogue) -> Review | None:
        """Returns the review of a catalogue, the last one if neither the catalogue nor the record has changed."""
        last = self._last.get(config.name)
        if last is not None and last.catalogue is catalogue and last.stamp == self._approvals.stamp(config):
            return last.review
        review = None
        try:
            review = self._approvals.review(config, catalogue)
        except ConfigurationError as error:
            logger.error("%s is kept out: %s", config.name, error)
        for note in review.notes if review is not None else ():
            logger.warning("%s", note)
        self._last[config.name] = _LastReview(catalogue, self._approvals.stamp(config), review)
        return review


def _names(item: Item) -> set[str]:
    match item:
        case RemoteOperation():
            return {item.name, item.id}
        case RemotePrompt():
            return {item.name}
        case _:
            return set()
