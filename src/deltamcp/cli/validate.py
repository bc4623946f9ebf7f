"""`delta-mcp validate`: whether an operations file can be served, and everything that is wrong with it."""

import argparse
from pathlib import Path

from deltamcp.sources.operations import read


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser("validate", help="check an operations.json and tell every fault in it")
    verb.add_argument("file", type=Path, metavar="FILE")
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    document = read(given.file)
    count, categories = len(document.leaves), len(document.categories)
    print(f"{given.file} is right: {count} operations in {categories} categories.")
