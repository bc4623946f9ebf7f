"""`delta-mcp list` prints a server's tools, one per line, and what they cost in tokens.

A server of this library tells the client every operation, also those that a host reaches only by meta-tools.
"""

import argparse
import asyncio

from deltamcp import tokens
from deltamcp.bench import cost
from deltamcp.cli import output, targets
from deltamcp.cli.progress import ProgressBar
from deltamcp.cli.server_line import print_server_line, server_summary
from deltamcp.client.options import ClientOptions
from deltamcp.values import JSON


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp list [OPTIONS] TARGET..."
    verb.description = targets.TARGET_HELP
    targets.add_options(verb)
    verb.add_argument("--as-host", action="store_true", help="the tools that a host sees, with their descriptions")
    targets.add_words_argument(verb, "TARGET")
    verb.set_defaults(run=lambda args: run(args, targets.read_words(args, verb)))


def run(args: argparse.Namespace, target: list[str]) -> None:
    with ProgressBar("Waiting for the server"):
        listing = asyncio.run(_fetch_listing(args, target))
    if args.json:
        output.print_json(listing)
        return
    tools, costs = listing["tools"], listing["tokens"]
    console = output.make_console()
    print_server_line(listing["server"], console)
    console.print(_surface_line(listing["surface"]))
    about = "description" if args.as_host else "summary"
    output.print_table("", ["", ""], [], ([tool["name"], tool.get(about) or ""] for tool in tools), console)
    count = f"{len(tools)} tool{'s' * (len(tools) != 1)}"
    console.print(f"{count}: {costs['full']:,} tokens in full, {costs['index']:,} as these lines.")


def _surface_line(surface: dict[str, JSON]) -> str:
    count = surface["hostTools"]
    if surface["shown"] == "host":
        return "What a host sees:"
    if not surface["hidden"]:
        return "Plain tools, as a host sees them:"
    seen = f"{count} tool{'s' * (count != 1)}"
    return f"{surface['hidden']} operations behind the {seen} that a host sees (--as-host lists those):"


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    options: ClientOptions = {"timeout": targets.LIST_SECONDS, "progressive": not args.as_host}
    async with targets.make_client(args, target, **options) as client:
        tools = await client.tools()
        lines = "\n".join(f"{tool.name}: {tool.summary}" if tool.summary else tool.name for tool in tools)
        definitions = await client.describe()
        summary, hides = server_summary(client), client.server.progressive is not None and not args.as_host
    host_names = await _fetch_host_names(args, target) if hides else {tool.name for tool in tools}
    return {
        "server": summary,
        "surface": {
            "shown": "host" if args.as_host else "operations",
            "hostTools": len(host_names),
            "hidden": sum(tool.name not in host_names for tool in tools),
        },
        "tools": definitions if args.as_host else [{"name": tool.name, "summary": tool.summary} for tool in tools],
        "tokens": {"full": sum(map(cost.definition_tokens, definitions)), "index": tokens.count(lines)},
    }


async def _fetch_host_names(args: argparse.Namespace, target: list[str]) -> set[str]:
    """Asks the server once more, as a host does: what it lists depends on what the client declares."""
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS, progressive=False) as client:
        return {tool.name for tool in await client.tools()}
