"""The retrieval benchmark: measures how often a search ranks the right tool high, what it shows, and its speed."""

import platform
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TypeAlias, TypeVar

from bench.corpora.tokens import make_operation
from bench.corpora.tool_corpus import Corpus, Entry, Query, QuerySet, read
from deltamcp import tokens
from deltamcp.catalog import discovery
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.search.index import SearchIndex
from deltamcp.catalog.view import SharedItems, View
from deltamcp.costs.audit import Figures

T = TypeVar("T")
Rankings: TypeAlias = list[list[str]]

TOP = 10
DEPTHS = (1, 5, 10)
REPLY_FIGURES = ("shown_recall", "good_recall", "reply_lines", "reply_tokens")
LARGE = 10_000
ADDED = 100
"""How many tools are added one by one to the large catalog, to time adding one."""

METHOD = (
    "recall@k: the share of a query's gold groups of which a member is among the first k, averaged over queries. "
    "macro: averaged over sets. mrr: one over the place of the first gold tool, 0 past the tenth. "
    "shown_recall: the same share over what a reply of `discover` shows; good_recall: over what it does not mark as "
    "weak; reply_lines and reply_tokens (o200k): the mean size of such a reply. "
    f"Queries are searched whole, one at a time. Latency: {LARGE:,} tools, made of every pool and mcp_tools, repeated "
    "under varied names until there are enough; every query of every set once, by wall clock and by the thread's CPU."
)


def run(data: Path, progress: Callable[[str], None] = lambda _: None) -> Figures:
    """Measures the search over the corpus in `data`."""
    corpus = read(data)
    texts = [query.text for each in corpus.sets for query in each.queries]
    progress("quality")
    summary = _measure_quality(corpus)
    progress("speed")
    summary |= _measure_speed(large_catalog(corpus), texts)
    provenance = {name: "computed" if name.startswith("macro") else "measured" for name in summary}
    return {"summary": summary, "provenance": provenance, "method": METHOD, "python": platform.python_version()}


def _measure_quality(corpus: Corpus) -> Figures:
    indexes = {folder: _index(pool) for folder, pool in corpus.pools.items()}
    summary = grade(corpus, {each.name: _rank(indexes[each.folder], each.queries) for each in corpus.sets})
    return summary | _grade_replies(corpus, indexes, summary["sets"])


def _rank(index: SearchIndex, queries: Iterable[Query]) -> Rankings:
    return [[hit.id for hit in index.search(query.text, TOP)] for query in queries]


def _index(entries: Iterable[Entry]) -> SearchIndex:
    index = SearchIndex()
    for entry in entries:
        index.put(entry.id, entry.tool, entry.group)
    return index


def grade(corpus: Corpus, rankings: dict[str, Rankings]) -> Figures:
    """Grades a search by its rankings (tool ids, best first) for the queries of each set."""
    sets = {each.name: _grade_set(each, rankings[each.name], len(corpus.pools[each.folder])) for each in corpus.sets}
    names = [*(f"recall_at_{depth}" for depth in DEPTHS), "mrr"]
    macro = {f"macro_{name}": _mean([scores[name] for scores in sets.values()]) for name in names}
    return macro | {"sets": sets}


def _grade_set(each: QuerySet, rankings: Rankings, tools: int) -> Figures:
    places = [_places(query, ranking) for query, ranking in zip(each.queries, rankings, strict=True)]
    grades: Figures = {
        f"recall_at_{depth}": round(100 * _mean([_mean([place <= depth for place in found]) for found in places]), 2)
        for depth in DEPTHS
    }
    grades["mrr"] = _mean([1 / min(found) if min(found) <= TOP else 0.0 for found in places])
    return grades | {"queries": len(each.queries), "tools": tools}


def _grade_replies(corpus: Corpus, indexes: dict[str, SearchIndex], sets: dict[str, Figures]) -> Figures:
    """Adds to the grades of each set what `discover` shows for its queries; returns the means over sets."""
    for each in corpus.sets:
        view = _view(corpus.pools[each.folder], indexes[each.folder])
        replies = [_reply_figures(query, view) for query in each.queries]
        sets[each.name] |= {name: round(_mean([reply[name] for reply in replies]), 2) for name in REPLY_FIGURES}
    return {f"macro_{name}": _mean([grades[name] for grades in sets.values()]) for name in REPLY_FIGURES}


def _view(pool: Iterable[Entry], index: SearchIndex) -> View:
    operations = {entry.id: make_operation(entry) for entry in pool}
    return View(operations, SharedItems({}, {}, {}), Disclosure("meta"), "bench", None, _Built(index), True, None)


class _Built:
    """An index that has all of its operations."""

    unindexed_count = 0
    gives_promises = False

    def __init__(self, index: SearchIndex) -> None:
        self._index = index

    def search_index(self) -> SearchIndex:
        return self._index


def _reply_figures(query: Query, view: View) -> Figures:
    hits = view.search(query.text, discovery.MAX_HITS + 1, view.operations.keys())
    reply = discovery.hits_text(view, {query.text: hits}, discovery.parse_discover_arguments({"query": query.text}))
    shown = hits[: discovery.MAX_HITS]
    return {
        "shown_recall": 100 * _shown_share(query, view, [hit.operation for hit in shown]),
        "good_recall": 100 * _shown_share(query, view, [hit.operation for hit in shown if not hit.is_weak]),
        "reply_lines": len(reply.splitlines()),
        "reply_tokens": tokens.count(reply),
    }


def _shown_share(query: Query, view: View, shown: Sequence[Operation]) -> float:
    return _mean([any(view.operations.get(gold) in shown for gold in group) for group in query.gold])


def _places(query: Query, ranking: list[str]) -> list[int]:
    """Returns the rank of the first found member of each gold group; `TOP + 1` if none was found."""
    return [
        next((place for place, found in enumerate(ranking[:TOP], 1) if found in group), TOP + 1) for group in query.gold
    ]


def large_catalog(corpus: Corpus) -> list[Entry]:
    """Makes a catalog of `LARGE` tools, the size for which the project promises its latency."""
    pools = list(corpus.pools.values())
    if not any(pool is corpus.servers for pool in pools):
        pools.append(corpus.servers)
    entries = [entry for pool in pools for entry in pool]
    return [_edition(place, len(entries), entry) for place, entry in zip(range(LARGE), cycle(entries), strict=False)]


def _edition(place: int, distinct: int, entry: Entry) -> Entry:
    """Returns the entry unchanged in the first round, under another name and group in later rounds."""
    edition = place // distinct
    if not edition:
        return entry._replace(id=f"{place}:{entry.id}")
    tool = entry.tool | {"name": f"{entry.tool.get('name', '')}_v{edition}"}
    return Entry(f"{place}:{entry.id}", f"{entry.group}{edition}" if entry.group else "", tool)


def _measure_speed(catalog: Sequence[Entry], texts: Sequence[str]) -> Figures:
    build, index = _measure_time(lambda: _index(catalog))
    wall: list[float] = []
    cpu: list[float] = []
    for text in texts:
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        index.search(text, TOP)
        cpu.append(time.thread_time() - begin_cpu)
        wall.append(time.perf_counter() - begin)
    added = [Entry(f"{entry.id}~added", entry.group, entry.tool) for entry in catalog[:ADDED]]
    adding = [_measure_time(partial(index.put, entry.id, entry.tool, entry.group))[0] for entry in added]
    return {
        "p50_ms": percentile_ms(wall, 50),
        "p99_ms": percentile_ms(wall, 99),
        "p50_cpu_ms": percentile_ms(cpu, 50),
        "p99_cpu_ms": percentile_ms(cpu, 99),
        "build_ms": round(1000 * build, 1),
        "add_ms": round(1000 * _mean(adding), 3),
    }


def _measure_time(work: Callable[[], T]) -> tuple[float, T]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 6) if values else 0.0


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """Returns a percentile of times, in milliseconds."""
    ranked = sorted(seconds)
    return round(1000 * ranked[min(len(ranked) * percent // 100, len(ranked) - 1)], 3) if ranked else 0.0


def table(report: Figures) -> str:
    """Formats a report for people, with each set's recall at 1, 5 and 10."""
    summary = report["summary"]
    lines = [f"{'recall at 1 / 5 / 10, %':30}{'queries':>8}{'tools':>7}"]
    for name, grades in summary["sets"].items():
        lines.append(f"{name:30}{grades['queries']:8}{grades['tools']:7}   {_recalls(grades)}")
    lines.append(f"{'macro':45}   {_recalls(summary, 'macro_')}")
    lines.append(f"{'macro mrr':45}   {summary['macro_mrr']:.3f}")
    lines.append(f"{'shown recall / of good hits, %; lines, tokens':45}")
    for name, grades in [*summary["sets"].items(), ("macro", _macro_reply(summary))]:
        recall = f"{grades['shown_recall']:.1f} / {grades['good_recall']:.1f}"
        lines.append(f"{name:45}   {recall}; {grades['reply_lines']:.1f}, {grades['reply_tokens']:.0f}")
    lines.append(f"{f'p50 / p99 ms, {LARGE:,} tools':45}   {summary['p50_ms']:.2f} / {summary['p99_ms']:.2f}")
    lines.append(f"{'the same, CPU':45}   {summary['p50_cpu_ms']:.2f} / {summary['p99_cpu_ms']:.2f}")
    lines.append(f"{f'build ms, {LARGE:,} tools; add one':45}   {summary['build_ms']:.0f}; {summary['add_ms']:.3f}")
    return "\n".join(lines)


def _macro_reply(summary: Figures) -> Figures:
    return {name: summary[f"macro_{name}"] for name in REPLY_FIGURES}


def _recalls(grades: Figures, prefix: str = "") -> str:
    return " / ".join(f"{grades[f'{prefix}recall_at_{depth}']:.1f}" for depth in DEPTHS)
