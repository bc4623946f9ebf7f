"""What an HTTP API costs: from the start of a process to its first `discover`, memory, search, growth; beside FastMCP.

Each run is a new gateway on stdio, cold with empty folders, then warm with what the cold one kept. The memory is the
PSS of the gateway's process some seconds later, when it has compared what it lists. FastMCP makes one tool for each
operation, and is asked for its list of tools. No request is sent to an API.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import messages, report
from bench.corpus import CORPUS
from bench.idle_clients import memory_bytes
from bench.machine import SERVER_CORE, run_on_core
from bench.options import BenchOptions
from bench.peers import ROOT
from bench.proxy_process import PipeFront, listed_names, write_config
from bench.report import BenchReport, FigureTable
from deltamcp.values import Era

GITHUB = CORPUS / "openapi" / "github-ghes-3.6.json"
SIZES = (10, 1_000, 5_000)
"""Operations of the generated documents; what the first of them costs is taken off from what the others do."""
_NOISE = 1.1
SETTLED_SECONDS = 3.0
"""After so long a gateway has compared what it lists, for which it loads tables."""
QUERIES = (
    *("list repositories of an organization", "create an issue", "merge a pull request", "delete a branch protection"),
    *("add a label", "who am I", "search code", "upload a release asset", "list commits", "remove a collaborator"),
)
_BIN = Path(sys.executable).parent


class OpenApiFigures(NamedTuple):
    """One start: ms to the first reply and of CPU time until then, MB, and ms of each search after it."""

    first_ms: float
    cpu_ms: float
    megabytes: float
    searches: list[float]


class OpenApiCase(NamedTuple):
    """What is started, cold and then warm; FastMCP keeps nothing."""

    name: str
    words: list[str]
    is_ours: bool = True


def measure(options: BenchOptions) -> BenchReport:
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder, run_on_core(SERVER_CORE):
        small = write_config(f"{folder}/small.json", {"add": _small_entry()})
        cases = [OpenApiCase("one small server", [str(_BIN / "delta-mcp"), "gateway", small])]
        documents = {f"{size:,} generated operations": _generate(Path(folder), size) for size in SIZES}
        if GITHUB.is_file():
            documents = {"GitHub": GITHUB, **documents}
        else:
            notes.append(f"GitHub's document is left out: there is no {GITHUB}")
        for name, path in documents.items():
            cases.append(OpenApiCase(name, _words(path)))
            if "fastmcp" in options.peers.names:
                words = [sys.executable, "-m", "bench.servers.fastmcp_openapi", str(path)]
                cases.append(OpenApiCase(f"{name}, fastmcp", words, False))
        cold, warm = _measure(cases, folder, options.rounds)
    notes += options.peers.missing
    return BenchReport(_tables(cold, warm, notes), _verdicts(cold, warm))


def _small_entry() -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "bench.servers.ours", "stdio", "add"], "cwd": str(ROOT)}


def _words(document: Path) -> list[str]:
    return [str(_BIN / "delta-mcp"), "gateway", "--openapi", str(document), "--base-url", "http://127.0.0.1:9"]


Runs = dict[str, list[OpenApiFigures]]


def _measure(cases: list[OpenApiCase], folder: str, rounds: int) -> tuple[Runs, Runs]:
    cold: Runs = {case.name: [] for case in cases}
    warm: Runs = {case.name: [] for case in cases if case.is_ours}
    for number in range(rounds):
        for case in cases:
            homes = f"{folder}/{number} {case.name}"
            cold[case.name].append(_start(case, homes))
            if case.is_ours:
                warm[case.name].append(_start(case, homes))
    return cold, warm


def _start(case: OpenApiCase, folder: str) -> OpenApiFigures:
    """Starts a process, has it find or list, and lets it settle.

    Raises:
        RuntimeError: it does not find what it should.
    """
    began = time.perf_counter()
    front = PipeFront(case.words, folder)
    try:
        if case.is_ours:
            _discover(front, QUERIES[0])
        else:
            listed_names(front)
        first = (time.perf_counter() - began) * 1e3
        used = _cpu_ms(front.server.process.pid)
        searches = [_discover(front, query) for query in QUERIES * 3] if case.is_ours else []
        time.sleep(SETTLED_SECONDS)
        return OpenApiFigures(first, used, memory_bytes(front) / 1e6, searches)
    finally:
        front.close()


def _cpu_ms(pid: int) -> float:
    """The CPU time of a process so far, which a busy machine does not lengthen as it does all else."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _discover(front: PipeFront, query: str) -> float:
    """The ms of one search."""
    body = messages.call(Era.HANDSHAKE, "discover", {"query": [query]})
    began = time.perf_counter()
    reply = front.ask(body)
    took = (time.perf_counter() - began) * 1e3
    if b'"isError":true' in reply or b'"error"' in reply[:60]:
        raise RuntimeError(f"discover answers {reply[:300]!r}")
    return took


def _generate(folder: Path, size: int) -> Path:
    """Writes a document of so many operations, each with parameters or a body, and shared schemas."""
    reference = {"$ref": "#/components/schemas/Thing"}
    paths: dict[str, Any] = {}
    for number in range(size // 2):
        place, tag = f"/area{number % 97}/things{number}/{{id}}", f"area {number % 97}"
        query = [
            {"name": name, "in": "query", "description": f"Filters by {name}", "schema": {"type": "string"}}
            for name in ("owner", "state", f"field{number % 13}")
        ]
        identity = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
        content = {"application/json": {"schema": reference}}
        paths[place] = {
            "get": {
                "operationId": f"get-thing-{number}",
                "summary": f"Get the thing number {number}",
                "tags": [tag],
                "parameters": [identity, *query],
                "responses": {"200": {"description": "It", "content": content}},
            },
            "put": {
                "operationId": f"replace-thing-{number}",
                "summary": f"Replace the thing number {number}",
                "tags": [tag],
                "parameters": [identity],
                "requestBody": {"required": True, "content": content},
                "responses": {"200": {"description": "It", "content": content}},
            },
        }
    fields = {f"field{number}": {"type": "string", "description": f"The field {number}"} for number in range(8)}
    thing = {"type": "object", "properties": {**fields, "parent": reference}, "required": ["field0"]}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Things", "version": "1"},
        "servers": [{"url": "https://things.example"}],
        "paths": paths,
        "components": {"schemas": {"Thing": thing}},
    }
    path = folder / f"{size}.json"
    path.write_text(json.dumps(document))
    return path


def _median(runs: list[OpenApiFigures]) -> OpenApiFigures:
    return OpenApiFigures(
        statistics.median(run.first_ms for run in runs),
        statistics.median(run.cpu_ms for run in runs),
        statistics.median(run.megabytes for run in runs),
        [took for run in runs for took in run.searches],
    )


def _tables(cold: Runs, warm: Runs, notes: list[str]) -> list[FigureTable]:
    rows: list[tuple[str, list[float | None]]] = []
    for name, runs in cold.items():
        one, kept = _median(runs), _median(warm[name]) if name in warm else None
        searches = sorted(one.searches + (kept.searches if kept is not None else []))
        rows.append(
            (
                name,
                [
                    one.first_ms,
                    one.cpu_ms,
                    None if kept is None else kept.first_ms,
                    None if kept is None else kept.cpu_ms,
                    one.megabytes,
                    None if kept is None else kept.megabytes,
                    statistics.median(searches) if searches else None,
                    statistics.quantiles(searches, n=20)[-1] if searches else None,
                ],
            )
        )
    columns = ["cold, ms", "of CPU", "warm, ms", "of CPU", "cold, MB", "warm, MB", "search p50", "p95, ms"]
    how = (
        "From the start of the process to the first discover, of FastMCP to the first tools/list; medians over rounds."
    )
    return [FigureTable("HTTP APIs", how, columns, rows, notes)]


def _verdicts(cold: Runs, warm: Runs) -> list[report.Verdict]:
    small, none, less, more = (_median(cold[name]) for name in ("one small server", *map(_label, SIZES)))
    verdicts: list[report.Verdict] = []
    if "GitHub" in cold:
        github, kept = _median(cold["GitHub"]), _median(warm["GitHub"])
        searches = github.searches + kept.searches
        verdicts += [
            report.at_most("GitHub, start to the first discover, cold", github.first_ms, 1_500, " ms"),
            report.at_most("GitHub, start to the first discover, warm", kept.first_ms, 500, " ms"),
            report.at_most("GitHub, memory above one small server", github.megabytes - small.megabytes, 60, " MB"),
            report.at_most("GitHub, search p50", statistics.median(searches), 5, " ms"),
        ]
    what = f"{SIZES[2]:,} operations / {SIZES[1]:,}, of each"
    slower = _each(more.cpu_ms, none.cpu_ms, SIZES[2]) / _each(less.cpu_ms, none.cpu_ms, SIZES[1])
    larger = _each(more.megabytes, none.megabytes, SIZES[2]) / _each(less.megabytes, none.megabytes, SIZES[1])
    return [
        *verdicts,
        report.at_most(f"{what}: CPU time to the first discover", slower, _NOISE),
        report.at_most(f"{what}: memory", larger, _NOISE),
    ]


def _each(cost: float, without: float, size: int) -> float:
    return (cost - without) / (size - SIZES[0])


def _label(size: int) -> str:
    return f"{size:,} generated operations"
