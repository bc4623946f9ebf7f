"""What a server says of itself: its name, its instructions, and what it offers."""

from deltamcp.catalog.catalog import Catalog
from deltamcp.values import JSON, About, Filter, Kind


class Capabilities:
    """Follows the catalogue: what is registered while the server runs is offered from then on."""

    def __init__(self, catalog: Catalog, info: dict[str, JSON], instructions: str | None) -> None:
        self._catalog = catalog
        self._info = info
        self._instructions = instructions

    def about(self) -> About:
        """The server's description, for `initialize` and `server/discover`."""
        capabilities: dict[str, JSON] = {"logging": {}}
        if self._catalog.completions:
            capabilities["completions"] = {}
        if self.offers(Kind.PROMPTS):
            capabilities["prompts"] = {"listChanged": True}
        if self.offers(Kind.RESOURCES):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.offers(Kind.TOOLS):
            capabilities["tools"] = {"listChanged": True}
        return About(self._info, capabilities, self._instructions)

    def offers(self, kind: Kind) -> bool:
        catalog = self._catalog
        if kind is Kind.TOOLS:
            # A server without anything is taken for one whose tools are yet to come.
            return bool(catalog.operations) or not (catalog.prompts or catalog.resources or catalog.templates)
        if kind is Kind.PROMPTS:
            return bool(catalog.prompts)
        # Behind meta-tools operations are resources; under `auto` they may come to be.
        return bool(catalog.resources or catalog.templates) or catalog.view().may_cut_results

    def supported_filter(self, wanted: Filter) -> Filter:
        """The part of a subscription that this server can keep."""
        return Filter(frozenset(kind for kind in wanted.kinds if self.offers(kind)), wanted.uris)
