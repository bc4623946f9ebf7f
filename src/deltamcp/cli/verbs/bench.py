"""`delta-mcp bench` measures any server as its client, or this library over a corpus."""

import argparse
import asyncio
import functools
from pathlib import Path
from typing import Any

from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.progress import ProgressBar
from deltamcp.errors import ConfigurationError

DEFAULT_DATA = Path("../shared/corpus")
_TARGET = "target"
_CORPUS_BENCHES = ("tokens", "retrieval", "results", "deltas")


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp bench [OPTIONS] TARGET... | BENCH [OPTIONS]"
    verb.epilog = (
        "With a TARGET: --tool NAME, --arguments JSON, --rounds N, and the options of delta-mcp list. "
        + targets.TARGET_HELP
    )
    benches = verb.add_subparsers(dest="bench", required=True, metavar="BENCH", prog="delta-mcp bench")
    serving = benches.add_parser(
        _TARGET, help="any MCP server: latency, tokens, bytes", usage="delta-mcp bench [OPTIONS] TARGET..."
    )
    targets.add_options(serving)
    serving.add_argument("--tool", metavar="NAME", help="the tool to call; one that only reads unless given")
    serving.add_argument("--arguments", default="{}", metavar="JSON", help="what to call it with")
    serving.add_argument(
        "--rounds", type=_parse_rounds, default=20, metavar="N", help="times each is asked (default 20)"
    )
    targets.add_words_argument(serving, "TARGET")
    serving.set_defaults(measure=functools.partial(_measure_target, parser=serving), run=run)
    counting = benches.add_parser("tokens", help="what a catalogue costs a model, up front and on demand")
    counting.set_defaults(measure=_measure_tokens)
    finding = benches.add_parser("retrieval", help="how often the right tool is found, and how fast")
    finding.set_defaults(measure=_measure_retrieval)
    reading = benches.add_parser("results", help="what results cost a model under budgets, and whether none is lost")
    reading.set_defaults(measure=_measure_results)
    changing = benches.add_parser(
        "deltas", help="what the steps of a changing result cost a model, and whether none is lost"
    )
    changing.set_defaults(measure=_measure_deltas)
    for bench in (counting, finding, reading, changing):
        bench.add_argument(
            "--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help=f"the corpus (default {DEFAULT_DATA})"
        )
        bench.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        bench.set_defaults(run=run)


def insert_target(arguments: list[str]) -> list[str]:
    """Rewrites `bench TARGET...` to `bench target TARGET...`, because the parser wants the name of a bench."""
    verb = arguments.index("bench")
    rest = arguments[verb + 1 :]
    first = next((word for word in rest if not word.startswith("-")), None)
    is_help = first == _TARGET and bool({"-h", "--help"} & set(rest))
    if first in _CORPUS_BENCHES or is_help or (first is None and "--" not in rest):
        return arguments
    return [*arguments[: verb + 1], _TARGET, *rest]


def _parse_rounds(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("1 to 1000, please")
    return int(text)


def run(args: argparse.Namespace) -> None:
    report, table = args.measure(args)
    if args.json:
        output.print_json(report)
    else:
        output.print_text(table)


def _measure_target(args: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import target
    from deltamcp.cli.terminal.arguments import parse_object

    words = targets.read_words(args, parser)
    arguments = parse_object(args.arguments)
    connect = functools.partial(targets.make_client, args, words)

    def measure() -> dict[str, Any]:
        with ProgressBar("Measuring") as progress_bar:
            return asyncio.run(target.run(connect, args.tool, arguments, args.rounds, progress_bar.set_label))

    report = targets.run_with_login(args, measure)
    return report, target.table(report)


def _measure_tokens(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import tokens

    _require_tools(args.data)
    report = tokens.run(args.data)
    return report, tokens.table(report)


def _measure_retrieval(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import retrieval

    _require_tools(args.data)
    report = retrieval.run(args.data)
    return report, retrieval.table(report)


def _measure_results(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import results

    _require_directory(args.data, "results")
    with ProgressBar("Measuring") as progress_bar:
        report = results.run(args.data, progress_bar.set_label)
    return report, results.table(report)


def _measure_deltas(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import deltas

    _require_directory(args.data, "states of results")
    with ProgressBar("Measuring") as progress_bar:
        report = deltas.run(args.data, progress_bar.set_label)
    return report, deltas.table(report)


def _require_directory(data: Path, contents: str) -> None:
    if not data.is_dir():
        raise ConfigurationError(f"{data} is no directory; name one with {contents} in it by --data DIR.")


def _require_tools(data: Path) -> None:
    if not (data / "mcp_tools").is_dir():
        raise ConfigurationError(f"{data} has no mcp_tools; name a corpus with --data DIR.")
