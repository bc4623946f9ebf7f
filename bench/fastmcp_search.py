"""FastMCP's BM25 tool search, its own code, as a process: a request a line in, an answer a line out.

    in   {"set": name, "tools": [{"id", "group", "tool"}], "queries": [text]}
    out  {"set": name, "rankings": [[up to ten ids]], "seconds": [for each query], "version": FastMCP's}

Tools are named `<group>_<name>`, as FastMCP names those of a mounted server. It hashes its catalog anew for every
search; the seconds here are without that.
"""

import json
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from fastmcp.server.transforms.search.base import _extract_searchable_text
from fastmcp.server.transforms.search.bm25 import _BM25Index

TOP = 10


def searchable_text(entry: dict[str, Any]) -> str:
    tool = entry["tool"]
    prefix = f"{entry['group']}_" if entry["group"] else ""
    seen: Any = SimpleNamespace(
        name=prefix + tool.get("name", ""), description=tool.get("description"), parameters=tool.get("inputSchema")
    )
    text: str = _extract_searchable_text(seen)
    return text


def answer(request: dict[str, Any]) -> dict[str, Any]:
    ids = [entry["id"] for entry in request["tools"]]
    index = _BM25Index()
    index.build([searchable_text(entry) for entry in request["tools"]])
    rankings, seconds = [], []
    for query in request["queries"]:
        begin = time.perf_counter()
        found = index.query(query, TOP)
        seconds.append(time.perf_counter() - begin)
        rankings.append([ids[place] for place in found])
    return {"set": request["set"], "rankings": rankings, "seconds": seconds, "version": version("fastmcp")}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
