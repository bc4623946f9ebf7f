"""What an upstream lists, as it lists it. Pure: does no I/O."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.dialects import progressive_disclosure
from deltamcp.runtime.secrets import Secrets
from deltamcp.values import JSON, Kind
from deltamcp.work import unlimited_work

KINDS: Mapping[str, tuple[Kind, ...]] = {
    "tools": (Kind.TOOLS,),
    "resources": (Kind.RESOURCES, Kind.TEMPLATES),
    "prompts": (Kind.PROMPTS,),
}
"""The lists that a server has, by its capability, which is also what its notifications of changes name."""
_NAMES: Mapping[str, str] = {"tools": "name", "resources": "uri", "templates": "uriTemplate", "prompts": "name"}
"""What requests name an item by, by its list."""

_OPERATION_PATH, _RESULT_PATH = "operations/{+path}", "results/{handle}{+path}"
"""How the templates of operations and of results end, which servers of this library list beside meta-tools."""

MAX_NAME_CHARS = 128
"""The longest name of a tool or a prompt that is taken; MCP 2025-11-25, "Tool Names", has no longer ones."""


MAX_ITEMS = 10_000
"""The items of each list of an upstream that are taken."""


class UpstreamListing(Struct, frozen=True):
    """The lists of one upstream; items that are no objects are left out."""

    about: dict[str, JSON]
    """The result of `initialize` or `server/discover`."""
    protocol: str
    """The negotiated revision of MCP."""
    tools: list[dict[str, JSON]] = []
    resources: list[dict[str, JSON]] = []
    templates: list[dict[str, JSON]] = []
    prompts: list[dict[str, JSON]] = []
    left_out: dict[str, int] = {}
    """How many items are left out that the upstream lists, by list; see `within_bounds` and `without`."""
    faults: dict[str, str] = {}
    """Why a list could not be had, by list; the others are as they are."""
    ids: dict[str, str] = {}
    """The ids of its operations, by tool name, where an upstream of this library has others than the names."""
    requests: JSON = None
    """Where requests go, and what they carry, of an upstream whose requests this process sends; else None."""

    @property
    def is_ours(self) -> bool:
        """Whether the upstream is a server of this library, whose results are whole for those who ask for that."""
        extensions = (self.capabilities.get(key) for key in ("extensions", "experimental"))
        return any(map(progressive_disclosure.is_declared, extensions))

    @property
    def capabilities(self) -> dict[str, JSON]:
        declared: Any = self.about.get("capabilities")
        return declared if isinstance(declared, dict) else {}

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of lists that the upstream says it has."""
        return frozenset(kind for name, kinds in KINDS.items() if name in self.capabilities for kind in kinds)

    @property
    def instructions(self) -> str:
        text = self.about.get("instructions")
        return text if isinstance(text, str) else ""

    def with_lists_of(self, known: "UpstreamListing") -> "UpstreamListing":
        """Returns the catalog with those lists as they were known before that could not be had."""
        if not self.faults:
            return self
        ids = known.ids if "tools" in self.faults else self.ids
        return replace(self, **{kind: getattr(known, kind) for kind in self.faults}, ids=ids)

    def of_operations(self) -> "UpstreamListing":
        """Returns the catalog without the resources that repeat the operations of an upstream of this library, or
        are results that it cut: what is behind it is offered here, and cut here."""
        bases = [
            uri.removesuffix(_OPERATION_PATH)
            for item in self.templates
            if isinstance(uri := item.get("uriTemplate"), str) and uri.endswith(_OPERATION_PATH)
        ]
        if not self.is_ours or not bases:
            return self
        repeated = tuple(f"{base}operations/" for base in bases)
        own = {f"{base}{path}" for base in bases for path in (_OPERATION_PATH, _RESULT_PATH)}
        return replace(
            self,
            resources=[item for item in self.resources if not str(item.get("uri")).startswith(repeated)],
            templates=[item for item in self.templates if item.get("uriTemplate") not in own],
        )

    def within_bounds(self) -> "UpstreamListing":
        """Returns the catalog without tools and prompts whose names are too long, and without what each list has
        beyond the first `MAX_ITEMS`; it counts what is left out."""
        kept = {kind: [item for item in getattr(self, kind) if not _is_named_too_long(kind, item)] for kind in _NAMES}
        bounded = {kind: items[:MAX_ITEMS] for kind, items in kept.items()}
        left_out = {kind: len(getattr(self, kind)) - len(items) for kind, items in bounded.items()}
        if not any(left_out.values()):
            return self
        return replace(self, **bounded, left_out={kind: count for kind, count in left_out.items() if count})

    def without(self, credentials: Secrets) -> "UpstreamListing":
        """Returns the catalog without credentials of the upstream's entry; an item that is named by one is left out
        and counted, as no request could name it."""
        shown: UpstreamListing = credentials.redact_result(self, unlimited_work())
        if shown is self:
            return self
        kept: dict[str, list[dict[str, JSON]]] = {}
        left_out = dict(self.left_out)
        for kind, key in _NAMES.items():
            pairs = [*zip(getattr(self, kind), getattr(shown, kind), strict=True)]
            kept[kind] = [item for before, item in pairs if item.get(key) == before.get(key)]
            if len(kept[kind]) < len(pairs):
                left_out[kind] = left_out.get(kind, 0) + len(pairs) - len(kept[kind])
        return replace(shown, **kept, left_out=left_out)


def _is_named_too_long(kind: str, item: Mapping[str, JSON]) -> bool:
    name = item.get("name")
    return kind in ("tools", "prompts") and isinstance(name, str) and len(name) > MAX_NAME_CHARS
