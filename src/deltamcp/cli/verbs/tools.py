"""`delta-mcp list` prints a server's tools and what they cost in tokens; `delta-mcp describe` prints one of them whole.

Of a list each tool is a line. A server of this library tells the client every operation, also those that a host reaches
only by meta-tools.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING

from deltamcp import tokens
from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.content import print_listing, server_summary
from deltamcp.cli.terminal.output import ProgressBar
from deltamcp.client.options import ClientOptions
from deltamcp.costs.cost import count_index_tokens
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp list [OPTIONS] TARGET...", "TARGET", run)
    verb.add_argument("--as-host", action="store_true", help="the tools that a host sees, with their descriptions")


def run(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, target, _fetch_listing(args, target), _print_tools)


def _print_tools(listing: dict[str, JSON], console: "Console") -> None:
    tools, costs = listing["tools"], listing["tokens"]
    console.print(_surface_line(listing["surface"]))
    rows = ([tool["name"], output.quoted_lines(_about(tool))] for tool in tools)
    output.print_table("", ["", ""], [], rows, console)
    count = f"{len(tools)} tool{'s' * (len(tools) != 1)}"
    console.print(f"{count}: {costs['full']:,} tokens in full, {costs['index']:,} as these lines.")


def _about(tool: dict[str, JSON]) -> str:
    """Returns the summary of a line of the index, or the description of a definition."""
    about = tool.get("summary", tool.get("description"))
    return about if isinstance(about, str) else ""


def _surface_line(surface: dict[str, JSON]) -> str:
    if surface["shown"] == "host":
        return "What a host sees:"
    if not surface["hidden"]:
        return "Plain tools, as a host sees them:"
    hidden, seen = surface["hidden"], surface["hostTools"]
    return (
        f"{hidden} operation{'s' * (hidden != 1)} behind the {seen} tool{'s' * (seen != 1)} that a host sees "
        "(--as-host lists those):"
    )


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    options: ClientOptions = {"timeout": targets.LIST_SECONDS, "progressive": not args.as_host}
    async with targets.make_client(args, target, **options) as client:
        definitions = await client.describe()
        index = [{"name": tool.name, "summary": tool.summary} for tool in await client.tools()]
        summary, has_operations = server_summary(client), client.server.progressive is not None and not args.as_host
    names = [tool["name"] for tool in index]
    host_names = await _fetch_host_names(args, target) if has_operations else set(names)
    tools = definitions if args.as_host else index
    lines = [(tool["name"], _about(tool)) for tool in tools]
    return {
        "server": summary,
        "surface": {
            "shown": "host" if args.as_host else "operations",
            "hostTools": len(host_names),
            "hidden": sum(name not in host_names for name in names),
        },
        "tools": tools,
        "tokens": {"full": sum(map(definition_tokens, definitions)), "index": count_index_tokens(lines)},
    }


async def _fetch_host_names(args: argparse.Namespace, target: list[str]) -> set[str]:
    """Asks the server once more, as a host does: what it lists depends on what the client declares."""
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS, progressive=False) as client:
        return {tool.name for tool in await client.tools()}


def set_up_describe(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp describe [OPTIONS] TARGET... TOOL", "TARGET TOOL", run_describe)


def run_describe(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise targets.missing_word(words, "describe TARGET... TOOL", "tool", "list")
    label = f"Waiting for {targets.name_target(words)}"
    with ProgressBar(label), targets.explain_word(words[:-1], words[-1], "tool"):
        definition = asyncio.run(_fetch_definition(args, words[:-1], words[-1]))
    if args.json:
        output.print_json(definition)
        return
    text = tool_text.full_text(definition, visible_line(words[-1]))
    output.print_text(text)
    figures = f"{tokens.count(text):,} tokens so, {definition_tokens(definition):,} in full"
    console = output.make_console()
    console.print()
    console.print(f"{figures}.", style="dim")


async def _fetch_definition(args: argparse.Namespace, target: list[str], tool: str) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return (await client.describe(tool))[0]
