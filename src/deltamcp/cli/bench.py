"""`delta-mcp bench`: any server from its client's side; and ourselves, by a corpus or beside our peers."""

import argparse
import asyncio
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltamcp.cli import output, targets
from deltamcp.cli.waiting import Waiting
from deltamcp.errors import ConfigurationError

if TYPE_CHECKING:
    from deltamcp.bench.speed.report import Report
    from deltamcp.bench.speed.sides import Peers

DEFAULT_DATA = Path("../shared/corpus")
_TARGET = "target"
_OURSELVES = ("tokens", "retrieval", "results", "deltas", "http", "stdio", "start")


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp bench [OPTIONS] TARGET... | BENCH [OPTIONS]"
    verb.epilog = (
        "With a TARGET: --tool NAME, --arguments JSON, --rounds N, and the options of delta-mcp list. " + targets.ORDER
    )
    benches = verb.add_subparsers(dest="bench", required=True, metavar="BENCH", prog="delta-mcp bench")
    serving = benches.add_parser(
        _TARGET, help="any MCP server: latency, tokens, bytes", usage="delta-mcp bench [OPTIONS] TARGET..."
    )
    targets.options_to(serving)
    serving.add_argument("--tool", metavar="NAME", help="the tool to call; one that only reads unless given")
    serving.add_argument("--arguments", default="{}", metavar="JSON", help="what to call it with")
    serving.add_argument("--rounds", type=_rounds, default=20, metavar="N", help="times each is asked (default 20)")
    targets.words_to(serving, "TARGET")
    serving.set_defaults(measure=functools.partial(_target, parser=serving), run=run)
    counting = benches.add_parser("tokens", help="what a catalogue costs a model, up front and on demand")
    counting.set_defaults(measure=_tokens)
    finding = benches.add_parser("retrieval", help="how often the right tool is found, and how fast")
    _peer_to(finding, "FastMCP's search")
    finding.set_defaults(measure=_retrieval)
    reading = benches.add_parser("results", help="what results cost a model under budgets, and whether none is lost")
    reading.set_defaults(measure=_results)
    changing = benches.add_parser(
        "deltas", help="what the steps of a changing result cost a model, and whether none is lost"
    )
    _peer_to(changing, "gcf-python's deltas")
    changing.set_defaults(measure=_deltas)
    loading = benches.add_parser("http", help="requests a second over HTTP, beside a bare server and the peers")
    loading.set_defaults(measure=_http)
    piping = benches.add_parser("stdio", help="round trips a second over stdio, beside a bare echo and the peers")
    piping.set_defaults(measure=_stdio)
    starting = benches.add_parser("start", help="what an import costs, and the time from spawn to the first list")
    starting.set_defaults(measure=_start)
    for bench in (loading, piping):
        bench.add_argument("--seconds", type=_seconds, default=1.0, metavar="N", help="length of one load (default 1)")
    for bench in (loading, piping, starting):
        _peer_to(bench, "the official SDK and FastMCP")
        bench.add_argument("--rounds", type=_rounds, default=3, metavar="N", help="times each side is run (default 3)")
    for bench in (counting, finding, reading, changing):
        bench.add_argument(
            "--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help=f"the corpus (default {DEFAULT_DATA})"
        )
    for bench in (counting, finding, reading, changing, loading, piping, starting):
        bench.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        bench.set_defaults(run=run)


def spelt_out(arguments: list[str]) -> list[str]:
    """`bench TARGET...` as the parser has it: the benches of ourselves have names, a target has none."""
    verb = arguments.index("bench")
    rest = arguments[verb + 1 :]
    first = next((word for word in rest if not word.startswith("-")), None)
    is_help = first == _TARGET and bool({"-h", "--help"} & set(rest))
    if first in _OURSELVES or is_help or (first is None and "--" not in rest):
        return arguments
    return [*arguments[: verb + 1], _TARGET, *rest]


def _peer_to(bench: argparse.ArgumentParser, what: str) -> None:
    bench.add_argument(
        "--peer",
        choices=("here", "install", "none"),
        default="here",
        help=f"{what} beside ours: as installed here, in an environment made for it, or not at all",
    )


def _rounds(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("1 to 1000, please")
    return int(text)


def _seconds(text: str) -> float:
    if not 0 < float(text) <= 600:
        raise argparse.ArgumentTypeError("more than 0 and up to 600, please")
    return float(text)


def run(given: argparse.Namespace) -> None:
    report, table = given.measure(given)
    if given.json:
        output.as_json(report)
    else:
        print(output.printable(table))


def _target(given: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import target
    from deltamcp.cli.arguments import object_of

    words = targets.words_of(given, parser)
    arguments = object_of(given.arguments)
    connect = functools.partial(targets.client, given, words)
    with Waiting("Measuring") as waiting:
        report = asyncio.run(target.run(connect, given.tool, arguments, given.rounds, waiting.say))
    return report, target.table(report)


def _tokens(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import tokens

    _need_tools(given.data)
    report = tokens.run(given.data)
    return report, tokens.table(report)


def _retrieval(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import environments, retrieval

    _need_tools(given.data)
    python = environments.python_with(environments.FASTMCP) if given.peer == "install" else sys.executable
    report = retrieval.run(given.data, given.peer != "none", python)
    return report, retrieval.table(report)


def _results(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import results

    _need_directory(given.data, "results")
    with Waiting("Measuring") as waiting:
        report = results.run(given.data, waiting.say)
    return report, results.table(report)


def _deltas(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench import deltas, environments, rivals

    _need_directory(given.data, "states of results")
    pythons = {"here": sys.executable, "none": None}
    python = environments.python_with(rivals.GCF) if given.peer == "install" else pythons[given.peer]
    with Waiting("Measuring") as waiting:
        report = deltas.run(given.data, python, waiting.say)
    return report, deltas.table(report)


def _http(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench.speed import http

    return _timed(given, lambda peers, say: http.measure(given.rounds, given.seconds, peers, say))


def _stdio(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench.speed import stdio

    return _timed(given, lambda peers, say: stdio.measure(given.rounds, given.seconds, peers, say))


def _start(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from deltamcp.bench.speed import start

    return _timed(given, lambda peers, say: start.measure(given.rounds, peers, say))


def _timed(
    given: argparse.Namespace, measure: "Callable[[Peers, Callable[[str], None]], Report]"
) -> tuple[dict[str, Any], str]:
    from deltamcp.bench.speed import machine, sides

    peers = sides.peers(given.peer)
    about = machine.describe() | peers.versions
    with machine.prepared(), Waiting("Measuring") as waiting:
        report = measure(peers, waiting.say)
    shown = "\n".join(f"{name}: {value}" for name, value in about.items())
    return {"machine": about, **report.plain()}, f"{shown}\n\n{report}"


def _need_directory(data: Path, what: str) -> None:
    if not data.is_dir():
        raise ConfigurationError(f"{data} is no directory; name one with {what} in it by --data DIR.")


def _need_tools(data: Path) -> None:
    if not (data / "mcp_tools").is_dir():
        raise ConfigurationError(f"{data} has no mcp_tools; name a corpus with --data DIR.")
