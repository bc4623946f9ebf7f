"""What a start costs: the CPU time of the import, and the time from spawn to the first `tools/list` over stdio.

Every run is a new process; the order of the sides is new each round. Byte code is compiled before.
"""

import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from deltamcp.bench.speed import messages, report
from deltamcp.bench.speed.clients import START_SECONDS, StdioSide
from deltamcp.bench.speed.machine import SERVER_CORE, on_core
from deltamcp.bench.speed.messages import Era
from deltamcp.bench.speed.report import Report, Table
from deltamcp.bench.speed.sides import BARE, OURS, PEERS, Peers, Side

COUNTS = (1, 100)
"""Tools that the started servers have."""


class Import(NamedTuple):
    name: str
    statement: str
    python: str = sys.executable


OURSELVES = [
    Import("msgspec and pydantic alone", "import msgspec, pydantic"),
    Import("ours", "import deltamcp"),
    Import("ours, when serving HTTP", "import deltamcp, deltamcp.transports.uvicorn_server"),
]


def measure(rounds: int, peers: Peers, say: Callable[[str], None] = lambda _: None) -> Report:
    imports = [*OURSELVES, *(Import(side.name, PEERS[side.name].imported, side.python) for side in peers.sides)]
    imported: dict[str, list[float]] = {one.name: [] for one in imports}
    for one in imports:
        _import_ms(one)
    for _ in range(rounds):
        for one in random.sample(imports, len(imports)):
            say(f"import: {one.name}")
            imported[one.name].append(_import_ms(one))
    starts = [(side, count) for side in (BARE, OURS, *peers.sides) for count in COUNTS]
    started: dict[tuple[str, int], list[float]] = {(side.name, count): [] for side, count in starts}
    for _ in range(rounds):
        for side, count in random.sample(starts, len(starts)):
            say(f"start with {count} tools: {side.name}")
            started[side.name, count].append(_first_list_ms(side, count))
    verdicts = [report.at_most("import deltamcp, CPU, minimum", min(imported["ours"]), 150, " ms")]
    for count in COUNTS:
        share = _of(started["ours", count], started.get(("sdk", count)))
        if share is not None:
            verdicts.append(report.at_most(f"spawn to first tools/list, {count} tools: ours / sdk", share, 0.4))
    return Report([_import_table(imported, peers), _start_table(started, peers)], verdicts)


def _import_ms(one: Import) -> float:
    code = f"import time; began = time.process_time(); {one.statement}; print(time.process_time() - began)"
    with on_core(SERVER_CORE):
        ran = subprocess.run([one.python, "-EP", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return float(ran.stdout) * 1e3


def _first_list_ms(side: Side, count: int) -> float:
    with StdioSide(side, f"many:{count}") as server:
        server.handshake()
        reply = server.ask(messages.request(Era.HANDSHAKE, "tools/list", id=2), START_SECONDS)
        took = server.age
    if side != BARE and messages.tools_of(reply) != count:
        raise RuntimeError(f"{side.name} lists {reply[:500]!r}")
    return took * 1e3


def _of(times: list[float], sdk: list[float] | None) -> float | None:
    return None if sdk is None else report.ratio(times, sdk)


def _import_table(imported: dict[str, list[float]], peers: Peers) -> Table:
    rows: list[tuple[str, list[float | None]]] = [
        (name, [min(times), statistics.median(times), _of(times, imported.get("sdk"))])
        for name, times in imported.items()
    ]
    how = "process_time of the import in a new interpreter."
    return Table("Import, CPU", how, ["minimum ms", "median ms", "of sdk"], rows, [*peers.missing])


def _start_table(started: dict[tuple[str, int], list[float]], peers: Peers) -> Table:
    rows: list[tuple[str, list[float | None]]] = []
    for side in (BARE, OURS, *peers.sides):
        figures: list[float | None] = []
        for count in COUNTS:
            times = started[side.name, count]
            figures += [statistics.median(times), _of(times, started.get(("sdk", count)))]
        rows.append((side.name, figures))
    columns = [heading for count in COUNTS for heading in (f"{count} tools, ms", "of sdk")]
    how = "Wall time from before the spawn, through initialize, to the whole reply; bare has no tools and echoes."
    return Table("Spawn to first tools/list over stdio", how, columns, rows, [*peers.missing])
