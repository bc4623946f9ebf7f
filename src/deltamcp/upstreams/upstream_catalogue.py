"""What an upstream lists, as it lists it. Pure: does no I/O."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from deltamcp.values import JSON, Kind

KINDS: Mapping[str, tuple[Kind, ...]] = {
    "tools": (Kind.TOOLS,),
    "resources": (Kind.RESOURCES, Kind.TEMPLATES),
    "prompts": (Kind.PROMPTS,),
}
"""The lists that a server has, by its capability, which is also what its notifications of changes name."""


class UpstreamCatalogue(Struct, frozen=True):
    """The lists of one upstream; items that are no objects are left out."""

    about: dict[str, JSON]
    """The result of `initialize` or `server/discover`."""
    protocol: str
    """The negotiated revision of MCP."""
    tools: list[dict[str, JSON]] = []
    resources: list[dict[str, JSON]] = []
    templates: list[dict[str, JSON]] = []
    prompts: list[dict[str, JSON]] = []

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
