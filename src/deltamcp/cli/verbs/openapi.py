"""`delta-mcp openapi` and `validate` report on documents that operations come from, and on all that is wrong in them.

`openapi` reads the document of an HTTP API, or writes an operations file from it; `validate` reads an operations file.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.serving.gateway_check import cost_sentence
from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.client.client import connect
from deltamcp.costs.cost import Cost, GatewayCost, ServerListing, count_together
from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.server import DeltaServer
from deltamcp.sources.openapi.api import Api
from deltamcp.sources.openapi.location import load_document
from deltamcp.sources.openapi.operations_file import OperationsFileDraft, draft_operations_file
from deltamcp.sources.openapi.settings import ApiSettings
from deltamcp.sources.operations_loader import OperationsFile, read_document
from deltamcp.values import JSON

_MAX_CHARS = 300
"""Of a line that repeats the document."""


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("document", metavar="DOCUMENT", help="the file or the address of an OpenAPI document")
    verb.add_argument("--base-url", metavar="URL", help="where the API is, if not where its document says")
    add_repeatable(
        verb, "--header", "NAME:VALUE", "a header of every request, such as 'Authorization: Bearer ${TOKEN}'"
    )
    verb.add_argument("--deprecated", action="store_true", help="with deprecated operations")
    verb.add_argument(
        "--to", type=Path, metavar="FILE", help="write an operations file from it, to edit by hand; not over another"
    )
    verb.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    settings = ApiSettings(
        base_url=args.base_url,
        headers=dict(map(targets.parse_header, args.header)),
        include_deprecated=args.deprecated,
    )
    if args.to is not None and args.to.exists():
        raise ConfigurationError(f"{args.to} is there already; name another file, or remove it.")
    api = Api(asyncio.run(load_document(args.document, settings, os.environ)), settings)
    if args.to is not None:
        _write(draft_operations_file(api), args.to, args.json)
        return
    definitions, faults = asyncio.run(_list(api))
    cost = count_together(
        [ServerListing(api.title or "API", definitions)], disclosure=Disclosure("meta", query=True, destructive=False)
    )
    if args.json:
        output.print_json(_report(api, definitions, faults, cost))
    else:
        _print(api, definitions, faults, cost)


async def _list(api: Api) -> tuple[list[dict[str, JSON]], list[str]]:
    """Returns the operations as a server lists them that offers them, and what is wrong with the document.

    Raises:
        ConfigurationError: what the user says of the API is wrong.
    """
    faults = [str(fault) for fault in api.faults]
    server = DeltaServer("API", disclosure="full")
    try:
        server.add_openapi(api)
    except ConfigurationError as error:
        if api.settings.base_url is not None:
            raise
        faults.insert(0, str(error))
        # What the operations are does not depend on where they are.
        server = DeltaServer("API", disclosure="full")
        server.add_openapi(Api(api.document, replace(api.settings, base_url="https://example.com")))
    async with connect(server, progressive=False) as client:
        return await client.describe(), faults


def _origins(api: Api) -> list[str]:
    """Returns where requests go; nothing if the document does not say."""
    if api.settings.base_url is not None:
        return [api.settings.base_url]
    try:
        origins: Any = api.requests["origins"]
    except ConfigurationError:
        return []
    return [*map(str, origins)]


def _report(api: Api, definitions: list[dict[str, JSON]], faults: list[str], cost: Cost) -> dict[str, JSON]:
    tokens = {str(raw["name"]): definition_tokens(raw) for raw in definitions}
    rows: list[JSON] = [
        {
            "id": one.id,
            "name": one.name,
            "method": one.method,
            "path": one.path,
            "place": one.place,
            "tokens": tokens.get(one.name),
        }
        for one in api.operations
    ]
    return {
        "title": api.title,
        "version": api.version,
        "openapi": api.document.version.text,
        "origins": [*_origins(api)],
        "securitySchemes": {name: scheme.kind for name, scheme in api.schemes.items()},
        "operations": rows,
        "leftOut": api.left_out,
        "faults": [*faults],
        "tokens": {"plain": cost.now, "gateway": cost.surface, "oneTool": cost.one_tool},
    }


def _print(api: Api, definitions: list[dict[str, JSON]], faults: list[str], cost: Cost) -> None:
    console = output.make_console()
    tokens = {str(raw["name"]): definition_tokens(raw) for raw in definitions}
    counts, sums = Counter[str](), Counter[str]()
    for one in api.operations:
        counts[one.category] += 1
        sums[one.category] += tokens.get(one.name, 0)
    title = visible_line(f"{api.title or 'An API'} {api.version} (OpenAPI {api.document.version.text})")[:_MAX_CHARS]
    rows = [[visible_line(name) or "(none)", f"{counts[name]:,}", f"{sums[name]:,}"] for name in counts]
    output.print_table(title, ("category",), ("operations", "tokens"), rows, console)
    console.print()
    console.print(cost_sentence(GatewayCost(cost, cost.surface, shows_all=False), len(definitions)))
    for sentence in _sentences(api, faults):
        console.print(visible_line(sentence)[:_MAX_CHARS])


def _sentences(api: Api, faults: list[str]) -> list[str]:
    found = []
    if origins := _origins(api):
        found.append(f"Requests go to {', '.join(origins)}.")
    for scheme in api.schemes.values():
        where = "which has to be a header" if scheme.kind == "other" else f"in the {scheme.place} {scheme.parameter}"
        found.append(f"credentials.{scheme.name} is for its security scheme, {scheme.kind}, {where}.")
    if api.left_out:
        operations = "operation is" if api.left_out == 1 else "operations are"
        found.append(f"{api.left_out} deprecated {operations} left out; --deprecated has them.")
    if faults:
        found += ["What of it cannot be used:", *(f"- {fault}" for fault in faults)]
    return found


def _write(draft: OperationsFileDraft, path: Path, as_json: bool) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(draft.content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None
    losses = [str(loss) for loss in draft.losses]
    if as_json:
        output.print_json({"file": str(path), "operations": draft.count, "losses": [*losses]})
        return
    output.print_line(f"{path} has {draft.count} operation{'s' * (draft.count != 1)}: delta-mcp validate {path}")
    if losses:
        output.print_line("What it cannot express, or you have to do:")
    for loss in losses:
        output.print_line(f"- {visible_line(loss)[:_MAX_CHARS]}")


# Operations files


def set_up_validate(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", type=Path, metavar="FILE", help="an operations file")
    verb.add_argument("--json", action="store_true", help="one JSON object instead of a sentence")
    verb.set_defaults(run=run_validate)


def run_validate(args: argparse.Namespace) -> None:
    sys.path.insert(0, str(args.file.parent.resolve()))  # for functions the file refers to
    try:
        OperationsFile(args.file, None, os.environ, Limits()).load()
        document = read_document(args.file)
    except ConfigurationError as error:
        if not args.json:
            raise
        output.print_json({"valid": False, "problem": str(error)})
        raise SystemExit(2) from None
    operations, categories = len(document.operations), len(document.categories)
    if args.json:
        output.print_json({"valid": True, "operations": operations, "categories": categories})
        return
    inside = f"{categories} categor{'y' if categories == 1 else 'ies'}"
    output.print_line(f"{args.file} is right: {operations} operation{'s' * (operations != 1)} in {inside}.")
