"""`python -m bench.published.matrix`: what results of the interop matrix's servers cost, directly and by the gateway.

Every server is asked what the tests ask, what `matrix_calls.py` has, and up to twelve tools that only read and whose
arguments can be made up. Calls that fail without a network count for nothing. A reply costs the tokens of its texts,
or of its structured content where it has no text: what clients put before a model. The gateway has its defaults.

`python -m tests.interop.install --all` installs the servers.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.published.comparison import (
    ComparedCall,
    Comparison,
    Kind,
    NotWorkingError,
    compare,
    structure_tokens_of,
    tokens_of,
)
from bench.published.harmless_calls import HarmlessCall, harmless_calls, is_reading
from bench.published.matrix_calls import CALLS
from tests.interop import web
from tests.interop.prepared import PreparedServer, prepare
from tests.interop.servers import SERVERS

MADE_UP = 12
INHERITED = ("PATH", "LANG")
KINDS: tuple[Kind, ...] = ("table", "JSON", "text", "texts beside a structure", "blocks")


@dataclass
class MatrixServer:
    """A server of the matrix in a folder of its own."""

    name: str
    folder: Path
    web_address: str
    prepared: PreparedServer = field(init=False)

    def __post_init__(self) -> None:
        self.furnish()

    @property
    def words(self) -> list[str]:
        return self.prepared.words

    @property
    def environment(self) -> Mapping[str, str]:
        """Without what this process has in its own, which some servers tell."""
        given = self.prepared.environment.items()
        return {key: value for key, value in given if key in INHERITED or os.environ.get(key) != value}

    def furnish(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.prepared = prepare(self.name, self.folder, self.web_address)

    def calls(self, tools: list[dict[str, Any]]) -> list[HarmlessCall]:
        own = self.prepared.call
        written = json.dumps([[call.tool, call.arguments] for call in CALLS.get(self.name, ())])
        filled = json.loads(written.replace("{folder}", str(self.folder)).replace("{web}", self.web_address))
        by_hand = [HarmlessCall(own.tool, own.arguments), *(HarmlessCall(*call) for call in filled)]
        # Its answer is the environment, which is another behind the gateway, by a variable that marks its processes.
        made_up = [tool for tool in tools if is_reading(tool) and tool["name"] != "get-env"]
        called = {call.tool for call in by_hand}
        return [*by_hand, *(one for one in harmless_calls(made_up, self.folder, MADE_UP) if one.tool not in called)]


def measure(name: str, web_address: str) -> Comparison | str:
    """Returns the comparison of a server, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        server = MatrixServer(name, Path(scratch) / "home", web_address)
        try:
            found = compare(server, server.calls, ("meta",))
        except NotWorkingError as error:
            return str(error)
    found.calls = [one for one in found.calls if not one.fails and one.behind]
    print(f"{name}: {len(found.calls)} calls", flush=True)
    for one in found.calls:
        if one.differs:
            print(f"    another value: {one.call.tool}", flush=True)
    return found


def print_tables(found: Mapping[str, Comparison | str]) -> None:
    print("\n| server | version | calls | direct | gateway | of it | read as |\n|---|---|---|---|---|---|---|")
    calls: list[ComparedCall] = []
    for name, one in found.items():
        if isinstance(one, str) or not one.calls:
            why = one if isinstance(one, str) else "nothing works offline"
            print(f"| {name} | {SERVERS[name].version} | 0 | | | | {why} |")
            continue
        print(f"| {name} | {SERVERS[name].version} | {_row(one.calls)} |")
        calls += one.calls
    print(f"| all | | {_row(calls)} |")
    structured = [one for one in calls if "structuredContent" in one.direct["result"]]
    more = sum(structure_tokens_of(one.direct) for one in structured)
    print(f"\n{len(structured)} results have structured content, {more:,} more tokens where clients show that, too.")
    print(f"{sum(one.varies for one in calls)} calls answer otherwise each time, and were not compared.")
    print(f"{sum(bool(one.differs) for one in calls)} had another value behind the gateway.")
    dearer = [one for one in calls if tokens_of(one.behind["meta"]) > tokens_of(one.direct)]
    extra = sum(tokens_of(one.behind["meta"]) - tokens_of(one.direct) for one in dearer)
    print(f"{len(dearer)} cost more behind the gateway, {extra} tokens together.")


def _row(calls: list[ComparedCall]) -> str:
    direct = sum(tokens_of(one.direct) for one in calls)
    behind = sum(tokens_of(one.behind["meta"]) for one in calls)
    kinds = Counter(one.kind for one in calls)
    read_as = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    return f"{len(calls)} | {direct:,} | {behind:,} | {behind / max(1, direct):.2f} | {read_as}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.published.matrix", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="servers of the matrix (all)")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="servers measured at once (2)")
    parser.add_argument("--calls", action="store_true", help="print every call, too")
    given = parser.parse_args()
    names = given.names or [*SERVERS]
    with web.serving() as address, ThreadPoolExecutor(given.at_once) as pool:
        found = dict(zip(names, pool.map(lambda name: measure(name, address), names), strict=True))
    if given.calls:
        for name, one in found.items():
            for call in one.calls if isinstance(one, Comparison) else ():
                print(
                    name, call.call.tool, tokens_of(call.direct), tokens_of(call.behind["meta"]), call.kind, call.varies
                )
    print_tables(found)


if __name__ == "__main__":
    main()
