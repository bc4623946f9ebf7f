"""Counts the tokens that servers cost a model: all definitions as hosts show them now, or the gateway's meta-tools."""

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Unpack

from msgspec import Struct

from deltamcp import tokens
from deltamcp.catalog import discovery
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.meta_tools import DetailLevel
from deltamcp.catalog.operation import Operation, ToolOptions
from deltamcp.catalog.view import View
from deltamcp.context import Context
from deltamcp.errors import DeltaError
from deltamcp.values import JSON

METHOD = (
    "A tool as hosts put it before a model is {name, description, input_schema} as compact JSON, each "
    "counted by itself, as delta-mcp list, describe and bench and server.costs do; output schemas, annotations and "
    "titles are not sent to models and not counted, nor is what a host puts before a tool's name. A server alone is "
    "compared with the same tools behind four meta-tools of its own, which are counted the same way. All servers "
    "together are compared with a gateway, which is planned: the meta-tools over a catalogue with each server as a "
    "category. Using one tool costs the meta-tools, one discover() and one get_schema(), with their default arguments; "
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
    """Tokens of several servers, each alone and all behind one gateway, as planned."""

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
    view = _make_catalogue(listings[0]) if len(listings) == 1 else _make_gateway_catalogue(listings)[0]
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


def _make_catalogue(listing: ServerListing) -> View:
    """Returns the catalogue that the server would have behind meta-tools of its own, without the tools it refuses."""
    catalog = Catalog(listing.name, disclosure=Disclosure("meta"))
    for tool in listing.tools:
        with contextlib.suppress(DeltaError):
            catalog.add(_make_operation(tool, name=str(tool.get("name"))))
    return catalog.view()


def _make_gateway_catalogue(listings: Iterable[ServerListing]) -> tuple[View, dict[str, str]]:
    """Returns the catalogue that a gateway would have of these servers, and the reasons for which it refused tools."""
    catalog = Catalog("gateway", disclosure=Disclosure("meta"))
    refused: dict[str, str] = {}
    categories: set[str] = set()
    for listing in listings:
        category = _category(listing.name, categories)
        for tool in listing.tools:
            name = str(tool.get("name"))
            try:
                # The catalogue reads what stands before a dot as a category.
                action = name.replace(".", "_")
                catalog.add(_make_operation(tool, name=_id(listing, name), category=category, action=action))
            except DeltaError as error:
                refused[_id(listing, name)] = str(error)
    return catalog.view(), refused


def _make_operation(tool: dict[str, JSON], **options: Unpack[ToolOptions]) -> Operation:
    description, schema = tool.get("description"), tool.get("inputSchema")
    options["description"] = description if isinstance(description, str) else ""
    options["input_schema"] = schema if isinstance(schema, dict) else {}
    return Operation(_answer_nothing, Context, **options)


async def _answer_nothing(arguments: dict[str, JSON]) -> None: ...


def _id(listing: ServerListing, name: str) -> str:
    return f"{listing.name}/{name}"


def _category(name: str, taken: set[str]) -> str:
    """Converts a server's name to a category that is not taken yet."""
    word = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:50] or "server"
    candidates = (word, *(f"{word}-{n}" for n in range(2, len(taken) + 3)))
    # The catalogue reserves `index`.
    category = next(candidate for candidate in candidates if candidate not in (*taken, "index"))
    taken.add(category)
    return category
