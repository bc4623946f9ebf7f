"""`delta-mcp prompts` prints a server's prompts with their arguments, one per line."""

import argparse
from typing import TYPE_CHECKING

from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.server_listing import print_listing, server_summary
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp prompts [OPTIONS] TARGET...", "TARGET", run)


def run(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, _fetch_listing(args, target), _print_prompts)


def _print_prompts(listing: dict[str, JSON], console: "Console") -> None:
    prompts = listing["prompts"]
    if prompts:
        output.print_table("", ["", ""], [], map(_row, prompts), console)
    console.print(f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}.")


def _row(prompt: dict[str, JSON]) -> list[str]:
    arguments = prompt.get("arguments")
    names = [
        f"{argument.get('name')}{'' if argument.get('required') is True else '?'}"
        for argument in (arguments if isinstance(arguments, list) else ())
        if isinstance(argument, dict)
    ]
    return [f"{prompt.get('name')}({', '.join(names)})", str(prompt.get("description") or prompt.get("title") or "")]


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return {"server": server_summary(client), "prompts": await client.prompts()}
