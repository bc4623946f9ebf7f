"""`delta-mcp describe`: one tool, with everything its caller needs to know."""

import argparse
import asyncio

from deltamcp import tokens
from deltamcp.catalog import render
from deltamcp.cli import output, targets
from deltamcp.cli.waiting import Waiting
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp describe [OPTIONS] TARGET... TOOL"
    verb.description = targets.ORDER
    targets.options_to(verb)
    targets.words_to(verb, "TARGET TOOL")
    verb.set_defaults(run=lambda given: run(given, targets.words_of(given, verb)))


def run(given: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise ConfigurationError("Usage: delta-mcp describe TARGET... TOOL; delta-mcp list TARGET... names the tools.")
    with Waiting("Waiting for the server"), targets.taken_for_the_tool(words[-1]):
        definition = asyncio.run(_described(given, words[:-1], words[-1]))
    if given.json:
        output.as_json(definition)
        return
    text = render.whole(definition)
    print(output.printable(text))
    full = jsonrpc.encode(definition).decode()
    output.console().print(f"\n{tokens.count(text):,} tokens so, {tokens.count(full):,} as JSON.", style="dim")


async def _described(given: argparse.Namespace, target: list[str], tool: str) -> dict[str, JSON]:
    async with targets.client(given, target, timeout=targets.LIST_SECONDS) as client:
        return (await client.describe(tool))[0]
