"""What a start costs: the CPU time of the import, and the time from spawn to the first `tools/list` over stdio.

Every run is a new process; the order of the sides is new each round. Byte code is compiled before.
"""

import random
import statistics
import subprocess
import sys
from typing import NamedTuple

from bench import messages, report
from bench.machine import SERVER_CORE, run_on_core
from bench.options import BenchOptions
from bench.peers import BARE, OURS, PEERS, InstalledPeers
from bench.ports import START_SECONDS
from bench.report import BenchReport, FigureTable
from bench.server_process import StdioServerProcess
from deltamcp.values import Era

COUNTS = (1, 100)
"""Tools that the started servers have."""


class ImportCase(NamedTuple):
    name: str
    statement: str


_OUR_IMPORTS = [
    ImportCase("msgspec and pydantic alone", "import msgspec, pydantic"),
    ImportCase("ours", "import deltamcp"),
    ImportCase("ours, when serving HTTP", "import deltamcp, deltamcp.transports.http.server"),
]


def measure(options: BenchOptions) -> BenchReport:
    peers = options.peers
    imports = [*_OUR_IMPORTS, *(ImportCase(name, PEERS[name].statement) for name in peers.names)]
    imported: dict[str, list[float]] = {one.name: [] for one in imports}
    for one in imports:
        _import_ms(one)
    for _ in range(options.rounds):
        for one in random.sample(imports, len(imports)):
            imported[one.name].append(_import_ms(one))
    starts = [(name, count) for name in (BARE, OURS, *peers.names) for count in COUNTS]
    started: dict[tuple[str, int], list[float]] = {start: [] for start in starts}
    for _ in range(options.rounds):
        for name, count in random.sample(starts, len(starts)):
            started[name, count].append(_first_list_ms(name, count))
    verdicts = [report.at_most("import deltamcp, CPU, minimum", min(imported["ours"]), 150, " ms")]
    for count in COUNTS:
        share = _ratio_to_sdk(started["ours", count], started.get(("sdk", count)))
        if share is not None:
            verdicts.append(report.at_most(f"spawn to first tools/list, {count} tools: ours / sdk", share, 0.4))
    return BenchReport([_import_table(imported, peers), _start_table(started, peers)], verdicts)


def _import_ms(one: ImportCase) -> float:
    code = f"import time; began = time.process_time(); {one.statement}; print(time.process_time() - began)"
    with run_on_core(SERVER_CORE):
        ran = subprocess.run(
            [sys.executable, "-EP", "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
    return float(ran.stdout) * 1e3


def _first_list_ms(name: str, count: int) -> float:
    with StdioServerProcess(name, f"many:{count}") as server:
        server.handshake()
        reply = server.ask(messages.request(Era.HANDSHAKE, "tools/list", id=2), START_SECONDS)
        took = server.age
    if name != BARE and messages.tool_count(reply) != count:
        raise RuntimeError(f"{name} lists {reply[:500]!r}")
    return took * 1e3


def _ratio_to_sdk(times: list[float], sdk: list[float] | None) -> float | None:
    return None if sdk is None else report.median_ratio(times, sdk)


def _import_table(imported: dict[str, list[float]], peers: InstalledPeers) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = [
        (name, [min(times), statistics.median(times), _ratio_to_sdk(times, imported.get("sdk"))])
        for name, times in imported.items()
    ]
    how = "process_time of the import in a new interpreter."
    return FigureTable("Import, CPU", how, ["minimum ms", "median ms", "of sdk"], rows, [*peers.missing])


def _start_table(started: dict[tuple[str, int], list[float]], peers: InstalledPeers) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = []
    for name in (BARE, OURS, *peers.names):
        figures: list[float | None] = []
        for count in COUNTS:
            times = started[name, count]
            figures += [statistics.median(times), _ratio_to_sdk(times, started.get(("sdk", count)))]
        rows.append((name, figures))
    columns = [heading for count in COUNTS for heading in (f"{count} tools, ms", "of sdk")]
    how = "Wall time from before the spawn, through initialize, to the whole reply; bare has no tools and echoes."
    return FigureTable("Spawn to first tools/list over stdio", how, columns, rows, [*peers.missing])
