"""Reviews what an upstream lists to principals with logins of their own.

Approvals are of definitions, whoever is listed them. What a principal is listed first is trusted as it is, unless the
same definition waits or was rejected elsewhere; a later change is kept out until somebody approves it. Of what is
trusted, digests are in the store of the server, sealed for their principal as its logins are.
"""

import asyncio
import datetime
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.approvals import Approvals, load
from deltamcp.gateway.trust.definition import Variance, definition_form, definition_hash
from deltamcp.gateway.trust.review import (
    KINDS,
    ApprovalRecord,
    Verdict,
    approve_command,
    kind_of,
    listed_definitions,
    resource_text,
    with_varying_numbers,
)
from deltamcp.runtime.seal import Seal
from deltamcp.stores.store import SharedStore
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import KEEP_SECONDS
from deltamcp.values import JSON, Principal

logger: logging.Logger = logging.getLogger("deltamcp")

_MAX_WAITING = 1_000
"""The definitions of an upstream that wait because of principals; further ones are kept out all the same."""
_DIGEST_CHARS = 20


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
