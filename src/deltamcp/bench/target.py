"""One server, measured from its client's side: how long it takes, what it costs a model, how large its messages are."""

import gzip
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from deltamcp import tokens
from deltamcp.bench.cost import Listing, costs
from deltamcp.client.client import DeltaClient
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.wire.codecs import CODECS

Report: TypeAlias = dict[str, Any]
Connect: TypeAlias = Callable[..., DeltaClient]
"""A client of the server; `progressive` says whether it knows Delta-MCP."""
Say: TypeAlias = Callable[[str], None]

_STARTS = 3


async def run(
    connect: Connect, tool: str | None, arguments: dict[str, JSON], rounds: int, say: Say = lambda _: None
) -> Report:
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
        name = tool or _harmless(definitions)
        latency = {"start and introduction": _figures(starts)}
        say("tools/list")
        latency["tools/list"] = await _timed(lambda: client.request("tools/list"), rounds)
        if name is not None:
            say(f"tools/call of {name}")
            latency[f"tools/call {name}"] = await _timed(lambda: client.call_tool(name, arguments), rounds)
        server = client.server
    async with connect(progressive=True) as client:
        if client.server.progressive is not None and definitions:
            first = definitions[0]["name"]
            say("tools/describe")
            latency["tools/list, names and summaries"] = await _timed(lambda: client.request("tools/list"), rounds)
            latency["tools/describe"] = await _timed(
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


def _harmless(definitions: list[dict[str, JSON]]) -> str | None:
    for raw in definitions:
        annotations, schema = raw.get("annotations"), raw.get("inputSchema")
        reads = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
        if reads and isinstance(schema, dict) and not schema.get("required"):
            return str(raw["name"])
    return None


async def _timed(ask: Callable[[], Awaitable[Any]], rounds: int) -> Report:
    await ask()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - began)
    return _figures(times)


def _figures(seconds: list[float]) -> Report:
    return {
        "median": round(statistics.median(seconds) * 1e3, 3),
        "least": round(min(seconds) * 1e3, 3),
        "most": round(max(seconds) * 1e3, 3),
        "times": len(seconds),
    }


def _tokens(
    server: str, definitions: list[dict[str, JSON]], instructions: str, lines: str, called: str | None
) -> Report:
    """Up front, and for a conversation that uses one tool: all definitions, an index and one of them, meta-tools."""
    cost = costs([Listing(server, definitions, instructions)]).together
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


def _bytes(definitions: list[dict[str, JSON]]) -> Report:
    """Of the answer to `tools/list`."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": definitions}}
    written = {name: codec.encode(answer) for name, codec in CODECS.items()}
    return {name: {"plain": len(body), "gzip": len(gzip.compress(body, mtime=0))} for name, body in written.items()}


def table(report: Report) -> str:
    """For people."""
    server = report["server"]
    rows = [f"{server['name']} {server['version']}, {server['protocol']}, {report['tools']} tools", ""]
    rows += _columns(
        ("latency, ms", "median", "least", "most", "times"),
        [
            (name, *(f"{figures[key]:,.2f}" for key in ("median", "least", "most")), str(figures["times"]))
            for name, figures in report["latency_ms"].items()
        ],
    )
    if report["called"] is None:
        rows.append("no tool says that it only reads and needs no arguments: name one by --tool NAME")
    counted = {name: figures for name, figures in report["tokens"].items() if isinstance(figures, dict)}
    rows += [
        "",
        *_columns(
            ("tokens", "up front", "one tool used"),
            [
                (name, *(f"{figures[key]:,}" for key in ("up front", "one tool used")))
                for name, figures in counted.items()
            ],
        ),
    ]
    rows += [
        "",
        *_columns(
            ("bytes of tools/list", "plain", "gzip"),
            [(name, f"{figures['plain']:,}", f"{figures['gzip']:,}") for name, figures in report["bytes"].items()],
        ),
    ]
    return "\n".join(rows)


def _columns(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    return [
        f"{row[0]:<{widths[0]}}"
        + "".join(f"  {text:>{width}}" for text, width in zip(row[1:], widths[1:], strict=True))
        for row in (head, *rows)
    ]
