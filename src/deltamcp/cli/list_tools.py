"""`delta-mcp list` prints a server's tools, one per line, and what they cost in tokens."""

import argparse
import asyncio

from deltamcp import tokens
from deltamcp.bench import cost
from deltamcp.cli import output, targets
from deltamcp.cli.progress import ProgressBar
from deltamcp.client.client import DeltaClient
from deltamcp.values import JSON


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp list [OPTIONS] TARGET..."
    verb.description = targets.TARGET_HELP
    targets.add_options(verb)
    targets.add_words_argument(verb, "TARGET")
    verb.set_defaults(run=lambda args: run(args, targets.read_words(args, verb)))


def run(args: argparse.Namespace, target: list[str]) -> None:
    with ProgressBar("Waiting for the server"):
        listing = asyncio.run(_fetch_listing(args, target))
    if args.json:
        output.print_json(listing)
        return
    server, tools, costs = listing["server"], listing["tools"], listing["tokens"]
    console = output.make_console()
    console.print(output.printable_text(f"{server['name']} {server['version']}".strip()), style="bold", end=" ")
    console.print(f"speaks {'' if server['protocol'].startswith('delta') else 'MCP '}{server['protocol']}")
    output.print_table("", ["", ""], [], ([tool["name"], tool["summary"]] for tool in tools), console)
    count = f"{len(tools)} tool{'s' * (len(tools) != 1)}"
    console.print(f"{count}: {costs['full']:,} tokens in full, {costs['index']:,} as these lines.")


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        tools = await client.tools()
        lines = "\n".join(f"{tool.name}: {tool.summary}" if tool.summary else tool.name for tool in tools)
        definitions = await client.describe()
        return {
            "server": server_summary(client),
            "tools": [{"name": tool.name, "summary": tool.summary} for tool in tools],
            "tokens": {"full": sum(map(cost.definition_tokens, definitions)), "index": tokens.count(lines)},
        }


def server_summary(client: DeltaClient) -> dict[str, JSON]:
    """Returns the server's name, version and protocol for `--json`."""
    server = client.server
    return {
        "name": server.name,
        "version": server.version,
        "protocol": server.protocol,
        "era": server.era.value,
        "encoding": server.encoding,
    }
