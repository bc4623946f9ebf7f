"""Compares what an upstream lists with what was approved of it, and decides what is offered. Pure: does no I/O.

Lists of resources grow with data: files, tables, notes. A name that is a part of a resource's own URI is data, as the
URI is. All else that a model may read in the list is text that somebody has to approve.
"""

import enum
import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from deltamcp.catalog.text.clean_text import json_text, visible_line
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.definition import (
    Variance,
    definition_form,
    definition_hash,
    is_identical,
    pointer,
    reordered_texts,
    varying_numbers,
)
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.values import JSON

_MAX_URI_CHARS, _MAX_SEGMENT_CHARS, _MAX_SEGMENT_WORDS = 512, 128, 12
"""Of a URI that is data, decoded: what is longer could be a text for the model."""
_WORD = re.compile(r"\w+")
_WORD_ENDS = re.compile(r"[\s_+.,-]+")
_MIME_TYPE = re.compile(r"[A-Za-z0-9.+_-]{1,30}/[A-Za-z0-9.+_-]{1,80}(?:; ?[A-Za-z0-9_-]{1,20}=[A-Za-z0-9._-]{1,30})?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]{4,18}(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?")
_ROLES = ("user", "assistant")
_OWN = "…"


def resource_text(resource: JSON) -> str:
    """Returns what a resource says, without what it is called: two that say the same of themselves are equal.

    It is empty if the resource says nothing that is not data.
    """
    names = _own_names(resource.get("uri")) if isinstance(resource, dict) else None
    if names is None:
        return json.dumps(resource, sort_keys=True)
    said = {key: _without_names(value, names) for key, value in resource.items() if not _is_data(key, value)}
    is_text = any(_WORD.search(value) if isinstance(value, str) else True for value in said.values())
    return json.dumps(said, sort_keys=True) if is_text else ""


def _own_names(uri: JSON) -> list[str] | None:
    """Returns what a resource may be called after its URI, the longest first; None if the URI may be a text."""
    decoded = unquote(uri) if isinstance(uri, str) and len(uri) <= 3 * _MAX_URI_CHARS else ""
    if not decoded or len(decoded) > _MAX_URI_CHARS or visible_line(decoded) != decoded:
        return None
    path = decoded.partition(":")[2].strip("/")
    segments = re.split(r"[/?#&=]", path)
    if any(len(one) > _MAX_SEGMENT_CHARS or len(_WORD_ENDS.split(one)) > _MAX_SEGMENT_WORDS for one in segments):
        return None
    *_, parent, last = ("", *segments)
    names = {decoded, str(uri), path, f"/{path}", last, last.rpartition(".")[0], parent, unquote(last)}
    return sorted(filter(None, names), key=len, reverse=True)


def _is_data(key: str, value: JSON) -> bool:
    match key:
        case "uri":
            return True
        case "size":
            return isinstance(value, int)
        case "mimeType":
            return isinstance(value, str) and _MIME_TYPE.fullmatch(value) is not None
        case "annotations":
            return isinstance(value, dict) and all(map(_is_plain_annotation, value, value.values()))
        case _:
            return False


def _is_plain_annotation(key: str, value: JSON) -> bool:
    match key:
        case "audience":
            return isinstance(value, list) and all(role in _ROLES for role in value)
        case "priority":
            return isinstance(value, int | float)
        case "lastModified":
            return isinstance(value, str) and _TIME.fullmatch(value) is not None
        case _:
            return False


def _without_names(value: JSON, names: list[str]) -> JSON:
    if not isinstance(value, str):
        return value
    for name in names:
        value = _without_name(value, name)
    return value


def _without_name(text: str, name: str) -> str:
    """Writes one character for each place where a name stands by itself."""
    kept, start = [], 0
    while (place := text.find(name, start)) >= 0:
        end = place + len(name)
        is_part = _is_word(text[place - 1 : place] + name[:1]) or _is_word(name[-1:] + text[end : end + 1])
        kept += [text[start:place], name if is_part else _OWN]
        start = end
    return "".join([*kept, text[start:]])


def _is_word(chars: str) -> bool:
    return len(chars) == 2 and _WORD.fullmatch(chars) is not None


INSTRUCTIONS = "/instructions"
REQUESTS = "/requests"
"""The pointer of what `UpstreamListing.requests` says; while it waits, nothing of the upstream is offered."""
ENTRY = "/entry"
KINDS = ("tools", "prompts", "resources", "templates", "instructions")
"""What is compared; a pointer begins with one of them."""
_FIRST_KINDS = ("tools", "prompts", "instructions")
"""What was compared when records did not say so."""
_MAX_APPROVED = 50_000
"""The definitions that a record has without anybody having approved them; more wait."""
_MAX_NAMED = 10
"""The names that a sentence of the log has."""


class ApprovalRecord(Struct, frozen=True, omit_defaults=True):
    """What is known of one upstream. The keys are JSON pointers into its lists, such as `/tools/search`.

    Of a project's file that lists servers, it is known what the file says of each: `upstream` is its path, and the keys
    begin with `ENTRY`.
    """

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
    kinds: tuple[str, ...] = _FIRST_KINDS
    """What was compared so far; what the upstream has of other kinds counts as first seen."""
    salt: str = ""
    """What digests of secrets in it are made with."""

    @property
    def is_blank(self) -> bool:
        """Whether the upstream has listed nothing yet."""
        return not (self.approved or self.waiting or self.rejected or self.kinds == KINDS)


class Verdict(enum.Enum):
    """Why a listed item is kept out."""

    CHANGED = "changed"
    NEW = "new"
    IMITATION = "imitation"
    ELSEWHERE = "elsewhere"
    """Its request would go where, or carry what, nobody approved."""
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
    listing: UpstreamListing,
    record: ApprovalRecord | None,
    imitations: Mapping[str, str] = MappingProxyType({}),
) -> Review:
    """Decides what of an upstream's lists is offered.

    An upstream that was never seen is approved as it is. Later a changed definition is kept out, and a new one, unless
    the operator accepts them. A new resource that says nothing but what it is called is offered; so is one that says
    what another one of the upstream says that was approved.

    Args:
        imitations: Sentences about items, by pointer, that are kept out because they look like another upstream's.
    """
    listed = dict(listed_definitions(listing))
    if record is None or record.is_blank:
        if not (listed or listing.resources):
            return Review(ApprovalRecord(config.name, {}), True, {}, [])
        first = _without_repetitions({place: one for place, one in listed.items() if place not in imitations})
        record = ApprovalRecord(config.name, first, kinds=_compared_kinds((), listing))
        if not imitations:
            note = f"{config.name}: first seen, so it is trusted as it is now: {_counts(listed)}"
            return Review(record, True, {}, [note] if listed else [])
    decided = _Decisions(config, record, imitations, listing)
    for place, definition in listed.items():
        decided.decide(place, definition)
    if REQUESTS in decided.withheld:
        decided.withheld = {**dict.fromkeys(listed, Verdict.ELSEWHERE), **decided.withheld}
    return Review(decided.new_record(listed), False, decided.withheld, list(decided.notes(listed)))


def listed_definitions(listing: UpstreamListing) -> Iterator[tuple[str, JSON]]:
    """Yields the definitions that count, each by its pointer; resources that are only data do not.

    Of several with one name or URI the first counts, which is the one that is offered.
    """
    seen: set[str] = set()
    for place, item in _named_items(listing):
        if place not in seen:
            seen.add(place)
            if kind_of(place) != "resources" or resource_text(item):
                yield place, item
    if listing.instructions:
        yield INSTRUCTIONS, listing.instructions
    if listing.requests is not None:
        yield REQUESTS, listing.requests


def _named_items(listing: UpstreamListing) -> Iterator[tuple[str, JSON]]:
    for kind, items in (("/tools", listing.tools), ("/prompts", listing.prompts)):
        for item in items:
            if isinstance(name := item.get("name"), str):
                yield pointer(kind, name), item
    for item in (*listing.resources, *listing.templates):
        kind, key = ("/templates", "uriTemplate") if "uriTemplate" in item else ("/resources", "uri")
        if isinstance(uri := item.get(key), str):
            yield pointer(kind, uri), item


def with_varying_numbers(record: ApprovalRecord, first: UpstreamListing, second: UpstreamListing) -> ApprovalRecord:
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


def kind_of(place: str) -> str:
    """Returns the one of `KINDS` that a pointer is of."""
    return place.split("/", 2)[1]


class _Decisions:
    def __init__(
        self,
        config: UpstreamConfig,
        record: ApprovalRecord,
        imitations: Mapping[str, str],
        listing: UpstreamListing,
    ) -> None:
        self._config = config
        self._listing = listing
        self._imitations = imitations
        self._record = record
        self._variance = Variance(config.varies, record.numbers)
        self._approved = dict(record.approved)
        self._confirmed = frozenset(record.confirmed)
        self._waiting: dict[str, JSON] = {}
        self.withheld: dict[str, Verdict] = {}
        self._added: list[str] = []
        self._accepted: list[str] = []
        approved = (item for item in record.approved.items() if kind_of(item[0]) == "resources")
        self._resource_texts = {self._resource_text(place, resource) for place, resource in approved} | {""}

    def decide(self, place: str, definition: JSON) -> None:
        if place == REQUESTS:
            self._decide_requests(definition)
            return
        is_known = place in self._record.approved
        if kind_of(place) not in self._record.kinds:
            self._approved[place] = definition
            return
        if kind_of(place) == "resources" and self._resource_text(place, definition) in self._resource_texts:
            return
        is_imitation = place in self._imitations and place not in self._confirmed
        if is_known and not is_imitation and self._is_same(place, definition, self._record.approved[place]):
            return
        if place in self._record.rejected and self._is_same(place, definition, self._record.rejected[place]):
            self.withheld[place] = Verdict.REJECTED
        elif is_imitation:
            self._withhold(place, definition, Verdict.IMITATION)
        elif is_known and self._config.on_changed == "quarantine":
            self._withhold(place, definition, Verdict.CHANGED)
        elif not is_known and (self._config.on_new == "quarantine" or len(self._approved) >= _MAX_APPROVED):
            self._withhold(place, definition, Verdict.NEW)
        else:
            self._approved[place] = definition
            (self._accepted if is_known else self._added).append(place)

    def _decide_requests(self, requests: JSON) -> None:
        """Decides whether requests may be sent; no policy of the operator accepts another place for them."""
        known = self._record.approved.get(REQUESTS)
        if known is None:
            self._approved[REQUESTS] = requests
        elif not _is_within(requests, known):
            if is_identical(requests, self._record.rejected.get(REQUESTS)):
                self.withheld[REQUESTS] = Verdict.REJECTED
            else:
                self._withhold(REQUESTS, requests, Verdict.CHANGED)

    def _withhold(self, place: str, definition: JSON, verdict: Verdict) -> None:
        self._waiting[place] = definition
        self.withheld[place] = verdict

    def _resource_text(self, place: str, resource: JSON) -> str:
        return resource_text(definition_form(place, resource, self._variance))

    def _is_same(self, place: str, definition: JSON, known: JSON) -> bool:
        if is_identical(definition, known):
            return True
        return definition_hash(place, definition, self._variance) == definition_hash(place, known, self._variance)

    def new_record(self, listed: dict[str, JSON]) -> ApprovalRecord:
        """Returns the record to keep; the old one if nothing has changed."""
        record = replace(
            self._record,
            approved=self._approved,
            waiting=self._waiting,
            vanished=self._vanished_places(listed),
            kinds=_compared_kinds(self._record.kinds, self._listing),
        )
        return self._record if is_identical(to_builtins(record), to_builtins(self._record)) else record

    def _vanished_places(self, listed: dict[str, JSON]) -> list[str]:
        gone, vanished = self._record.approved.keys() - listed.keys(), {*self._record.vanished}
        unknown = {place for place in gone - vanished if kind_of(place) in self._listing.faults}
        return sorted(place for place in gone - unknown if kind_of(place) != "resources")

    def notes(self, listed: dict[str, JSON]) -> Iterator[str]:
        """Yields what happened since the last review; what was told then is not told again."""
        command = approve_command(self._config.name)
        waits = [
            place
            for place, definition in self._waiting.items()
            if place not in self._record.waiting or not is_identical(definition, self._record.waiting[place])
        ]
        vanished = sorted({*self._vanished_places(listed)} - {*self._record.vanished})
        told = {
            "now says something else of {}, which is kept out until you approve it: " + command: [
                place for place in waits if self.withheld[place] is Verdict.CHANGED and place != REQUESTS
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
                yield f"{self._config.name} {sentence.replace('{}', _names(places), 1)}"
        if REQUESTS in waits:
            yield (
                f"{self._config.name} would send requests elsewhere, or with other credentials, than you approved, so "
                f"nothing of it is offered until you do: {command}"
            )
        for place in waits:
            if self.withheld[place] is Verdict.IMITATION:
                yield f"{self._imitations[place]}, and is kept out until you approve it: {command}"
        for place in [place for place in waits if self.withheld[place] is Verdict.CHANGED][:_MAX_NAMED]:
            if hint := variance_hint(self._record, place, self._waiting[place]):
                yield f"{self._config.name}: {hint}"


def _is_within(requests: JSON, known: JSON) -> bool:
    """Returns whether requests go nowhere else, and carry nothing else, than is known of them."""
    if not (isinstance(requests, dict) and isinstance(known, dict)):
        return False
    origins, known_origins = (
        {*map(str, value)} if isinstance(value := one.get("origins"), list) else set() for one in (requests, known)
    )
    security, known_security = (
        value if isinstance(value := one.get("security"), dict) else {} for one in (requests, known)
    )
    is_same = all(name in known_security and is_identical(row, known_security[name]) for name, row in security.items())
    return origins <= known_origins and is_same


def entry_name(place: str) -> str:
    """Returns the name of the server whose entry a pointer is of; empty if it is of something else."""
    return name_at(place) if place.startswith(f"{ENTRY}/") else ""


def approve_command(upstream: str) -> str:
    """Returns what the operator types at a shell to see what waits of an upstream."""
    return f"delta-mcp approve {shlex.quote(upstream)}"


def variance_hint(record: ApprovalRecord, place: str, definition: JSON) -> str:
    """Returns what to write into the configuration if a definition has only the words of the approved one in another
    order, as where a server prints a set; empty if it says something else."""
    if entry_name(place):
        return ""
    places = reordered_texts(place, record.approved.get(place), definition)
    if not places:
        return ""
    varies = ", ".join(map(json_text, places[:_MAX_NAMED]))
    return f"if the order of words in {_names([place])} differs at every start, add varies = [{varies}] to its server"


def _compared_kinds(before: Collection[str], listing: UpstreamListing) -> tuple[str, ...]:
    """Returns what of an upstream was compared at some time: before, or now, where it could be had."""
    return tuple(kind for kind in KINDS if kind in before or kind not in listing.faults)


def _without_repetitions(listed: dict[str, JSON]) -> dict[str, JSON]:
    """Leaves out resources that say what an earlier one says."""
    texts: set[str] = set()
    kept = {}
    for place, definition in listed.items():
        text = resource_text(definition) if kind_of(place) == "resources" else ""
        if text not in texts:
            kept[place] = definition
        if text:
            texts.add(text)
    return kept


def _counts(listed: dict[str, JSON]) -> str:
    counts = Counter(map(kind_of, listed))
    parts = [f"{counts[kind]} {kind if counts[kind] > 1 else kind[:-1]}" for kind in KINDS[:-1] if counts[kind]]
    texts = {INSTRUCTIONS: "its instructions", REQUESTS: "where its requests go"}
    parts += [text for place, text in texts.items() if place in listed]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _names(places: list[str]) -> str:
    shown = ", ".join(map(repr, map(name_at, places[:_MAX_NAMED])))
    return f"{shown} and {len(places) - _MAX_NAMED} more" if len(places) > _MAX_NAMED else shown
