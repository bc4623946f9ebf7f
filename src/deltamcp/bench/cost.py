"""Counts the tokens that servers cost a model: all definitions as hosts show them now, or the gateway's meta-tools."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TypeAlias

from msgspec import Struct

from deltamcp import tokens
from deltamcp.catalog import discovery
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.meta_tools import DetailLevel
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.view import View, model_facing_json
from deltamcp.context import Context
from deltamcp.errors import DeltaError
from deltamcp.values import JSON, Kind, Surface

METHOD = (
    "A tool as hosts put it before a model is {name, description, input_schema} as compact JSON, each "
    "counted by itself; output schemas, annotations and titles are not sent to models and not counted, nor is what a "
    "host puts before a tool's name. The gateway is planned. Behind it the model would see four meta-tools, counted "
    "the same way over a catalogue that was built of these tools, each server a category. Using one tool would cost "
    "the meta-tools, one discover() and one get_schema(), with their default arguments; for get_schema() the mean over "
    "all tools counts. "
    "Instructions, which hosts put into the system prompt, are counted by themselves."
)

CountTokens: TypeAlias = Callable[[str], int]


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
    """A conversation that uses one tool behind the gateway: `surface`, `overview` and `schema`."""


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
    count = functools.partial(tokens.count, model=model)
    view, refused = _make_catalogue(listings)
    tools = [cost for listing in listings for cost in _tool_costs(listing, view, count)]
    by_server = {
        listing.name: _add_up(
            [listing], _make_catalogue([listing])[0], [cost for cost in tools if cost.server == listing.name], count
        )
        for listing in listings
    }
    together = _add_up(listings, view, tools, count)
    return ServerCosts(by_server, together, sorted(tools, key=lambda cost: -cost.now), refused)


def count_together(listings: Sequence[ServerListing], tools: Iterable[ToolCost], model: str | float = "o200k") -> Cost:
    """Counts what some of the servers cost together; `tools` are the costs of all, as `count_costs` returned them."""
    names = {listing.name for listing in listings}
    own_tools = [tool for tool in tools if tool.server in names]
    return _add_up(listings, _make_catalogue(listings)[0], own_tools, functools.partial(tokens.count, model=model))


def _add_up(listings: Iterable[ServerListing], view: View, tools: Sequence[ToolCost], count: CountTokens) -> Cost:
    page = view.page(Kind.TOOLS, Surface.META, None)
    assert page is not None, "the first page is always there"
    schemas = [cost.schema for cost in tools if cost.schema is not None]
    surface = sum(definition_tokens(tool, count) for tool in page.items)
    overview = count(view.directory.overview)
    schema = round(fmean(schemas)) if schemas else 0
    return Cost(
        tools=len(tools),
        now=sum(cost.now for cost in tools),
        instructions=sum(count(listing.instructions) for listing in listings),
        surface=surface,
        overview=overview,
        schema=schema,
        one_tool=surface + overview + schema,
    )


def _tool_costs(listing: ServerListing, view: View, count: CountTokens) -> list[ToolCost]:
    costs = []
    for tool in listing.tools:
        name = str(tool.get("name"))
        operation = view.operations.get(_id(listing, name))
        schema = None if operation is None else count(discovery.schemas_text(view, [operation.id], DetailLevel.NOTES))
        costs.append(ToolCost(listing.name, name, definition_tokens(tool, count), schema))
    return costs


def definition_tokens(tool: dict[str, JSON], count: CountTokens = tokens.count) -> int:
    """Counts the tokens of a tool's definition as hosts show it to a model."""
    return count(model_facing_json([{"inputSchema": {}, **tool, "name": tool.get("name")}])[1:-1])


def _make_catalogue(listings: Iterable[ServerListing]) -> tuple[View, dict[str, str]]:
    """Returns the catalogue that a gateway would have of these servers, and the reasons for which it refused tools."""
    catalog = Catalog("gateway", disclosure=Disclosure("meta"))
    refused: dict[str, str] = {}
    categories: set[str] = set()
    for listing in listings:
        category = _category(listing.name, categories)
        for tool in listing.tools:
            name, description, schema = str(tool.get("name")), tool.get("description"), tool.get("inputSchema")
            try:
                catalog.add(
                    Operation(
                        _answer_nothing,
                        Context,
                        name=_id(listing, name),
                        category=category,
                        # The catalogue reads what stands before a dot as a category.
                        action=name.replace(".", "_"),
                        description=description if isinstance(description, str) else "",
                        input_schema=schema if isinstance(schema, dict) else {},
                    )
                )
            except DeltaError as error:
                refused[_id(listing, name)] = str(error)
    return catalog.view(), refused


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
