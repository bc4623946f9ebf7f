"""Compares what an upstream lists with what was approved of it, and decides what is offered. Pure: does no I/O."""

import enum
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.definition_hash import Variance, definition_hash, is_identical, pointer, varying_numbers
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from deltamcp.values import JSON

INSTRUCTIONS = "/instructions"
_MAX_NAMED = 10
"""The names that a sentence of the log has."""


class ApprovalRecord(Struct, frozen=True, omit_defaults=True):
    """What is known of one upstream. The keys are JSON pointers into its lists, such as `/tools/search`."""

    upstream: str
    approved: dict[str, JSON]
    """The definitions that are offered, and those of items that have vanished, which must not come back changed."""
    waiting: dict[str, JSON] = {}
    """Definitions that are kept out until somebody approves or rejects them."""
    rejected: dict[str, JSON] = {}
    """Definitions that stay out; another one of the same name waits again."""
    vanished: list[str] = []
    confirmed: list[str] = []
    """What the user approved by hand, so that it may look like another upstream's."""
    numbers: list[str] = []
    """Texts that varied, by digits only, between two lists of one process when the upstream was first seen."""


class Verdict(enum.Enum):
    """Why a listed item is kept out."""

    CHANGED = "changed"
    NEW = "new"
    IMITATION = "imitation"
    REJECTED = "rejected"


class Review(NamedTuple):
    """What came of a review."""

    record: ApprovalRecord
    is_first_sight: bool
    withheld: dict[str, Verdict]
    """The items that are kept out, by pointer, and why."""
    notes: list[str]
    """Sentences for the log."""


def review(
    config: UpstreamConfig,
    catalogue: UpstreamCatalogue,
    record: ApprovalRecord | None,
    imitations: Mapping[str, str] = MappingProxyType({}),
) -> Review:
    """Decides what of an upstream's lists is offered.

    An upstream that was never seen is approved as it is. Later a changed definition is kept out, unless the operator
    accepts changes; a new one is offered and told, unless the operator has new ones approved, too.

    Args:
        imitations: Sentences about items, by pointer, that are kept out because they look like another upstream's.
    """
    catalogue = _with_unique_names(catalogue)
    listed = dict(listed_definitions(catalogue))
    if record is None or not (record.approved or record.waiting or record.rejected):
        note = f"{config.name}: first seen, so {_counts(listed)} are trusted as they are now"
        if not imitations:
            return Review(ApprovalRecord(config.name, listed), True, {}, [note] if listed else [])
        record = ApprovalRecord(config.name, {place: one for place, one in listed.items() if place not in imitations})
    decided = _Decisions(config, record, imitations)
    for place, definition in listed.items():
        decided.decide(place, definition)
    return Review(decided.new_record(listed), False, decided.withheld, list(decided.notes(listed)))


def listed_definitions(catalogue: UpstreamCatalogue) -> Iterator[tuple[str, JSON]]:
    """Yields the definitions that count, each by its pointer: tools, prompts and instructions."""
    for kind, items in (("/tools", catalogue.tools), ("/prompts", catalogue.prompts)):
        for item in items:
            if isinstance(name := item.get("name"), str):
                yield pointer(kind, name), item
    if catalogue.instructions:
        yield INSTRUCTIONS, catalogue.instructions


def with_varying_numbers(record: ApprovalRecord, first: UpstreamCatalogue, second: UpstreamCatalogue) -> ApprovalRecord:
    """Returns the record with what varied between two lists of one process."""
    again = dict(listed_definitions(second))
    found = {
        varying
        for place, definition in listed_definitions(first)
        for varying in varying_numbers(place, definition, again.get(place))
    }
    return replace(record, numbers=sorted(found)) if found else record


def approve(record: ApprovalRecord, places: Collection[str]) -> ApprovalRecord:
    """Returns the record with what waits, or was rejected, at some places approved."""
    out = {**record.rejected, **record.waiting}
    return replace(
        record,
        approved={**record.approved, **{place: out[place] for place in places if place in out}},
        waiting={place: definition for place, definition in record.waiting.items() if place not in places},
        rejected={place: definition for place, definition in record.rejected.items() if place not in places},
        confirmed=sorted({*record.confirmed, *(place for place in places if place in out)}),
    )


def reject(record: ApprovalRecord, places: Collection[str]) -> ApprovalRecord:
    """Returns the record with what waits at some places rejected."""
    return replace(
        record,
        waiting={place: definition for place, definition in record.waiting.items() if place not in places},
        rejected={
            **record.rejected,
            **{place: definition for place, definition in record.waiting.items() if place in places},
        },
    )


def name_at(place: str) -> str:
    """Returns the name of the item at a pointer."""
    return place.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


class _Decisions:
    def __init__(self, config: UpstreamConfig, record: ApprovalRecord, imitations: Mapping[str, str]) -> None:
        self._config = config
        self._imitations = imitations
        self._record = record
        self._variance = Variance(config.varies, record.numbers)
        self._approved = dict(record.approved)
        self._waiting: dict[str, JSON] = {}
        self.withheld: dict[str, Verdict] = {}
        self._added: list[str] = []
        self._accepted: list[str] = []

    def decide(self, place: str, definition: JSON) -> None:
        is_known = place in self._record.approved
        is_imitation = place in self._imitations and place not in self._record.confirmed
        if is_known and not is_imitation and self._is_same(place, definition, self._record.approved[place]):
            return
        if place in self._record.rejected and self._is_same(place, definition, self._record.rejected[place]):
            self.withheld[place] = Verdict.REJECTED
        elif is_imitation:
            self._withhold(place, definition, Verdict.IMITATION)
        elif is_known and self._config.on_changed == "quarantine":
            self._withhold(place, definition, Verdict.CHANGED)
        elif not is_known and self._config.on_new == "quarantine":
            self._withhold(place, definition, Verdict.NEW)
        else:
            self._approved[place] = definition
            (self._accepted if is_known else self._added).append(place)

    def _withhold(self, place: str, definition: JSON, verdict: Verdict) -> None:
        self._waiting[place] = definition
        self.withheld[place] = verdict

    def _is_same(self, place: str, definition: JSON, known: JSON) -> bool:
        if is_identical(definition, known):
            return True
        return definition_hash(place, definition, self._variance) == definition_hash(place, known, self._variance)

    def new_record(self, listed: dict[str, JSON]) -> ApprovalRecord:
        """Returns the record to keep; the old one if nothing has changed."""
        record = replace(
            self._record, approved=self._approved, waiting=self._waiting, vanished=self._vanished_places(listed)
        )
        return self._record if is_identical(to_builtins(record), to_builtins(self._record)) else record

    def _vanished_places(self, listed: dict[str, JSON]) -> list[str]:
        return sorted(self._record.approved.keys() - listed.keys())

    def notes(self, listed: dict[str, JSON]) -> Iterator[str]:
        """Yields what happened since the last review; what was told then is not told again."""
        command = f"delta-mcp approve {self._config.name}"
        waits = [
            place
            for place, definition in self._waiting.items()
            if place not in self._record.waiting or not is_identical(definition, self._record.waiting[place])
        ]
        vanished = [place for place in self._vanished_places(listed) if place not in self._record.vanished]
        told = {
            "now says something else of {}, which is kept out until you approve it: " + command: [
                place for place in waits if self.withheld[place] is Verdict.CHANGED
            ],
            "has something new, which is kept out until you approve it: {}: " + command: [
                place for place in waits if self.withheld[place] is Verdict.NEW
            ],
            "now says something else of {}, which its policy accepts": self._accepted,
            "has something new: {}": self._added,
            "no longer has {}": vanished,
        }
        for sentence, places in told.items():
            if places:
                yield f"{self._config.name} {sentence.format(_names(places))}"
        for place in waits:
            if self.withheld[place] is Verdict.IMITATION:
                yield f"{self._imitations[place]}, and is kept out until you approve it: {command}"


def _with_unique_names(catalogue: UpstreamCatalogue) -> UpstreamCatalogue:
    """Leaves out items without a name, and those whose name another one has: only one of them could be compared."""
    kept = {
        kind: list({item["name"]: item for item in reversed(items) if isinstance(item.get("name"), str)}.values())[::-1]
        for kind, items in (("tools", catalogue.tools), ("prompts", catalogue.prompts))
    }
    if len(kept["tools"]) == len(catalogue.tools) and len(kept["prompts"]) == len(catalogue.prompts):
        return catalogue
    return replace(catalogue, tools=kept["tools"], prompts=kept["prompts"])


def _counts(listed: dict[str, JSON]) -> str:
    tools = sum(place.startswith("/tools/") for place in listed)
    prompts = sum(place.startswith("/prompts/") for place in listed)
    parts = [f"{tools} tools" if tools else "", f"{prompts} prompts" if prompts else ""]
    return " and ".join(filter(None, [*parts, "its instructions" if INSTRUCTIONS in listed else ""]))


def _names(places: list[str]) -> str:
    shown = ", ".join(map(repr, map(name_at, places[:_MAX_NAMED])))
    return f"{shown} and {len(places) - _MAX_NAMED} more" if len(places) > _MAX_NAMED else shown
