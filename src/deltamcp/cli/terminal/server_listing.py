"""Listings of what a server offers, below a line with its name, version and protocol."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.progress import ProgressBar
from deltamcp.client.client import DeltaClient
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


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


def print_listing(
    args: argparse.Namespace,
    request: Coroutine[Any, Any, dict[str, JSON]],
    print_items: Callable[[dict[str, JSON], "Console"], None],
) -> None:
    """Fetches a listing and prints it: with `--json` as it is, else the line about its `server` and the items below."""
    with ProgressBar("Waiting for the server"):
        listing = asyncio.run(request)
    if args.json:
        output.print_json(listing)
        return
    console = output.make_console()
    _print_server_line(listing["server"], console)
    print_items(listing, console)


def _print_server_line(summary: dict[str, JSON], console: "Console") -> None:
    name, protocol = f"{summary['name']} {summary['version']}".strip(), summary["protocol"]
    console.print(output.shorten(name), style="bold", end=" ")
    is_of_mcp = not protocol.startswith(("delta", "mcp-lite"))
    console.print(output.shorten(f"speaks {'MCP ' if is_of_mcp else ''}{protocol}"))
