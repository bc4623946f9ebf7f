"""How often search finds the right tool, and how fast, beside FastMCP's search over the same corpus.

FastMCP's search runs in a process of its own. It is timed on some of the queries only, for it takes some 15 ms each.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench import report
from bench.corpora import retrieval
from bench.corpora.tool_corpus import Corpus, Entry, read
from bench.corpus import CORPUS
from bench.options import BenchOptions
from bench.report import BenchReport, FigureTable
from deltamcp.costs.audit import Figures

PEER_TIMED = 100
"""Queries on which FastMCP's search is timed."""
PEER_SECONDS = 600
PEER = Path(__file__).parent.parent / "fastmcp_search.py"
_DEPTHS = tuple(f"recall_at_{depth}" for depth in retrieval.DEPTHS)


def measure(options: BenchOptions) -> BenchReport:
    corpus = read(CORPUS)
    if not corpus.sets:
        note = f"nothing was measured: {CORPUS} has no retrieval/*/*.jsonl"
        return BenchReport([FigureTable("Retrieval", retrieval.METHOD, [], [], [note])], [])
    ours = retrieval.run(CORPUS)["summary"]
    searches = {"ours": ours}
    if "fastmcp" in options.peers.names:
        searches["fastmcp"] = run_fastmcp(corpus)
    quality = FigureTable(
        "Retrieval, recall at 1, 5 and 10 in %",
        "Averaged over queries; macro is the mean of the sets.",
        [f"{name} @{depth}" for name in searches for depth in retrieval.DEPTHS],
        [
            *((each.name, _recalls(searches.values(), each.name)) for each in corpus.sets),
            ("macro", [found[f"macro_{depth}"] for found in searches.values() for depth in _DEPTHS]),
        ],
        [*options.peers.missing],
    )
    speed = FigureTable(
        f"Retrieval, a search in {retrieval.LARGE:,} tools",
        "Wall time of one query.",
        ["p50 ms", "p99 ms"],
        [(name, [found["p50_ms"], found["p99_ms"]]) for name, found in searches.items()],
    )
    return BenchReport([quality, speed], [report.at_least("macro recall at 5", ours["macro_recall_at_5"], 73, " %")])


def _recalls(searches: Iterable[Figures], name: str) -> list[float | None]:
    return [found["sets"][name][depth] for found in searches for depth in _DEPTHS]


def run_fastmcp(corpus: Corpus) -> Figures:
    """Grades and times FastMCP's search as `retrieval.run` does ours.

    Raises:
        RuntimeError: it does not run.
    """
    texts = [query.text for each in corpus.sets for query in each.queries]
    requests = [
        _request(each.name, corpus.pools[each.folder], [query.text for query in each.queries]) for each in corpus.sets
    ]
    requests.append(_request("", retrieval.large_catalog(corpus), texts[:: max(len(texts) // PEER_TIMED, 1)]))
    ran = subprocess.run(
        [sys.executable, "-EP", str(PEER)],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=PEER_SECONDS,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"FastMCP's search does not run: {ran.stderr[-500:]}")
    *answers, timed = map(json.loads, ran.stdout.splitlines())
    return retrieval.grade(corpus, {answer["set"]: answer["rankings"] for answer in answers}) | {
        "p50_ms": retrieval.percentile_ms(timed["seconds"], 50),
        "p99_ms": retrieval.percentile_ms(timed["seconds"], 99),
    }


def _request(name: str, entries: Iterable[Entry], queries: Sequence[str]) -> Figures:
    return {"set": name, "tools": [entry._asdict() for entry in entries], "queries": queries}
