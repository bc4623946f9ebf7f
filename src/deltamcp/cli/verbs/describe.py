"""`delta-mcp describe` prints the definition of one tool."""

import argparse
import asyncio

from deltamcp import tokens
from deltamcp.catalog import tool_text
from deltamcp.catalog.clean_text import visible_line
from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.progress import ProgressBar
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp describe [OPTIONS] TARGET... TOOL", "TARGET TOOL", run)


def run(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise ConfigurationError("Usage: delta-mcp describe TARGET... TOOL; delta-mcp list TARGET... names the tools.")
    with ProgressBar("Waiting for the server"), targets.explain_word(words, words[-1], "tool"):
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
