"""Keeps out of a gateway what its user has not approved, and tells it.

Approvals are of definitions, whoever is listed them. What a principal with a login of its own is listed first is
trusted as it is, unless the same definition waits or was rejected elsewhere; a later change is kept out until somebody
approves it. Of what is trusted, digests are in the store of the server, sealed for their principal as its logins are.
"""

import asyncio
import datetime
import hashlib
import logging
import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.catalog.items.remote_items import RemoteOperation, RemotePrompt
from deltamcp.errors import ConfigurationError, DeltaError, UpstreamError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.approvals import Approvals, load
from deltamcp.gateway.trust.definition import Variance, definition_form, definition_hash, pointer
from deltamcp.gateway.trust.imitation import Comparison, compare_tools, similar_upstreams
from deltamcp.gateway.trust.review import (
    INSTRUCTIONS,
    KINDS,
    ApprovalRecord,
    Review,
    Verdict,
    approve_command,
    kind_of,
    listed_definitions,
    resource_text,
    with_varying_numbers,
)
from deltamcp.gateway.upstream_items import Item, ItemKey, UpstreamOffer
from deltamcp.runtime.process import collection_paused
from deltamcp.runtime.seal import Seal
from deltamcp.stores.store import SharedStore
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import KEEP_SECONDS
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, Principal

logger: logging.Logger = logging.getLogger("deltamcp")

ABSENCES: dict[Verdict, str] = {
    Verdict.CHANGED: "is kept out, because its definition changed after it was approved; the user has to approve it.",
    Verdict.NEW: "is new, and kept out until the user approves it.",
    Verdict.IMITATION: "is kept out, because it looks like a tool of another server; the user has to approve it.",
    Verdict.ELSEWHERE: "is kept out, because its request would go elsewhere, or carry something else, than was "
    "approved; the user has to approve that.",
    Verdict.REJECTED: "was rejected by the user, and stays out until the user approves it.",
}
"""What whoever names a withheld item is told, by verdict. Models read it, and are not told how to approve."""
_REQUESTS = {
    "tools/call": ("/tools", "name"),
    "prompts/get": ("/prompts", "name"),
    "resources/read": ("/resources", "uri"),
}
"""The list that has what a request is for, and the parameter with its name."""
_MAX_TOLD = 1_000
"""The sentences about imitations that a process logs."""
_MAX_WAITING = 1_000
"""The definitions of an upstream that wait because of principals; further ones are kept out all the same."""
_DIGEST_CHARS = 20


class StoredReview(Struct, frozen=True):
    """What came of the review of a catalog; it holds as long as nothing that it depends on has changed."""

    basis: str
    """Differs if the approvals on disk or the operator's policy were different."""
    withheld: dict[str, str] = {}
    """The verdicts about items that are kept out, by pointer."""


class AdmittedItems(NamedTuple):
    """The items that may be offered, and sentences about the others by the names that they would have."""

    items: list[Item]
    absences: dict[str, str]


class _LastReview(NamedTuple):
    listing: UpstreamListing
    imitations: Mapping[str, str]
    basis: str
    """Differs if the record on disk, or the operator's policy, was another."""
    withheld: Mapping[str, Verdict] | None
    """As of `Review`; None if what was approved cannot be read."""


class Quarantine:
    """Reviews the lists of upstreams before a server offers them."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._last: WeakKeyDictionary[Upstream, _LastReview] = WeakKeyDictionary()
        self._compared: list[UpstreamListing] = []
        self._comparison = Comparison([], [])
        self._told: set[str] = set()

    async def review(self, offer: UpstreamOffer) -> None:
        """Reviews what an upstream listed just now; of one that is new also what varies from list to list."""
        last = self._last.get(offer.upstream)
        reviewed = await asyncio.to_thread(self._review, offer, {} if last is None else last.imitations)
        is_made_here = offer.listing.requests is not None  # of a document, which says the same each time
        if reviewed is None or not reviewed.is_first_sight or is_made_here:
            return
        try:
            again = await offer.upstream.fetch_listing()
            await asyncio.to_thread(self._approvals.learn_varying_numbers, offer.config, offer.listing, again)
        except DeltaError as error:
            logger.info("%s: what it varies in its lists is not known: %s", offer.config.name, error)

    def check_request(self, upstream: Upstream, method: str, params: Mapping[str, JSON]) -> None:
        """Checks that what a request is for was not kept out by the last review.

        Raises:
            UpstreamError: it was, or what was approved cannot be read.
        """
        last = self._last.get(upstream)
        if last is not None:
            _check_listed(last.listing, upstream.name, method)
        check_withheld(None if last is None else last.withheld, method, params)

    async def compare(
        self, config: UpstreamConfig, listing: UpstreamListing, method: str, params: Mapping[str, JSON]
    ) -> bool:
        """Compares what a process of one principal lists; returns whether it lists what was approved, and nothing else.

        Raises:
            UpstreamError: what a request is for is to be kept out.
        """
        _check_listed(listing, config.name, method)
        try:
            withheld = await asyncio.to_thread(self._approvals.compare, config, listing)
        except ConfigurationError:
            withheld = None
        check_withheld(withheld, method, params)
        return not withheld and "tools" not in listing.faults

    def admit(self, offers: Sequence[UpstreamOffer], items: Mapping[ItemKey, Item]) -> AdmittedItems:
        """Sorts out the items that are kept out. Their names stay theirs, so that no other item gets them."""
        imitations = self._withheld_imitations(offers)
        withheld = {offer.config.name: self._withheld(offer, imitations.get(offer.config.name, {})) for offer in offers}
        admitted = AdmittedItems([], {})
        for key, item in items.items():
            verdicts = withheld[key.upstream]
            if verdicts is None:
                continue
            verdict = verdicts.get(pointer(_list_of(item), key.name)) if verdicts else None
            if verdict is None:
                admitted.items.append(item)
                continue
            for name in item_names(item):
                admitted.absences[name] = f"{name} {ABSENCES[verdict]}"
        return admitted

    def tell_imitations(self, offers: Sequence[UpstreamOffer]) -> None:
        """Logs which tools could be taken for another upstream's, each once."""
        names = [offer.config.name for offer in offers]
        for sentence in (*similar_upstreams(names), *self._compare(offers).sentences()):
            if sentence not in self._told and len(self._told) < _MAX_TOLD:
                self._told.add(sentence)
                logger.warning("%s", sentence)

    def _withheld_imitations(self, offers: Sequence[UpstreamOffer]) -> dict[str, dict[str, str]]:
        """Returns sentences about what the operator wants kept out because it imitates, by upstream and pointer."""
        strict = {offer.config.name for offer in offers if offer.config.on_imitation == "quarantine"}
        found: dict[str, dict[str, str]] = {}
        for one in self._compare(offers).imitations if strict else ():
            if one.upstream in strict:
                found.setdefault(one.upstream, {})[pointer("/tools", one.tool)] = str(one)
        return found

    def _compare(self, offers: Sequence[UpstreamOffer]) -> Comparison:
        listings = [offer.listing for offer in offers]
        if len(listings) != len(self._compared) or any(map(operator.is_not, listings, self._compared)):
            self._comparison = compare_tools({offer.config.name: offer.listing.tools for offer in offers})
            self._compared = listings
        return self._comparison

    def instructions(self, offer: UpstreamOffer) -> str:
        """Returns what an upstream says of itself; nothing if that is kept out."""
        last = self._last.get(offer.upstream)
        withheld = self._withheld(offer, {} if last is None else last.imitations)
        return "" if withheld is None or INSTRUCTIONS in withheld else offer.listing.instructions

    def has_new_approvals(self, config: UpstreamConfig, upstream: Upstream) -> bool:
        """Returns whether the record of an upstream was changed since it was read."""
        last = self._last.get(upstream)
        return last is not None and last.basis != self._basis(config)

    def last_review(self, upstream: Upstream) -> StoredReview | None:
        """Returns what `recall` takes in another process; None if what was approved cannot be read."""
        last = self._last.get(upstream)
        if last is None or last.withheld is None:
            return None
        return StoredReview(last.basis, {place: verdict.value for place, verdict in last.withheld.items()})

    def verdicts(self, upstream: Upstream) -> Mapping[str, Verdict] | None:
        """Returns what was last kept out of an upstream's lists, by pointer; None if all was."""
        last = self._last.get(upstream)
        return None if last is None else last.withheld

    def recall(self, offer: UpstreamOffer, stored: StoredReview) -> None:
        """Takes over an earlier review of the same catalog, if what it is based on has not changed."""
        if self._approvals.stamp(offer.config) and stored.basis == self._basis(offer.config):
            # Imitations depend on the lists of others.
            verdicts = {one.value: one for one in Verdict if one is not Verdict.IMITATION}
            if verdicts.keys() >= {*stored.withheld.values()}:
                withheld = {place: verdicts[verdict] for place, verdict in stored.withheld.items()}
                self._last[offer.upstream] = _LastReview(offer.listing, {}, stored.basis, withheld)

    def _withheld(self, offer: UpstreamOffer, imitations: Mapping[str, str]) -> Mapping[str, Verdict] | None:
        """Returns what is kept out: as last time, if neither the catalog, the record nor the policy has changed."""
        last = self._last.get(offer.upstream)
        is_same = last is not None and last.listing is offer.listing and last.imitations == imitations
        if last is not None and is_same and last.basis == self._basis(offer.config):
            return last.withheld
        review = self._review(offer, imitations)
        return None if review is None else review.withheld

    def _review(self, offer: UpstreamOffer, imitations: Mapping[str, str]) -> Review | None:
        review, config = None, offer.config
        try:
            with collection_paused():
                review = self._approvals.review(config, offer.listing, imitations)
        except ConfigurationError as error:
            logger.error("%s is kept out: %s", config.name, error)
        for note in review.notes if review is not None else ():
            logger.log(logging.INFO if review is not None and review.is_first_sight else logging.WARNING, "%s", note)
        self._last[offer.upstream] = _LastReview(
            offer.listing, imitations, self._basis(config), None if review is None else review.withheld
        )
        return review

    def _basis(self, config: UpstreamConfig) -> str:
        """Returns a text that differs if the review of the same catalog may differ."""
        stamp = self._approvals.stamp(config)
        return repr((stamp, config.on_changed, config.on_new, config.on_imitation, config.varies))


def _check_listed(listing: UpstreamListing, upstream: str, method: str) -> None:
    """Checks that the tools could be compared, if one is called.

    Raises:
        UpstreamError: they could not.
    """
    if method == "tools/call" and "tools" in listing.faults:
        raise UpstreamError(not_comparable(upstream), retryable=True)


def not_comparable(upstream: str) -> str:
    """Says why nothing of an upstream can be called."""
    return (
        f"The server {upstream} behind this operation does not list what it has, so that nobody can say "
        "whether it is what was approved; try again later."
    )


def check_withheld(withheld: Mapping[str, Verdict] | None, method: str, params: Mapping[str, JSON]) -> None:
    """Checks that what a request is for is not kept out; `withheld` is None if what was approved cannot be read.

    Raises:
        UpstreamError: it is.
    """
    if withheld is None:
        raise UpstreamError("What was approved of the server behind this operation cannot be read by the gateway.")
    kind, key = _REQUESTS.get(method, ("", ""))
    name = params.get(key)
    verdict = withheld.get(pointer(kind, name)) if kind and isinstance(name, str) else None
    if verdict is not None:
        raise UpstreamError(f"{name} {ABSENCES[verdict]}")


def _list_of(item: Item) -> str:
    match item:
        case RemoteOperation():
            return "/tools"
        case RemotePrompt():
            return "/prompts"
        case _:
            return "/resources" if item.template is None else "/templates"


def item_names(item: Item) -> set[str]:
    """Returns the names by which callers may ask for an item."""
    match item:
        case RemoteOperation():
            return {item.name, item.id}
        case RemotePrompt():
            return {item.name}
        case _:
            return set()


class Pins(Struct, frozen=True):
    """What was trusted of the lists of one principal."""

    digests: dict[str, str] = {}
    """Of definitions, by digests of their places."""
    numbers: list[str] = []
    """As of `ApprovalRecord`."""
    day: str = ""
    """When it was stored."""


class Decision(NamedTuple):
    """What came of a review."""

    withheld: dict[str, Verdict]
    digests: dict[str, str]
    waiting: dict[str, JSON]
    """The definitions that are to be approved, by place."""


class PrincipalReviews:
    """Reviews lists, and remembers what was trusted of each principal's."""

    def __init__(self, approvals: Approvals, store: SharedStore, seal: Seal, server: str) -> None:
        """`server` is the name of the server that the store belongs to."""
        self._approvals = approvals
        self._store = store
        self._seal = seal
        self._server = server

    async def review(
        self,
        config: UpstreamConfig,
        principal: Principal,
        listing: UpstreamListing,
        fetch_again: Callable[[], Awaitable[UpstreamListing]],
    ) -> Mapping[str, Verdict] | None:
        """Returns what is kept out of a principal's lists, by JSON pointer; None for all, as nothing can be compared.

        `fetch_again` returns the same lists once more, which shows what varies in those of a principal that is new.

        Raises:
            StoreError: what was trusted before cannot be read.
            DeltaError: as of `fetch_again`.
        """
        pins = await self._load(config, principal)
        numbers = [] if pins is None else pins.numbers
        if pins is None:
            again = await fetch_again()
            numbers = with_varying_numbers(ApprovalRecord(config.name, {}), listing, again).numbers
        try:
            decision = await asyncio.to_thread(self._decide, config, listing, pins, numbers)
        except ConfigurationError as error:
            logger.error("%s is kept out: %s", config.name, error)
            return None
        kept = Pins(decision.digests, numbers, datetime.date.today().isoformat())
        if kept != pins:
            await self._save(config, principal, kept)
        return decision.withheld

    def stamp(self, config: UpstreamConfig) -> tuple[object, ...]:
        """Returns what differs after somebody approved or rejected something."""
        try:
            return tuple(map(_stamp, self._paths(config)))
        except ConfigurationError:
            return ()

    def _paths(self, config: UpstreamConfig) -> tuple[Path, Path]:
        return self._approvals.path(config), self._approvals.path_for_principals(config)

    def _decide(
        self, config: UpstreamConfig, listing: UpstreamListing, pins: Pins | None, numbers: list[str]
    ) -> Decision:
        records = [record for record in map(load, self._paths(config)) if record is not None]
        decision = decide(config, listing, None if pins is None else pins.digests, numbers, records)
        if decision.waiting:
            self._approvals.change(
                self._approvals.path_for_principals(config),
                lambda record: _with_waiting(record, decision.waiting),
                ApprovalRecord(config.name, {}, kinds=KINDS),
            )
            logger.warning(
                "%s lists something else than before to a user, which is kept out until you approve it: %s",
                config.name,
                approve_command(config.name),
            )
        return decision

    # Pins

    async def _load(self, config: UpstreamConfig, principal: Principal) -> Pins | None:
        owner = self._owner(principal)
        sealed = await self._store.get(owner, config.name)
        found = None if sealed is None else self._seal.open(sealed.decode(), _binding(owner, config))
        return msgspec.convert(found, Pins) if isinstance(found, dict) else None

    async def _save(self, config: UpstreamConfig, principal: Principal, pins: Pins) -> None:
        owner = self._owner(principal)
        sealed = self._seal.close(msgspec.to_builtins(pins), _binding(owner, config)).encode()
        await self._store.put(owner, config.name, sealed, KEEP_SECONDS, KEEP_SECONDS, owner)

    def _owner(self, principal: Principal) -> str:
        return f"{self._server} upstream pins {principal.key}"


def decide(
    config: UpstreamConfig,
    listing: UpstreamListing,
    pinned: Mapping[str, str] | None,
    numbers: Sequence[str],
    records: Sequence[ApprovalRecord],
) -> Decision:
    """Decides what of a principal's lists is offered. Pure: does no I/O.

    Args:
        pinned: The digests of what the principal was offered before; None if it is seen for the first time.
        numbers: Texts of which the digits do not count.
        records: What was approved, was rejected or waits, of the operator's lists and of other principals'.
    """
    variance = Variance(config.varies, {*numbers, *(number for record in records for number in record.numbers)})

    def identities(definitions: Iterable[Mapping[str, JSON]]) -> set[_Identity]:
        return {_identity(place, one, variance) for each in definitions for place, one in each.items()}

    others = _Others(
        identities(record.approved for record in records),
        identities(record.waiting for record in records),
        identities(record.rejected for record in records),
    )
    decision = Decision({}, dict(pinned or {}), {})
    for place, definition in listed_definitions(listing):
        identity = _identity(place, definition, variance)
        verdict = _verdict(config, identity, pinned, others)
        if verdict is None:
            decision.digests[identity.place] = identity.definition
        else:
            decision.withheld[place] = verdict
            if verdict is not Verdict.REJECTED:
                decision.waiting[place] = definition
    return decision


class _Identity(NamedTuple):
    """Digests of what is compared; resources that say the same count as one, because their lists grow with data."""

    place: str
    definition: str


class _Others(NamedTuple):
    """What is known of the lists of others."""

    approved: set[_Identity]
    waiting: set[_Identity]
    rejected: set[_Identity]


def _identity(place: str, definition: JSON, variance: Variance) -> _Identity:
    if kind_of(place) == "resources":
        text = resource_text(definition_form(place, definition, variance))
        return _Identity(_digest(f"/resources {text}"), _digest(text))
    return _Identity(_digest(place), _digest(definition_hash(place, definition, variance)))


def _verdict(
    config: UpstreamConfig, identity: _Identity, pinned: Mapping[str, str] | None, others: _Others
) -> Verdict | None:
    """Returns why a definition is kept out; None if it is offered."""
    if identity in others.rejected:
        return Verdict.REJECTED
    known = None if pinned is None else pinned.get(identity.place)
    if known == identity.definition or identity in others.approved:
        return None
    if pinned is None:
        return Verdict.NEW if identity in others.waiting else None
    if known is None:
        return Verdict.NEW if config.on_new == "quarantine" else None
    return Verdict.CHANGED if config.on_changed == "quarantine" else None


def _with_waiting(record: ApprovalRecord, waiting: Mapping[str, JSON]) -> ApprovalRecord:
    """Returns the record with more that waits; of two definitions at one place the second comes after a decision."""
    added = [(place, one) for place, one in waiting.items() if place not in record.waiting]
    return replace(record, waiting={**record.waiting, **dict(added[: max(0, _MAX_WAITING - len(record.waiting))])})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def _binding(owner: str, config: UpstreamConfig) -> bytes:
    return f"{owner}\n{config.name}".encode(errors="surrogatepass")


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
