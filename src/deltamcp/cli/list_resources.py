"""`delta-mcp resources` prints a server's resources and resource templates, one per line."""

import argparse
import asyncio

from deltamcp.cli import output, targets
from deltamcp.cli.progress import ProgressBar
from deltamcp.cli.server_line import print_server_line, server_summary
from deltamcp.values import JSON


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp resources [OPTIONS] TARGET...", "TARGET", run)


def run(args: argparse.Namespace, target: list[str]) -> None:
    with ProgressBar("Waiting for the server"):
        listing = asyncio.run(_fetch_listing(args, target))
    if args.json:
        output.print_json(listing)
        return
    console = output.make_console()
    print_server_line(listing["server"], console)
    resources, templates = listing["resources"], listing["resourceTemplates"]
    if resources or templates:
        rows = [_row(item, "uri") for item in resources] + [_row(item, "uriTemplate") for item in templates]
        output.print_table("", ["", "", ""], [], rows, console)
    console.print(
        f"{len(resources)} resource{'s' * (len(resources) != 1)}, "
        f"{len(templates)} template{'s' * (len(templates) != 1)}."
    )


def _row(item: dict[str, JSON], key: str) -> list[str]:
    about = item.get("description") or item.get("title") or item.get("name") or ""
    return [str(item.get(key, "")), str(item.get("mimeType") or ""), str(about)]


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return {
            "server": server_summary(client),
            "resources": await client.resources(),
            "resourceTemplates": await client.templates(),
        }
