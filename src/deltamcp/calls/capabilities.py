"""The server's description of itself for clients: its name, instructions and capabilities."""

from collections.abc import Iterable

from deltamcp.catalog.catalog import Catalog
from deltamcp.values import JSON, About, Kind


class Capabilities:
    """Derives the server's capabilities from the catalogue, as it is at the time of the request."""

    def __init__(self, catalog: Catalog, info: dict[str, JSON], instructions: str | None) -> None:
        self._catalog = catalog
        self._info = info
        self.instructions = instructions
        self._promises = -1, False
        """Whether a tool may answer with a promise, in a version of the catalogue."""

    def about(self) -> About:
        """Returns the server's description, for `initialize` and `server/discover`."""
        capabilities: dict[str, JSON] = {"logging": {}}
        if self._catalog.completions or self._catalog.declares_completions:
            capabilities["completions"] = {}
        if self.offers(Kind.PROMPTS):
            capabilities["prompts"] = {"listChanged": True}
        if self.offers(Kind.RESOURCES):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.offers(Kind.TOOLS):
            capabilities["tools"] = {"listChanged": True}
        return About(self._info, capabilities, self.instructions, self.gives_promises)

    @property
    def gives_promises(self) -> bool:
        """Whether a tool may answer with a promise."""
        version, found = self._promises
        if version != self._catalog.version:
            found = any(operation.promise_policy != "never" for operation in self._catalog.operations.values())
            self._promises = self._catalog.version, found
        return found

    def offers(self, kind: Kind) -> bool:
        """Whether the server has items of a kind, or may get some while it runs."""
        catalog = self._catalog
        if kind in catalog.declared_kinds:
            return True
        if kind is Kind.TOOLS:
            # The author of an empty server is assumed to register tools later.
            return bool(catalog.operations) or not (catalog.prompts or catalog.resources or catalog.templates)
        if kind is Kind.PROMPTS:
            return bool(catalog.prompts)
        # Behind meta-tools operations are resources too, and `auto` may choose meta-tools later.
        return bool(catalog.resources or catalog.templates) or catalog.view().may_cut_results

    def offered_kinds(self, kinds: Iterable[Kind]) -> frozenset[Kind]:
        """Returns those of some kinds of lists that the server has."""
        return frozenset(kind for kind in kinds if self.offers(kind))
