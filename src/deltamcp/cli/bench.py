"""`delta-mcp bench`: measures any server from its client's side, or this library over a corpus."""

import argparse
import asyncio
import functools
from pathlib import Path
from typing import Any

from deltamcp.cli import output, targets
from deltamcp.cli.progress import ProgressBar
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
    """Writes `bench TARGET...` as the parser takes it: benches over a corpus have names, a target has none."""
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


def run(given: argparse.Namespace) -> None:
    report, table = given.measure(given)
    if given.json:
        output.print_json(report)
    else:
        print(output.printable_text(table))


def _measure_target(given: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import target
    from deltamcp.cli.arguments import parse_object

    words = targets.read_words(given, parser)
    arguments = parse_object(given.arguments)
    connect = functools.partial(targets.make_client, given, words)
    with ProgressBar("Measuring") as waiting:
        report = asyncio.run(target.run(connect, given.tool, arguments, given.rounds, waiting.set_label))
    return report, target.table(report)


def _measure_tokens(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import tokens

    _need_tools(given.data)
    report = tokens.run(given.data)
    return report, tokens.table(report)


def _measure_retrieval(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import retrieval

    _need_tools(given.data)
    report = retrieval.run(given.data)
    return report, retrieval.table(report)


def _measure_results(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import results

    _need_directory(given.data, "results")
    with ProgressBar("Measuring") as waiting:
        report = results.run(given.data, waiting.set_label)
    return report, results.table(report)


def _measure_deltas(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import deltas

    _need_directory(given.data, "states of results")
    with ProgressBar("Measuring") as waiting:
        report = deltas.run(given.data, waiting.set_label)
    return report, deltas.table(report)


def _need_directory(data: Path, what: str) -> None:
    if not data.is_dir():
        raise ConfigurationError(f"{data} is no directory; name one with {what} in it by --data DIR.")


def _need_tools(data: Path) -> None:
    if not (data / "mcp_tools").is_dir():
        raise ConfigurationError(f"{data} has no mcp_tools; name a corpus with --data DIR.")
