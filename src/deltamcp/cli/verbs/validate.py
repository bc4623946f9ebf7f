"""`delta-mcp validate` checks whether an operations file can be served, and reports everything that is wrong."""

import argparse
import os
import sys
from pathlib import Path

from deltamcp.cli.terminal import output
from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.sources.operations_loader import OperationsFile, read_document


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", type=Path, metavar="FILE", help="an operations file")
    verb.add_argument("--json", action="store_true", help="one JSON object instead of a sentence")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
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
