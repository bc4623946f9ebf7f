"""`delta-mcp resources` prints a server's resources and templates, one per line; `delta-mcp read` one's contents."""

import argparse
import asyncio
from typing import TYPE_CHECKING

from deltamcp.cli.terminal import content, output, targets
from deltamcp.cli.terminal.elicitation import Elicitation, add_answer_option
from deltamcp.cli.terminal.output import suggest
from deltamcp.cli.terminal.progress import ProgressBar
from deltamcp.cli.terminal.server_listing import print_listing, server_summary
from deltamcp.client.client import DeltaClient
from deltamcp.errors import FAULTS, ClientError, ConfigurationError, Fault, PeerError
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console

_NOT_FOUND_CODES = FAULTS[Fault.RESOURCE_NOT_FOUND].handshake, FAULTS[Fault.RESOURCE_NOT_FOUND].modern


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


def set_up_read(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp read [OPTIONS] TARGET... URI", "TARGET URI", run_read)
    add_answer_option(verb)


def run_read(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise ConfigurationError("Usage: delta-mcp read TARGET... URI; delta-mcp resources TARGET... names them.")
    with ProgressBar("Waiting for the server") as progress_bar, targets.explain_word(words, words[-1], "resource"):
        result = asyncio.run(_read(args, words[:-1], words[-1], progress_bar))
    if args.json:
        output.print_json(result)
        return
    contents = result.get("contents")
    content.write_blocks(
        [{"type": "resource", "resource": item} for item in (contents if isinstance(contents, list) else ())]
    )


async def _read(args: argparse.Namespace, target: list[str], uri: str, progress_bar: ProgressBar) -> dict[str, JSON]:
    elicitation = Elicitation(args.answer, progress_bar.hide)
    async with targets.make_client(args, target, on_elicitation=elicitation.answer) as client:
        try:
            return await elicitation.send(lambda: client.request("resources/read", {"uri": uri}))
        except PeerError as error:
            known = await _list_uris(client) if error.code in _NOT_FOUND_CODES else [uri]
            if uri in known:
                raise
            raise ClientError(f"{str(error).rstrip('.')}{suggest(uri, known)}") from None


async def _list_uris(client: DeltaClient) -> list[str]:
    resources, templates = await client.resources(), await client.templates()
    listed = [item.get("uri") for item in resources] + [item.get("uriTemplate") for item in templates]
    return [uri for uri in listed if isinstance(uri, str)]
