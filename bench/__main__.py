"""`python -m bench`: measures, prints tables and how far from the targets, and always exits 0 when it could measure."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from bench import client, deltas, execute, growth, memory, results
from deltamcp.bench.speed import http, machine, start, stdio
from deltamcp.bench.speed.report import Report
from deltamcp.bench.speed.sides import peers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", help="some of http,stdio,start,growth,memory,execute,results,deltas,client")
    parser.add_argument("--rounds", type=int, default=3, help="times each side is loaded (3)")
    parser.add_argument("--seconds", type=int, default=1, help="length of one load (1; over stdio half of it)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--full", action="store_true", help="10,000 tools for the peers too: minutes more")
    given = parser.parse_args()
    measurements: dict[str, Callable[[], Report]] = {
        "http": lambda: http.measure(given.rounds, given.seconds, beside),
        "stdio": lambda: stdio.measure(given.rounds, given.seconds / 2, beside),
        "start": lambda: start.measure(given.rounds, beside),
        "growth": lambda: growth.measure(given.full),
        "memory": memory.measure,
        "execute": execute.measure,
        "results": results.measure,
        "deltas": deltas.measure,
        "client": client.measure,
    }
    wanted = given.only.split(",") if given.only else list(measurements)
    for name in wanted:
        if name not in measurements:
            parser.error(f"there is no measurement {name!r}; there are {', '.join(measurements)}")
    beside = peers("here")
    about, began = machine.describe() | beside.versions, time.monotonic()
    print("\n".join(f"{key}: {value}" for key, value in about.items()))
    reports: dict[str, Report] = {}
    try:
        with machine.prepared():
            for name in wanted:
                reports[name] = measurements[name]()
                print(f"\n{reports[name]}", flush=True)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
    verdicts = [verdict for found in reports.values() for verdict in found.verdicts]
    short = [verdict for verdict in verdicts if not verdict.met]
    print(f"\n## {len(verdicts) - len(short)} of {len(verdicts)} targets met, in {time.monotonic() - began:.0f} s")
    print("\n".join(map(str, short)))
    if given.json is not None:
        plain = {"machine": about, **{name: found.plain() for name, found in reports.items()}}
        given.json.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    main()
