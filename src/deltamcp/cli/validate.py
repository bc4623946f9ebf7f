"""`delta-mcp validate`: whether an operations file can be served, and everything that is wrong with it."""

import argparse
import os
import sys
from pathlib import Path

from deltamcp.sources.operations import OperationsFile, read


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", type=Path, metavar="FILE")
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    sys.path.insert(0, str(given.file.parent.resolve()))  # for functions the file refers to
    OperationsFile(given.file, None, os.environ).load()
    document = read(given.file)
    operations, categories = len(document.leaves), len(document.categories)
    inside = f"{categories} categor{'y' if categories == 1 else 'ies'}"
    print(f"{given.file} is right: {operations} operation{'s' * (operations != 1)} in {inside}.")
