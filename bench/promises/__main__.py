"""`python -m bench.promises`: kills processes under promises; measures waiting for them, and what they add to a call.

Exits with 1 if a promise is lost or runs twice that must not, or a target is missed.
"""

import argparse
import asyncio

from bench.hostile.stores import SkippedError
from bench.promises import long_polls, overhead
from bench.promises.chaos import run_chaos
from bench.promises.topology import run_topology

PARTS = ("chaos", "polls", "overhead")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.promises", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), metavar="NAME,...", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--promises", type=int, default=200, metavar="N", help="of the chaos (200)")
    parser.add_argument("--pause", type=float, default=2.0, metavar="N", help="seconds between two kills (2)")
    parser.add_argument("--clients", type=int, default=1000, metavar="N", help="that wait at once (1,000)")
    parser.add_argument("--per-second", type=float, default=20.0, metavar="N", help="calls that end (20)")
    given = parser.parse_args()
    try:
        is_well = [run_part(part, given) for part in given.only.split(",")]
    except SkippedError as skipped:
        raise SystemExit(f"not run: {skipped}") from None
    raise SystemExit(0 if all(is_well) else 1)


def run_part(part: str, given: argparse.Namespace) -> bool:
    """Runs one part, prints what came of it, and returns whether that is as it should be."""
    if part == "chaos":
        with run_topology(3, 2) as topology:
            chaos = asyncio.run(run_chaos(topology, given.promises, given.pause, seconds=2.0))
        print(chaos, flush=True)
        return not chaos.wrong
    if part == "polls":
        with run_topology(2, 0) as topology:
            report = asyncio.run(long_polls.measure(topology, given.clients, given.per_second))
    elif part == "overhead":
        with run_topology(1, 0) as in_redis, run_topology(1, 0, store="memory://") as in_memory:
            report = overhead.measure({"memory": in_memory.ports[0], "Redis": in_redis.ports[0]})
    else:
        raise SystemExit(f"There is no part {part!r}; name some of {', '.join(PARTS)}.")
    print(report, flush=True)
    return all(verdict.met for verdict in report.verdicts)


if __name__ == "__main__":
    main()
