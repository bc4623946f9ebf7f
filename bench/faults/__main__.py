"""`python -m bench.faults`: tries faults on servers; exits with 1 if a peer does better about one than ours."""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench import machine
from bench.faults import stdio_faults
from bench.faults.connection_faults import CONNECTION_FAULTS
from bench.faults.fault_server import FaultServer
from bench.faults.message_faults import MESSAGE_FAULTS, HttpFault
from bench.faults.outcome import Outcome, harmed
from bench.faults.stdio_faults import STDIO_FAULTS
from bench.faults.table import FaultRow, markdown
from bench.peers import NO_PEERS, OURS, find_peers
from bench.server_process import run_as_client
from deltamcp.values import Era

HTTP_FAULTS = (*MESSAGE_FAULTS, *CONNECTION_FAULTS)


class SharedServers:
    """A server of each library for the faults that need no process of their own; a new one if it has ended."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._servers: dict[str, FaultServer] = {}

    def find(self, library: str) -> FaultServer:
        server = self._servers.get(library)
        if server is None or not server.lives:
            server = self._stack.enter_context(FaultServer(library))
            self._servers[library] = server
        return server


def main() -> None:
    titles = {one.name: one.title for one in (*HTTP_FAULTS, *STDIO_FAULTS)}
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description=__doc__,
        epilog="\n".join(["faults:", *(f"  {name:<20}{title}" for name, title in titles.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(titles), metavar="NAME,...", help="some of the faults")
    parser.add_argument("--no-peers", action="store_true", help="without the official SDK and FastMCP")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table of the docs there")
    given = parser.parse_args()
    wanted = given.only.split(",")
    if unknown := [name for name in wanted if name not in titles]:
        parser.error(f"there is no fault {unknown[0]!r}; there are {', '.join(titles)}")
    machine.raise_descriptor_limit()
    peers = NO_PEERS if given.no_peers else find_peers()
    libraries = [OURS, *peers.names]
    about, began = machine.describe() | peers.versions, time.monotonic()
    print("\n".join([*(f"{key}: {value}" for key, value in about.items()), *peers.missing]), flush=True)
    rows: list[FaultRow] = []
    try:
        with run_as_client(), contextlib.ExitStack() as stack:
            shared = SharedServers(stack)
            for fault in HTTP_FAULTS:
                if fault.name in wanted:
                    rows.append(_try_over_http(fault, libraries, shared))
            for piped in STDIO_FAULTS:
                if piped.name in wanted:
                    row = FaultRow(piped.name, f"stdio: {piped.title}", {"stdio": {}})
                    _announce(row)
                    for library in libraries:
                        _record(row, "stdio", library, partial(stdio_faults.measure, piped, library))
                    rows.append(row)
    except KeyboardInterrupt:
        print("\nstopped; what was tried until now follows")
    table = markdown(rows, libraries)
    short = [row for row in rows if row.shortfalls]
    print(f"\n{table}\n\n{len(rows) - len(short)} of {len(rows)} rows at least as good as the better peer", end=", ")
    print(f"in {time.monotonic() - began:.0f} s")
    for row in short:
        print(f"{row.name}: {'; '.join(row.shortfalls)}")
    if given.json is not None:
        given.json.write_text(json.dumps({"machine": about, "rows": [row.as_json() for row in rows]}, indent=1))
    if given.markdown is not None:
        given.markdown.write_text(table + "\n")
    raise SystemExit(1 if short or len(rows) < len(set(wanted)) else 0)


def _try_over_http(fault: HttpFault, libraries: list[str], shared: SharedServers) -> FaultRow:
    row = FaultRow(fault.name, fault.title, {era.value: {} for era in fault.eras})
    _announce(row)
    for era in fault.eras:
        for library in libraries:
            _record(row, era.value, library, partial(_run, fault, era, library, shared))
    return row


def _run(fault: HttpFault, era: Era, library: str, shared: SharedServers) -> Outcome:
    with _server(fault, library, shared) as server:
        return fault.run(server, era)


@contextlib.contextmanager
def _server(fault: HttpFault, library: str, shared: SharedServers) -> Iterator[FaultServer]:
    if not fault.own_process:
        yield shared.find(library)
        return
    with FaultServer(library) as server:
        yield server


def _announce(row: FaultRow) -> None:
    print(f"\n==> {row.name}: {row.title}", flush=True)


def _record(row: FaultRow, era: str, library: str, run: Callable[[], Outcome]) -> None:
    try:
        outcome = run()
    except Exception as error:  # the server has ended, or answers what no server answers
        outcome = harmed(f"{type(error).__name__}: {str(error)[:100]}")
    row.outcomes[era][library] = outcome
    print(f"{library:<10}{era:<11}{outcome.grade.name.lower():<8}{outcome.text}", flush=True)


if __name__ == "__main__":
    main()
