"""What a server says of itself to clients."""

from collections.abc import Iterable

from deltamcp.catalog.catalog import Catalog
from deltamcp.values import JSON, LOCAL, About, Kind, Principal


class Capabilities:
    """Derives the server's capabilities from what a principal is offered at the time of its request."""

    def __init__(self, catalog: Catalog, info: dict[str, JSON]) -> None:
        self._catalog = catalog
        self._info = info

    def about(self, principal: Principal) -> About:
        """Returns the server's description, for `initialize` and `server/discover`."""
        catalog = self._catalog.of(principal)
        capabilities: dict[str, JSON] = {"logging": {}}
        if self.completes(principal):
            capabilities["completions"] = {}
        if self.offers(Kind.PROMPTS, principal):
            capabilities["prompts"] = {"listChanged": True}
        if self.offers(Kind.RESOURCES, principal):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.offers(Kind.TOOLS, principal):
            capabilities["tools"] = {"listChanged": True}
        return About(self._info, capabilities, catalog.instructions, catalog.gives_promises)

    def gives_promises(self, principal: Principal) -> bool:
        """Whether a tool may answer with a promise."""
        return self._catalog.of(principal).gives_promises

    def completes(self, principal: Principal) -> bool:
        """Whether arguments of prompts or templates may be completed."""
        return self._catalog.of(principal).completes

    def offers(self, kind: Kind, principal: Principal) -> bool:
        """Whether the server has items of a kind, or may get some while it runs."""
        catalog = self._catalog.of(principal)
        if kind in catalog.kinds:
            return True
        if kind is Kind.TOOLS:
            # The author of an empty server is assumed to register tools later.
            return bool(catalog.operations) or not (catalog.prompts or catalog.resources or catalog.templates)
        if kind is Kind.PROMPTS:
            return bool(catalog.prompts)
        # Behind meta-tools operations are resources too, and `auto` may choose meta-tools later.
        return bool(catalog.resources or catalog.templates) or catalog.scoped_view(LOCAL).may_cut_results

    def offered_kinds(self, kinds: Iterable[Kind], principal: Principal) -> frozenset[Kind]:
        """Returns those of some kinds of lists that the server has."""
        return frozenset(kind for kind in kinds if self.offers(kind, principal))
