"""`delta-mcp bench`: what is measured of ourselves, on any data of the corpus's shape."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from deltamcp.errors import ConfigurationError

DEFAULT_DATA = Path("../shared/corpus")


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser("bench", help="measure tokens and retrieval over a corpus of tools")
    benches = verb.add_subparsers(dest="bench", required=True, metavar="BENCH")
    counting = benches.add_parser("tokens", help="what a catalogue costs a model, up front and on demand")
    counting.set_defaults(measure=_tokens)
    finding = benches.add_parser("retrieval", help="how often the right tool is found, and how fast")
    finding.add_argument(
        "--peer",
        choices=("here", "install", "none"),
        default="here",
        help="FastMCP's search beside ours: where it is installed here, in an environment made for it, or not at all",
    )
    finding.set_defaults(measure=_retrieval)
    for bench in (counting, finding):
        bench.add_argument(
            "--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help=f"the corpus (default {DEFAULT_DATA})"
        )
        bench.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        bench.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    if not (given.data / "mcp_tools").is_dir():
        raise ConfigurationError(f"{given.data} has no mcp_tools; name a corpus with --data DIR.")
    report, table = given.measure(given)
    print(json.dumps(report, indent=2, ensure_ascii=False) if given.json else table)


def _tokens(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import tokens

    report = tokens.run(given.data)
    return report, tokens.table(report)


def _retrieval(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import environments, retrieval

    python = environments.python_with(environments.FASTMCP) if given.peer == "install" else sys.executable
    report = retrieval.run(given.data, given.peer != "none", python)
    return report, retrieval.table(report)
