"""`delta-mcp list`: what a server offers, a line a tool."""

import argparse
import asyncio

from deltamcp import tokens
from deltamcp.bench import cost
from deltamcp.cli import output, targets
from deltamcp.cli.waiting import Waiting
from deltamcp.client.client import DeltaClient
from deltamcp.values import JSON


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp list [OPTIONS] TARGET..."
    verb.description = targets.ORDER
    targets.options_to(verb)
    targets.words_to(verb, "TARGET")
    verb.set_defaults(run=lambda given: run(given, targets.words_of(given, verb)))


def run(given: argparse.Namespace, target: list[str]) -> None:
    with Waiting("Waiting for the server"):
        listed = asyncio.run(_listed(given, target))
    if given.json:
        output.as_json(listed)
        return
    server, tools, costs = listed["server"], listed["tools"], listed["tokens"]
    console = output.console()
    console.print(output.printable(f"{server['name']} {server['version']}".strip()), style="bold", end=" ")
    console.print(f"speaks {'' if server['protocol'].startswith('delta') else 'MCP '}{server['protocol']}")
    output.table("", ["", ""], [], ([tool["name"], tool["summary"]] for tool in tools), console)
    many = f"{len(tools)} tool{'s' * (len(tools) != 1)}"
    console.print(f"{many}: {costs['full']:,} tokens in full, {costs['index']:,} as these lines.")


async def _listed(given: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.client(given, target, timeout=targets.LIST_SECONDS) as client:
        tools = await client.tools()
        lines = "\n".join(f"{tool.name}: {tool.summary}" if tool.summary else tool.name for tool in tools)
        definitions = await client.describe()
        return {
            "server": introduced(client),
            "tools": [{"name": tool.name, "summary": tool.summary} for tool in tools],
            "tokens": {"full": sum(map(cost.definition_tokens, definitions)), "index": tokens.count(lines)},
        }


def introduced(client: DeltaClient) -> dict[str, JSON]:
    """Who answers, as `--json` tells it."""
    server = client.server
    return {
        "name": server.name,
        "version": server.version,
        "protocol": server.protocol,
        "era": server.era.value,
        "encoding": server.encoding,
    }
