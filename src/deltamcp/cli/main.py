"""`delta-mcp`: one verb a file, told apart here."""

import argparse
import importlib.metadata
import os
import sys

from deltamcp.cli import bench, serve, validate
from deltamcp.errors import DeltaError

USAGE_ERROR = 2


def main(arguments: list[str] | None = None) -> None:
    """Exit codes: 0 done, 1 it broke, 2 the command or what it names is wrong."""
    parser = argparse.ArgumentParser("delta-mcp", description="Token-efficient MCP servers.")
    parser.add_argument("--version", action="version", version=importlib.metadata.version("delta-mcp"))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in (serve, validate, bench):
        verb.add_to(verbs)
    given = parser.parse_args(arguments)
    try:
        given.run(given)
    except DeltaError as error:
        if given.debug:
            raise
        print(f"delta-mcp: {error}", file=sys.stderr)
        raise SystemExit(USAGE_ERROR) from None
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
