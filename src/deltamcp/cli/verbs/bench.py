"""`delta-mcp bench` measures any server as its client."""

import argparse
import asyncio
import functools
from typing import Any

from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.arguments import parse_object
from deltamcp.cli.terminal.progress import ProgressBar


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp bench [OPTIONS] TARGET...", "TARGET", run)
    verb.add_argument("--tool", metavar="NAME", help="the tool to call; one that only reads unless given")
    verb.add_argument("--arguments", default="{}", metavar="JSON", help="what to call it with")
    verb.add_argument("--rounds", type=_parse_rounds, default=20, metavar="N", help="times each is asked (default 20)")


def _parse_rounds(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("1 to 1000, please")
    return int(text)


def run(args: argparse.Namespace, words: list[str]) -> None:
    from deltamcp.costs import target

    arguments = parse_object(args.arguments)
    connect = functools.partial(targets.make_client, args, words)
    with ProgressBar("Measuring") as progress_bar:
        report: dict[str, Any] = asyncio.run(
            target.run(connect, args.tool, arguments, args.rounds, progress_bar.set_label)
        )
    if args.json:
        output.print_json(report)
    else:
        output.print_text(target.table(report))
