"""`python -m bench.hostile`: attacks servers and clients; exits with 1 if ours breaks the rule of the threat model."""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.hostile import client_attacks, dashboard_attacks, measurement, search, searched_server, stdio_attacks
from bench.hostile.attacks import ATTACKS
from bench.hostile.client_attacks import CLIENT_ATTACKS
from bench.hostile.dashboard_attacks import DASHBOARD_ATTACKS
from bench.hostile.rule import ATTEMPTS, MAX_GROWTH_MB, MAX_WAIT_MS, Measured
from bench.hostile.stdio_attacks import STDIO_ATTACKS
from bench.hostile.stores import SkippedError
from bench.hostile.table import AttackRow, describe, markdown
from bench.peers import NO_PEERS, OURS, find_peers
from bench.server_process import run_as_client


class Planned(NamedTuple):
    """An attack that can be made on a library, given by its name, with a bound in seconds and a number of attempts."""

    group: str
    name: str
    title: str
    for_peers: bool
    measure: Callable[[str, float, int], Measured]


def plan() -> list[Planned]:
    return [
        *(
            Planned(group, one.name, one.title, one.for_peers, partial(measurement.measure, one))
            for group, attacks in ATTACKS.items()
            for one in attacks
        ),
        *(Planned("stdio", one.name, one.title, True, partial(stdio_attacks.measure, one)) for one in STDIO_ATTACKS),
        *(
            Planned("client", one.name, one.title, one.for_peers, partial(client_attacks.measure, one))
            for one in CLIENT_ATTACKS
        ),
        *(
            Planned("dashboard", one.name, one.title, False, partial(dashboard_attacks.measure, one))
            for one in DASHBOARD_ATTACKS
        ),
    ]


def main() -> None:
    planned = plan()
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile",
        description=__doc__,
        epilog="\n".join(["attacks:", *(f"  {one.group:<9}{one.name:<22}{one.title}" for one in planned)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = list(dict.fromkeys(one.group for one in planned))
    parser.add_argument("--only", metavar="NAME,...", help="some of the attacks")
    parser.add_argument("--group", metavar="GROUP,...", help=f"the attacks of some groups: {', '.join(groups)}")
    parser.add_argument("--no-peers", action="store_true", help="without the official SDK and FastMCP")
    parser.add_argument(
        "--bound", type=float, default=12.0, metavar="N", help="seconds after which an attack ends (12)"
    )
    parser.add_argument(
        "--peers-bound", type=float, default=5.0, metavar="N", help="the same for attacks on the peers (5)"
    )
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, metavar="N", help="at what breaks the rule (3)")
    parser.add_argument(
        "--seconds", type=float, default=80.0, metavar="N", help="of the search for other costly requests (80; 0: none)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the search's chance (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table of the docs there")
    given = parser.parse_args()
    wanted = choose(parser, given, planned)
    machine.raise_descriptor_limit()
    peers = NO_PEERS if given.no_peers else find_peers()
    about, began = machine.describe() | peers.versions, time.monotonic()
    print("\n".join(f"{key}: {value}" for key, value in about.items()))
    print("\n".join(peers.missing))
    print(f"the rule: others wait at most {MAX_WAIT_MS:g} ms, memory grows by at most {MAX_GROWTH_MB:g} MB", flush=True)
    rows: list[AttackRow] = []
    try:
        with run_as_client():
            for one in wanted:
                rows.append(_measure(one, peers.names, given))
            if given.seconds > 0:
                rows += _search(given.seconds, given.seed)
    except KeyboardInterrupt:
        print("\nstopped; what was measured until now follows")
    libraries = [OURS, *peers.names]
    table = markdown(rows, libraries)
    broken = [row for row in rows if row.breaches]
    print(f"\n{table}\n\n{len(rows) - len(broken)} of {len(rows)} attacks keep to the rule, {_elapsed(began)}")
    for row in broken:
        print(f"{row.name}: {'; '.join(row.breaches)}")
    if given.json is not None:
        given.json.write_text(json.dumps({"machine": about, "rows": [row.as_json() for row in rows]}, indent=1))
    if given.markdown is not None:
        given.markdown.write_text(table + "\n")
    raise SystemExit(1 if broken or len(rows) < len(wanted) else 0)


def choose(parser: argparse.ArgumentParser, given: argparse.Namespace, planned: list[Planned]) -> list[Planned]:
    """The attacks that are asked for, by their names or groups; if neither is named, all."""
    names = [] if given.only is None else given.only.split(",")
    groups = [] if given.group is None else given.group.split(",")
    for kind, asked, known in (
        ("attack", names, [one.name for one in planned]),
        ("group", groups, list(dict.fromkeys(one.group for one in planned))),
    ):
        if unknown := [one for one in asked if one not in known]:
            parser.error(f"there is no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    if not names and not groups:
        return planned
    return [one for one in planned if one.name in names or one.group in groups]


def _elapsed(began: float) -> str:
    return f"in {time.monotonic() - began:.0f} s"


def _measure(one: Planned, peers: list[str], given: argparse.Namespace) -> AttackRow:
    row = AttackRow(one.name, one.title)
    print(f"\n==> {one.name}: {one.title}", flush=True)
    try:
        for library in (OURS, *(peers if one.for_peers else ())):
            is_ours = library == OURS
            measured = one.measure(
                library, given.bound if is_ours else given.peers_bound, given.attempts if is_ours else 1
            )
            row.measured[library] = measured
            verdict = f"\n            {'; '.join(measured.breaches())}" if is_ours and measured.breaches() else ""
            print(f"{library:<12}{describe(measured)}{verdict}", flush=True)
    except SkippedError as skipped:
        row.skipped = f"not measured: {skipped}"
        print(row.skipped)
    return row


def _search(seconds: float, seed: int) -> list[AttackRow]:
    """Looks for costly requests, and measures the ten worst again on new servers."""
    print(f"\n==> search: requests made of the schemas of all endpoints, for {seconds:g} s, seed {seed}", flush=True)
    try:
        endpoints = searched_server.find_endpoints()
    except SkippedError as skipped:
        print(f"not measured: {skipped}")
        return [AttackRow("search", "requests found by search", skipped=f"not measured: {skipped}")]
    with searched_server.SearchedServer(endpoints) as server:
        end = time.monotonic() + seconds
        found = search.search(endpoints, server.try_, lambda: (end - time.monotonic()) / seconds, seed)
        print(f"{server.tried:,} requests were tried")
    rows = []
    for number, one in enumerate(found, 1):
        measured = searched_server.confirm(one, endpoints)
        row = AttackRow(f"search-{number}", f"found: {search.describe(one.candidate, endpoints)}", {OURS: measured})
        rows.append(row)
        print(f"{row.title}\n            {describe(measured)} {'; '.join(row.breaches)}", flush=True)
    return rows


if __name__ == "__main__":
    main()
