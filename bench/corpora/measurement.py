"""The commands that measure over a corpus, as `python -m bench tokens --data DIR`."""

import argparse
import importlib
from pathlib import Path

from bench.corpus import CORPUS
from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.output import ProgressBar

BENCHES = {
    "tokens": "what a catalog costs a model, up front and on demand",
    "retrieval": "how often the right tool is found, and how fast",
    "results": "what results cost a model under budgets, and whether none is lost",
    "deltas": "what the steps of a changing result cost a model, and whether none is lost",
    "since": "the same behind two replicas of a gateway, for a model that names what it has",
}
"""Each is a module of `bench.corpora`, with `run(data, progress)` and `table(report)`."""
_OF_TOOLS = ("tokens", "retrieval")


def add_commands(parser: argparse.ArgumentParser) -> None:
    benches = parser.add_subparsers(dest="corpus_bench", metavar="tokens|retrieval|results|deltas|since")
    for name, about in BENCHES.items():
        bench = benches.add_parser(name, help=about)
        bench.add_argument("--data", type=Path, default=CORPUS, metavar="DIR", help=f"the corpus (default {CORPUS})")
        bench.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        bench.set_defaults(parser=bench)


def run(args: argparse.Namespace) -> None:
    name = args.corpus_bench
    if name in _OF_TOOLS and not (args.data / "mcp_tools").is_dir():
        args.parser.exit(2, f"python -m bench: {args.data} has no mcp_tools; name a corpus with --data DIR.\n")
    if not args.data.is_dir():
        args.parser.exit(2, f"python -m bench: {args.data} is no directory; name a corpus with --data DIR.\n")
    bench = importlib.import_module(f"bench.corpora.{name}")
    with ProgressBar("Measuring") as progress_bar:
        report = bench.run(args.data, progress_bar.set_label)
    if args.json:
        output.print_json(report)
    else:
        output.print_text(bench.table(report))
