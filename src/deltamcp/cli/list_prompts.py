"""`delta-mcp prompts` prints a server's prompts with their arguments, one per line."""

import argparse
import asyncio

from deltamcp.cli import output, targets
from deltamcp.cli.progress import ProgressBar
from deltamcp.cli.server_line import print_server_line, server_summary
from deltamcp.values import JSON


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp prompts [OPTIONS] TARGET...", "TARGET", run)


def run(args: argparse.Namespace, target: list[str]) -> None:
    with ProgressBar("Waiting for the server"):
        listing = asyncio.run(_fetch_listing(args, target))
    if args.json:
        output.print_json(listing)
        return
    console = output.make_console()
    print_server_line(listing["server"], console)
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
