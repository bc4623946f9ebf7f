"""What a start costs: the CPU time of the import, and the time from spawn to the first `tools/list` over stdio.

Every run is a new process; the order of the sides is new each round. Byte code is compiled before.
"""

import random
import statistics
import subprocess
import sys

from bench import messages, report
from bench.clients import START_SECONDS, StdioSide
from bench.machine import SERVER_CORE, on_core
from bench.messages import Era
from bench.report import Report, Table

IMPORTS = {
    "msgspec and pydantic alone": "import msgspec, pydantic",
    "ours": "import deltamcp",
    "ours, when serving HTTP": "import deltamcp, deltamcp.transports.uvicorn_door",
    "sdk": "from mcp.server.mcpserver import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
}
SIDES = ("bare", "ours", "sdk", "fastmcp")
COUNTS = (1, 100)


def measure(rounds: int) -> Report:
    imported: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for name in IMPORTS:
        _import_ms(name)
    for _ in range(rounds):
        for name in random.sample(list(IMPORTS), len(IMPORTS)):
            imported[name].append(_import_ms(name))
    started: dict[tuple[str, int], list[float]] = {(side, count): [] for side in SIDES for count in COUNTS}
    for _ in range(rounds):
        for side, count in random.sample(list(started), len(started)):
            started[side, count].append(_first_list_ms(side, count))
    verdicts = [report.at_most("import deltamcp, CPU, minimum", min(imported["ours"]), 150, " ms")]
    for count in COUNTS:
        share = report.ratio(started["ours", count], started["sdk", count])
        verdicts.append(report.at_most(f"spawn to first tools/list, {count} tools: ours / sdk", share, 0.4))
    return Report([_import_table(imported), _start_table(started)], verdicts)


def _import_ms(name: str) -> float:
    code = f"import time; began = time.process_time(); {IMPORTS[name]}; print(time.process_time() - began)"
    with on_core(SERVER_CORE):
        ran = subprocess.run([sys.executable, "-E", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return float(ran.stdout) * 1e3


def _first_list_ms(side: str, count: int) -> float:
    with StdioSide(side, f"many:{count}") as server:
        server.handshake()
        reply = server.ask(messages.request(Era.HANDSHAKE, "tools/list", id=2), START_SECONDS)
        took = server.age
    if side != "bare" and messages.tools_of(reply) != count:
        raise RuntimeError(f"{side} lists {reply[:500]!r}")
    return took * 1e3


def _import_table(imported: dict[str, list[float]]) -> Table:
    rows: list[tuple[str, list[float | None]]] = [
        (name, [min(times), statistics.median(times), report.ratio(times, imported["sdk"])])
        for name, times in imported.items()
    ]
    how = "process_time of the import in a new interpreter."
    return Table("Import, CPU", how, ["minimum ms", "median ms", "of sdk"], rows)


def _start_table(started: dict[tuple[str, int], list[float]]) -> Table:
    rows: list[tuple[str, list[float | None]]] = []
    for side in SIDES:
        figures: list[float | None] = []
        for count in COUNTS:
            times = started[side, count]
            figures += [statistics.median(times), report.ratio(times, started["sdk", count])]
        rows.append((side, figures))
    columns = [heading for count in COUNTS for heading in (f"{count} tools, ms", "of sdk")]
    how = "Wall time from before the spawn, through initialize, to the whole reply; bare has no tools and echoes."
    return Table("Spawn to first tools/list over stdio", how, columns, rows)
