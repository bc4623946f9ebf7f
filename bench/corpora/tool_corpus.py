"""Reads the corpus of the retrieval benchmark: tools, and queries with the tools that answer them.

mcp_tools/*.json          {"server": ..., "tools": [MCP tool definitions]}
retrieval/*/pool.jsonl    {"id": ..., "server": ..., and an MCP tool definition}; without it, all of mcp_tools
retrieval/*/*.jsonl       {"qid": ..., "query": ..., "gold": [[ids that serve equally], ...]}
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from deltamcp.values import JSON


class Entry(NamedTuple):
    """A tool of the corpus."""

    id: str
    group: str
    tool: dict[str, JSON]


class Query(NamedTuple):
    """A query and the tools that answer it."""

    text: str
    gold: tuple[frozenset[str], ...]
    """Groups of tool ids; an answer needs one tool of each group."""


class QuerySet(NamedTuple):
    """The queries of one file."""

    name: str
    folder: str
    """The sets of one folder search the same pool of tools."""
    queries: tuple[Query, ...]


class Corpus(NamedTuple):
    """All tools and queries of a directory."""

    pools: dict[str, tuple[Entry, ...]]
    """The tools that each folder's queries search."""
    sets: tuple[QuerySet, ...]
    servers: tuple[Entry, ...]
    """Every tool of mcp_tools."""


def read(data: Path) -> Corpus:
    """Reads a corpus from a directory; passes over rows and files of another shape."""
    servers = tuple(_read_servers(data / "mcp_tools"))
    pools: dict[str, tuple[Entry, ...]] = {}
    sets: list[QuerySet] = []
    for folder in sorted(path for path in (data / "retrieval").glob("*") if path.is_dir()):
        pool = folder / "pool.jsonl"
        pools[folder.name] = tuple(_read_entries(_read_rows(pool))) if pool.is_file() else servers
        for path in sorted(folder.glob("*.jsonl")):
            name = folder.name if path.stem == "queries" else f"{folder.name}/{path.stem}"
            queries = tuple(_read_queries(_read_rows(path))) if path != pool else ()
            if queries:
                sets.append(QuerySet(name, folder.name, queries))
    return Corpus(pools, tuple(sets), servers)


def _read_servers(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.glob("*.json")):
        content = msgspec.json.decode(path.read_bytes())
        if not isinstance(content, dict) or not isinstance(content.get("tools"), list):
            continue
        server = str(content.get("server", path.stem))
        for tool in content["tools"]:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                yield Entry(f"{server}/{tool['name']}", server, tool)


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            row = msgspec.json.decode(line) if line.strip() else None
            if isinstance(row, dict):
                yield row


def _read_entries(rows: Iterator[dict[str, Any]]) -> Iterator[Entry]:
    for row in rows:
        if isinstance(row.get("id"), str):
            yield Entry(row["id"], str(row.get("server") or ""), row)


def _read_queries(rows: Iterator[dict[str, Any]]) -> Iterator[Query]:
    for row in rows:
        if row.get("gold") and {"qid", "query"} <= row.keys():
            yield Query(str(row["query"]), tuple(frozenset(group) for group in row["gold"]))
