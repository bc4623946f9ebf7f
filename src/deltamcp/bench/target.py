"""One server, measured from its client's side: how long it takes, what it costs a model, how large its messages are."""

import gzip
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from deltamcp import tokens
from deltamcp.bench.cost import ServerListing, count_costs
from deltamcp.bench.figures import Figures, align
from deltamcp.client.client import DeltaClient
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.wire.codecs import CODECS

Connect: TypeAlias = Callable[..., DeltaClient]
"""A client of the server; `progressive` says whether it knows Delta-MCP."""
Say: TypeAlias = Callable[[str], None]

_STARTS = 3


async def run(
    connect: Connect, tool: str | None, arguments: dict[str, JSON], rounds: int, say: Say = lambda _: None
) -> Figures:
    """Starts and introduces the server some times, then asks it `rounds` times for each thing.

    `tool` is what is called; without one, a tool that says it only reads and needs no arguments.

    Raises:
        ClientError: the server cannot be measured.
    """
    starts = []
    for number in range(_STARTS):
        say(f"start {number + 1} of {_STARTS}")
        began = time.perf_counter()
        async with connect(progressive=False):
            starts.append(time.perf_counter() - began)
    async with connect(progressive=False) as client:
        definitions = await client.describe()
        name = tool or _find_harmless(definitions)
        latency = {"start and introduction": _figures(starts)}
        say("tools/list")
        latency["tools/list"] = await _measure_time(lambda: client.request("tools/list"), rounds)
        if name is not None:
            say(f"tools/call of {name}")
            latency[f"tools/call {name}"] = await _measure_time(lambda: client.call_tool(name, arguments), rounds)
        server = client.server
    async with connect(progressive=True) as client:
        if client.server.progressive is not None and definitions:
            first = definitions[0]["name"]
            say("tools/describe")
            latency["tools/list, names and summaries"] = await _measure_time(
                lambda: client.request("tools/list"), rounds
            )
            latency["tools/describe"] = await _measure_time(
                lambda: client.request("tools/describe", {"names": [first]}), rounds
            )
        lines = "\n".join(f"{one.name}: {one.summary}" for one in await client.tools())
    say("tokens")
    return {
        "server": {"name": server.name, "version": server.version, "protocol": server.protocol},
        "tools": len(definitions),
        "called": name,
        "latency_ms": latency,
        "tokens": _tokens(server.name, definitions, server.instructions or "", lines, name),
        "bytes": _bytes(definitions),
    }


def _find_harmless(definitions: list[dict[str, JSON]]) -> str | None:
    for raw in definitions:
        annotations, schema = raw.get("annotations"), raw.get("inputSchema")
        reads = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
        if reads and isinstance(schema, dict) and not schema.get("required"):
            return str(raw["name"])
    return None


async def _measure_time(ask: Callable[[], Awaitable[Any]], rounds: int) -> Figures:
    await ask()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - began)
    return _figures(times)


def _figures(seconds: list[float]) -> Figures:
    return {
        "median": round(statistics.median(seconds) * 1e3, 3),
        "least": round(min(seconds) * 1e3, 3),
        "most": round(max(seconds) * 1e3, 3),
        "times": len(seconds),
    }


def _tokens(
    server: str, definitions: list[dict[str, JSON]], instructions: str, lines: str, called: str | None
) -> Figures:
    """Up front, and for a conversation that uses one tool: all definitions, an index and one of them, meta-tools."""
    cost = count_costs([ServerListing(server, definitions, instructions)]).together
    each = [tokens.count(jsonrpc.encode(raw).decode()) for raw in definitions]
    named = [count for raw, count in zip(definitions, each, strict=True) if raw.get("name") == called]
    one = named[0] if named else round(statistics.mean(each)) if each else 0
    index = tokens.count(lines)
    return {
        "all definitions": {"up front": cost.now, "one tool used": cost.now},
        "names and summaries": {"up front": index, "one tool used": index + one},
        "meta-tools": {"up front": cost.surface, "one tool used": cost.one_tool},
        "instructions": cost.instructions,
    }


def _bytes(definitions: list[dict[str, JSON]]) -> Figures:
    """Of the answer to `tools/list`."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": definitions}}
    written = {name: codec.encode(answer) for name, codec in CODECS.items()}
    return {name: {"plain": len(body), "gzip": len(gzip.compress(body, mtime=0))} for name, body in written.items()}


def table(report: Figures) -> str:
    """For people."""
    server = report["server"]
    rows = [f"{server['name']} {server['version']}, {server['protocol']}, {report['tools']} tools", ""]
    rows += align(
        [
            ("latency, ms", "median", "least", "most", "times"),
            *(
                (name, *(f"{figures[key]:,.2f}" for key in ("median", "least", "most")), str(figures["times"]))
                for name, figures in report["latency_ms"].items()
            ),
        ]
    )
    if report["called"] is None:
        rows.append("no tool says that it only reads and needs no arguments: name one by --tool NAME")
    counted = {name: figures for name, figures in report["tokens"].items() if isinstance(figures, dict)}
    rows += ["", *_table_of("tokens", ("up front", "one tool used"), counted)]
    rows += ["", *_table_of("bytes of tools/list", ("plain", "gzip"), report["bytes"])]
    return "\n".join(rows)


def _table_of(title: str, keys: tuple[str, ...], figures: Figures) -> list[str]:
    return align([(title, *keys), *((name, *(f"{counts[key]:,}" for key in keys)) for name, counts in figures.items())])
