"""`delta-mcp resources` prints a server's resources and resource templates, one per line."""

import argparse
from typing import TYPE_CHECKING

from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.server_listing import print_listing, server_summary
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp resources [OPTIONS] TARGET...", "TARGET", run)


def run(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, _fetch_listing(args, target), _print_resources)


def _print_resources(listing: dict[str, JSON], console: "Console") -> None:
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
