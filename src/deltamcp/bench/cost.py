"""What servers cost a model: their tools as hosts show them now, and behind our meta-tools; counted, not guessed."""

import re
from collections.abc import Iterable, Sequence
from statistics import fmean

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
    "Tokens of o200k. A tool as hosts put it before a model is {name, description, input_schema} as compact JSON, each "
    "counted by itself; output schemas, annotations and titles are not sent to models and not counted, nor is what a "
    "host puts before a tool's name. The gateway is planned. Behind it the model would see four meta-tools, counted "
    "the same way over a catalogue that was built of these tools, each server a category. Using one tool would cost "
    "the meta-tools, one discover() and one get_schema(), as they answer where no more is asked; of get_schema() the "
    "mean is told. "
    "Instructions, which hosts put into the system prompt, are counted by themselves."
)


class ServerListing(Struct, frozen=True):
    """What a server says of itself: its tools as `tools/list` gave them, every page, and its instructions."""

    name: str
    tools: list[dict[str, JSON]]
    instructions: str = ""


class ToolCost(Struct, frozen=True):
    """One tool's tokens."""

    server: str
    name: str
    now: int
    """Its definition, in every conversation."""
    schema: int | None
    """One `get_schema` of it, where it is used; None where our catalogue refuses it."""


class Cost(Struct, frozen=True):
    """Tokens of some tools."""

    tools: int
    now: int
    """Every definition, up front."""
    instructions: int
    surface: int
    """The meta-tools, up front."""
    overview: int
    """One `discover`."""
    schema: int
    """One `get_schema`, on average."""
    one_tool: int
    """A conversation that uses one: all three."""


class ServerCosts(Struct, frozen=True):
    """Tokens of several servers, each alone and all behind one gateway, as planned."""

    servers: dict[str, Cost]
    together: Cost
    tools: list[ToolCost]
    """The largest first."""
    refused: dict[str, str]
    """Tools that our catalogue does not take, as `server/tool`, and why. What they cost now is counted."""


def count_costs(listings: Sequence[ServerListing]) -> ServerCosts:
    """Counts what servers cost; each has a name of its own."""
    view, refused = _make_catalogue(listings)
    tools = [cost for listing in listings for cost in _tool_costs(listing, view)]
    alone = {
        one.name: _add_up([one], _make_catalogue([one])[0], [cost for cost in tools if cost.server == one.name])
        for one in listings
    }
    return ServerCosts(alone, _add_up(listings, view, tools), sorted(tools, key=lambda cost: -cost.now), refused)


def _add_up(listings: Iterable[ServerListing], view: View, tools: Sequence[ToolCost]) -> Cost:
    page = view.page(Kind.TOOLS, Surface.META, None)
    assert page is not None, "the first page is always there"
    schemas = [cost.schema for cost in tools if cost.schema is not None]
    surface, overview = sum(map(definition_tokens, page.items)), tokens.count(view.directory.overview)
    schema = round(fmean(schemas)) if schemas else 0
    return Cost(
        tools=len(tools),
        now=sum(cost.now for cost in tools),
        instructions=sum(tokens.count(listing.instructions) for listing in listings),
        surface=surface,
        overview=overview,
        schema=schema,
        one_tool=surface + overview + schema,
    )


def _tool_costs(listing: ServerListing, view: View) -> list[ToolCost]:
    made = []
    for tool in listing.tools:
        name = str(tool.get("name"))
        operation = view.operations.get(_id(listing, name))
        schema = (
            None if operation is None else tokens.count(discovery.schemas_text(view, [operation.id], DetailLevel.NOTES))
        )
        made.append(ToolCost(listing.name, name, definition_tokens(tool), schema))
    return made


def definition_tokens(tool: dict[str, JSON]) -> int:
    """Tokens of one tool as hosts put it before a model."""
    return tokens.count(model_facing_json([{"inputSchema": {}, **tool, "name": tool.get("name")}])[1:-1])


def _make_catalogue(listings: Iterable[ServerListing]) -> tuple[View, dict[str, str]]:
    """The catalogue that a gateway would have of these servers, and why some tools are not in it."""
    catalog = Catalog("gateway", disclosure=Disclosure("meta"))
    refused: dict[str, str] = {}
    categories: set[str] = set()
    for listing in listings:
        category = _category(listing.name, categories)
        for tool in listing.tools:
            name, described, schema = str(tool.get("name")), tool.get("description"), tool.get("inputSchema")
            try:
                catalog.add(
                    Operation(
                        _answer_nothing,
                        Context,
                        name=_id(listing, name),
                        category=category,
                        # A dot would make a category of what is a name.
                        action=name.replace(".", "_"),
                        description=described if isinstance(described, str) else "",
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
    """A server's name as a word of the tree, once."""
    word = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:50] or "server"
    # The catalogue has a use of its own for `index`.
    made = next(
        made for made in (word, *(f"{word}-{n}" for n in range(2, len(taken) + 3))) if made not in (*taken, "index")
    )
    taken.add(made)
    return made
