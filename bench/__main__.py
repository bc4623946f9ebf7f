"""`python -m bench`: measures, prints tables and what misses its target, and exits 0 whenever it could measure.

`python -m bench tokens`, `retrieval`, `results` and `deltas` measure this library over a directory of files instead.
"""

import argparse
import compileall
import datetime
import importlib
import json
import shlex
import sys
import time
from pathlib import Path

import deltamcp
from bench import machine
from bench.corpora import measurement
from bench.options import BenchOptions
from bench.page import write_page
from bench.peers import NO_PEERS, find_peers
from bench.report import BenchReport
from bench.server_process import run_as_client

BENCHMARKS = {
    "http": "requests a second over HTTP",
    "mcp_lite": "requests a second over HTTP by MCP-lite, beside MCP",
    "grpc": "calls a second over gRPC, beside a bare echo, and values as Struct, beside json_format",
    "stdio": "round trips a second over stdio",
    "start": "what an import costs, and the time from spawn to the first list",
    "growth": "start, list and call of servers with 10 to 10,000 tools",
    "memory": "memory of idle sessions and streams",
    "execute": "what a call through the meta-tool adds",
    "results": "how fast results are made to fit, and in what memory",
    "deltas": "how fast GCF is written and read, and values are compared",
    "operations": "what access tokens, metrics, observers and a shared store add to a call",
    "client": "CPU time of a call on its caller's side",
    "gateway": "what the gateway adds to a call, beside mcp-compressor and FastMCP's proxy",
    "openapi": "what an HTTP API costs from its OpenAPI document, beside FastMCP",
    "dashboard": "what looking at the dashboard adds to a call, and how soon pages of much are painted",
    "retrieval": "how often search finds the right tool, and how fast, beside FastMCP's search",
}
"""Each is a module of `bench.benchmarks`."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="\n".join(["benchmarks:", *(f"  {name:<12}{about}" for name, about in BENCHMARKS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=_parse_names, default=list(BENCHMARKS), metavar="NAME,...", help="some of them")
    parser.add_argument("--rounds", type=_parse_rounds, default=3, metavar="N", help="times each server is loaded (3)")
    parser.add_argument(
        "--seconds", type=_parse_seconds, default=1.0, metavar="N", help="length of one load (1; half over stdio)"
    )
    parser.add_argument("--no-peers", action="store_true", help="without the official SDK and FastMCP")
    parser.add_argument("--full", action="store_true", help="10,000 tools for the peers too: minutes more")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write them into this page of the documentation")
    measurement.add_commands(parser)
    given = parser.parse_args()
    if given.corpus_bench is not None:
        measurement.run(given)
        return
    peers = NO_PEERS if given.no_peers else find_peers()
    options = BenchOptions(given.rounds, given.seconds, peers, given.full)
    about, began = machine.describe() | peers.versions, time.monotonic()
    print("\n".join(f"{key}: {value}" for key, value in about.items()))
    compileall.compile_dir(Path(deltamcp.__file__).parent, quiet=1)  # as installers do, and Python unless it must not
    reports: dict[str, BenchReport] = {}
    try:
        with run_as_client():
            for name in given.only:
                print(f"\n==> {name}: {BENCHMARKS[name]}", flush=True)
                reports[name] = importlib.import_module(f"bench.benchmarks.{name}").measure(options)
                print(f"\n{reports[name]}", flush=True)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
    verdicts = [verdict for found in reports.values() for verdict in found.verdicts]
    missed = [verdict for verdict in verdicts if not verdict.met]
    print(f"\n## {len(verdicts) - len(missed)} of {len(verdicts)} targets met, in {time.monotonic() - began:.0f} s")
    print("\n".join(map(str, missed)))
    if given.json is not None:
        figures = {"machine": about, **{name: found.as_json() for name, found in reports.items()}}
        given.json.write_text(json.dumps(figures, indent=1))
    if given.page is not None:
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        measured = {"date": today, "command": command, "commit": machine.commit(), **about}
        write_page(given.page, BENCHMARKS, reports, measured)


def _parse_names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in BENCHMARKS:
            raise argparse.ArgumentTypeError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return names


def _parse_rounds(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("1 to 1000, please")
    return int(text)


def _parse_seconds(text: str) -> float:
    if not 0 < float(text) <= 600:
        raise argparse.ArgumentTypeError("more than 0 and up to 600, please")
    return float(text)


if __name__ == "__main__":
    main()
