"""Counts the tokens that servers cost a model: all definitions as hosts show them now, or the gateway's meta-tools."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec import Struct

from deltamcp import tokens
from deltamcp.catalog import discovery
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.items.operation import ToolOptions
from deltamcp.catalog.items.remote_items import RemoteOperation
from deltamcp.catalog.meta_tools import DetailLevel
from deltamcp.catalog.view import View
from deltamcp.context import Context
from deltamcp.errors import DeltaError
from deltamcp.gateway.config import DEFAULT_RESULTS, GatewayConfig
from deltamcp.gateway.item_names import NamedItem, ascii_segment, distinct_names, distinct_segments
from deltamcp.values import JSON

GATEWAY_DISCLOSURE = Disclosure("meta", query=True)
"""How a gateway shows its operations unless it is told otherwise."""
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
    """Those that a host is told."""
    instructions: str = ""
    operations: list[dict[str, JSON]] | None = None
    """Those that a gateway is told: a server of this library tells it what is behind its own meta-tools, and not of
    `continue`, by which a model reads on. None where it is told the same as a host."""
    pinned: tuple[str, ...] = ()
    """Globs of tools that stay listed beside the meta-tools."""


class _GatewayCatalog(NamedTuple):
    """What a gateway offers of servers."""

    view: View
    operations: dict[tuple[str, str], RemoteOperation]
    """By server and tool."""
    refused: dict[str, str]


class ToolCost(Struct, frozen=True):
    """One tool's tokens."""

    server: str
    name: str
    now: int
    """The definition, which every conversation pays for now."""
    schema: int | None
    """One `get_schema` of the tool; None if the gateway's catalog refuses the tool."""


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
    """Tools that the gateway's catalog refuses, as `server/tool`, with the reason. Their cost now is counted."""


def count_costs(listings: Sequence[ServerListing], model: str | float = "o200k") -> ServerCosts:
    """Counts what servers cost, each alone and all together, as `tokens.count` does for a model.

    The servers' names must be unique.
    """
    gateway = _make_gateway_catalog(listings, GATEWAY_DISCLOSURE)
    tools = [cost for listing in listings for cost in _tool_costs(listing, gateway, model)]
    by_server = {listing.name: count_together([listing], model) for listing in listings}
    together = count_together(listings, model)
    return ServerCosts(by_server, together, sorted(tools, key=lambda cost: -cost.now), gateway.refused)


def count_together(
    listings: Sequence[ServerListing], model: str | float = "o200k", disclosure: Disclosure = GATEWAY_DISCLOSURE
) -> Cost:
    """Counts what one server costs, or several together."""
    costs = _make_gateway_catalog(listings, disclosure).view.count_surface_costs(model)
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


class GatewayCost(NamedTuple):
    """What a gateway of a configuration costs, beside what the servers behind it would cost without it."""

    together: Cost
    now: int
    """What it costs a conversation before it begins."""
    shows_all: bool
    """Whether it lists all tools, so that it costs what they do."""


def count_gateway(
    config: GatewayConfig, listings: Sequence[ServerListing], model: str | float = "o200k"
) -> GatewayCost:
    """Counts what a gateway costs, as its configuration has it show the servers behind it."""
    disclosure = Disclosure("meta", query=config.query, destructive=config.destructive)
    together = count_together(listings, model, disclosure)
    shows_all = config.disclosure == "full" or (config.disclosure == "auto" and together.now <= together.surface)
    return GatewayCost(together, together.now if shows_all else together.surface, shows_all)


def count_index_tokens(lines: Iterable[tuple[str, str]]) -> int:
    """Counts the tokens of an index: a line for each name and summary."""
    return tokens.count("\n".join(f"{name}: {summary}" if summary else name for name, summary in lines))


def _tool_costs(listing: ServerListing, gateway: _GatewayCatalog, model: str | float) -> list[ToolCost]:
    costs = []
    for tool in listing.tools:
        name = str(tool.get("name"))
        operation = gateway.operations.get((listing.name, name))
        schema = (
            None
            if operation is None
            else tokens.count(
                discovery.schemas_text(
                    gateway.view, discovery.find_schemas(gateway.view, [operation.id]), DetailLevel.NOTES
                ),
                model,
            )
        )
        costs.append(ToolCost(listing.name, name, definition_tokens(tool, model), schema))
    return costs


def _make_gateway_catalog(listings: Sequence[ServerListing], disclosure: Disclosure) -> _GatewayCatalog:
    """Returns the catalog that a gateway has of these servers, with the names that it gives their tools."""
    catalog = Catalog("gateway", disclosure=disclosure, results=DEFAULT_RESULTS)
    operations: dict[tuple[str, str], RemoteOperation] = {}
    refused: dict[str, str] = {}
    server_names = [listing.name for listing in listings]
    categories = dict(zip(server_names, distinct_segments(server_names, ("index",)), strict=True))
    prefixes = dict(zip(server_names, distinct_segments(server_names, ("index",), ascii_segment), strict=True))
    for listing in listings:
        tools: dict[str, dict[str, JSON]] = {}
        for tool in listing.tools if listing.operations is None else listing.operations:
            name = str(tool.get("name"))
            if not isinstance(tool.get("name"), str) or name in tools:
                refused[f"{listing.name}/{name}"] = "It is listed twice." if name in tools else "It has no name."
            else:
                tools[name] = tool
        category = categories[listing.name]
        items = [NamedItem(listing.name, name) for name in tools]
        shown = distinct_names(items, prefixes, has_prefix=len(listings) > 1)
        actions = distinct_segments([*tools])
        for (name, tool), shown_name, action in zip(tools.items(), shown, actions, strict=True):
            is_pinned = any(fnmatchcase(name, glob) for glob in listing.pinned)
            options: ToolOptions = {"name": shown_name, "category": category, "action": action, "pinned": is_pinned}
            try:
                operations[listing.name, name] = operation = RemoteOperation(_answer_nothing, tool, **options)
                catalog.add(operation)
            except DeltaError as error:
                operations.pop((listing.name, name), None)
                refused[f"{listing.name}/{name}"] = str(error)
    return _GatewayCatalog(catalog.view(), operations, refused)


async def _answer_nothing(arguments: dict[str, JSON], context: Context) -> None: ...
