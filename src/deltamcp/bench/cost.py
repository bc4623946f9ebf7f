"""Counts the tokens that servers cost a model: all definitions as hosts show them now, or the gateway's meta-tools."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from deltamcp import tokens
from deltamcp.catalog import discovery
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.meta_tools import DetailLevel
from deltamcp.catalog.remote_items import RemoteOperation
from deltamcp.catalog.view import View
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.gateway.config_file import DEFAULT_RESULTS
from deltamcp.gateway.item_names import distinct_segments
from deltamcp.values import JSON

METHOD = (
    "A tool as hosts put it before a model is {name, description, input_schema} as compact JSON, each "
    "counted by itself, as delta-mcp list, describe and bench and server.costs do; output schemas, annotations and "
    "titles are not sent to models and not counted, nor is what a host puts before a tool's name. A server alone, and "
    "all servers together, are compared with delta-mcp gateway without options: its meta-tools are counted the same "
    "way. Using one tool costs the meta-tools, one discover() and one get_schema(), with their default arguments; "
    "for get_schema() the mean over the tools counts, or over 64 to 127 of them. "
    "Instructions, which hosts put into the system prompt, are counted by themselves."
)


class ServerListing(Struct, frozen=True):
    """A server's tools, from every page of `tools/list`, and its instructions."""

    name: str
    tools: list[dict[str, JSON]]
    instructions: str = ""


class ToolCost(Struct, frozen=True):
    """One tool's tokens."""

    server: str
    name: str
    now: int
    """The definition, which every conversation pays for now."""
    schema: int | None
    """One `get_schema` of the tool; None if the gateway's catalogue refuses the tool."""


class Cost(Struct, frozen=True):
    """Tokens of a set of tools."""

    tools: int
    now: int
    """All definitions, up front."""
    instructions: int
    surface: int
    """The meta-tools, up front."""
    overview: int
    """One `discover`."""
    schema: int
    """One `get_schema`, on average."""
    one_tool: int
    """A conversation that uses one tool behind meta-tools: `surface`, `overview` and `schema`."""


class ServerCosts(Struct, frozen=True):
    """Tokens of several servers, each alone and all behind one gateway."""

    servers: dict[str, Cost]
    together: Cost
    tools: list[ToolCost]
    """Sorted by size, the largest first."""
    refused: dict[str, str]
    """Tools that the gateway's catalogue refuses, as `server/tool`, with the reason. Their cost now is counted."""


def count_costs(listings: Sequence[ServerListing], model: str | float = "o200k") -> ServerCosts:
    """Counts what servers cost, each alone and all together, as `tokens.count` does for a model.

    The servers' names must be unique.
    """
    gateway, refused = _make_gateway_catalogue(listings)
    tools = [cost for listing in listings for cost in _tool_costs(listing, gateway, model)]
    by_server = {listing.name: count_together([listing], model) for listing in listings}
    together = count_together(listings, model)
    return ServerCosts(by_server, together, sorted(tools, key=lambda cost: -cost.now), refused)


def count_together(listings: Sequence[ServerListing], model: str | float = "o200k") -> Cost:
    """Counts what one server costs, or several together."""
    view, _ = _make_gateway_catalogue(listings)
    costs = view.count_surface_costs(model)
    schema = round(costs.schema)
    return Cost(
        tools=sum(len(listing.tools) for listing in listings),
        now=sum(definition_tokens(tool, model) for listing in listings for tool in listing.tools),
        instructions=sum(tokens.count(listing.instructions, model) for listing in listings),
        surface=costs.meta,
        overview=costs.overview,
        schema=schema,
        one_tool=costs.meta + costs.overview + schema,
    )


def count_index_tokens(lines: Iterable[tuple[str, str]]) -> int:
    """Counts the tokens of an index: a line for each name and summary."""
    return tokens.count("\n".join(f"{name}: {summary}" if summary else name for name, summary in lines))


def _tool_costs(listing: ServerListing, gateway: View, model: str | float) -> list[ToolCost]:
    costs = []
    for tool in listing.tools:
        name = str(tool.get("name"))
        operation = gateway.operations.get(_id(listing, name))
        schema = (
            None
            if operation is None
            else tokens.count(discovery.schemas_text(gateway, [operation.id], DetailLevel.NOTES), model)
        )
        costs.append(ToolCost(listing.name, name, definition_tokens(tool, model), schema))
    return costs


def _make_gateway_catalogue(listings: Sequence[ServerListing]) -> tuple[View, dict[str, str]]:
    """Returns the catalogue that a gateway has of these servers, and the reasons for which it refuses tools."""
    catalog = Catalog("gateway", disclosure=Disclosure("meta", query=True), results=DEFAULT_RESULTS)
    refused: dict[str, str] = {}
    categories = distinct_segments([listing.name for listing in listings], reserved=("index",))
    for listing, category in zip(listings, categories, strict=True):
        actions = distinct_segments([str(tool.get("name")) for tool in listing.tools])
        for tool, action in zip(listing.tools, actions, strict=True):
            name = _id(listing, str(tool.get("name")))
            try:
                if not isinstance(tool.get("name"), str):
                    raise ConfigurationError("It has no name.")
                catalog.add(RemoteOperation(_answer_nothing, tool, name=name, category=category, action=action))
            except DeltaError as error:
                refused[name] = str(error)
    return catalog.view(), refused


async def _answer_nothing(arguments: dict[str, JSON], context: Context) -> None: ...


def _id(listing: ServerListing, name: str) -> str:
    return f"{listing.name}/{name}"
