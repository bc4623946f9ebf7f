"""Measures one server as its client: its latency, its tokens for a model, and the size of its messages."""

import gzip
import statistics
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias

from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.client.client import DeltaClient
from deltamcp.costs.cost import ServerListing, count_index_tokens, count_together
from deltamcp.values import JSON
from deltamcp.wire.codecs import CODECS

Figures: TypeAlias = dict[str, Any]
Connect: TypeAlias = Callable[..., DeltaClient]
"""Makes a client of the server; `progressive` says whether the client declares Delta-MCP's extension."""
OnStep: TypeAlias = Callable[[str], None]
"""Called with the name of each step of the measurement."""

_STARTS = 3


async def run(
    connect: Connect, tool: str | None, arguments: dict[str, JSON], rounds: int, on_step: OnStep = lambda _: None
) -> Figures:
    """Connects to the server some times, then sends it each request `rounds` times.

    Args:
        tool: the tool to call; if None, one that declares itself read-only and needs no arguments.

    Raises:
        ClientError: the server cannot be measured.
    """
    starts = []
    for number in range(_STARTS):
        on_step(f"start {number + 1} of {_STARTS}")
        began = time.perf_counter()
        async with connect(progressive=False):
            starts.append(time.perf_counter() - began)
    async with connect(progressive=False) as client:
        definitions = await client.describe()
        name = tool or _find_read_only_tool(definitions)
        latency = {"start and introduction": _figures(starts)}
        on_step("tools/list")
        latency["tools/list"] = await _measure_time(lambda: client.request("tools/list"), rounds)
        if name is not None:
            on_step(f"tools/call of {name}")
            latency[f"tools/call {name}"] = await _measure_time(lambda: client.call_tool(name, arguments), rounds)
        server = client.server
    async with connect(progressive=True) as client:
        if client.server.progressive is not None and definitions:
            first = definitions[0]["name"]
            on_step("tools/describe")
            latency["tools/list, names and summaries"] = await _measure_time(
                lambda: client.request("tools/list"), rounds
            )
            latency["tools/describe"] = await _measure_time(
                lambda: client.request("tools/describe", {"names": [first]}), rounds
            )
        index = count_index_tokens((line.name, line.summary) for line in await client.tools())
    on_step("tokens")
    return {
        "server": {"name": server.name, "version": server.version, "protocol": server.protocol},
        "tools": len(definitions),
        "called": name,
        "latency_ms": latency,
        "tokens": _tokens(server.name, definitions, server.instructions or "", index, name),
        "bytes": _bytes(definitions),
    }


def _find_read_only_tool(definitions: list[dict[str, JSON]]) -> str | None:
    for raw in definitions:
        annotations, schema = raw.get("annotations"), raw.get("inputSchema")
        is_read_only = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
        if is_read_only and isinstance(schema, dict) and not schema.get("required"):
            return str(raw["name"])
    return None


async def _measure_time(send_request: Callable[[], Awaitable[Any]], rounds: int) -> Figures:
    await send_request()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await send_request()
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
    server: str, definitions: list[dict[str, JSON]], instructions: str, index: int, called: str | None
) -> Figures:
    """Counts tokens up front and for a conversation that uses one tool: with all definitions, with an index and one
    definition, and with the meta-tools."""
    cost = count_together([ServerListing(server, definitions, instructions)], disclosure=Disclosure("meta"))
    counts = [definition_tokens(raw) for raw in definitions]
    called_counts = [count for raw, count in zip(definitions, counts, strict=True) if raw.get("name") == called]
    definition = called_counts[0] if called_counts else round(statistics.mean(counts)) if counts else 0
    return {
        "all definitions": {"up front": cost.now, "one tool used": cost.now},
        "names and summaries": {"up front": index, "one tool used": index + definition},
        "meta-tools": {"up front": cost.surface, "one tool used": cost.one_tool},
        "instructions": cost.instructions,
    }


def _bytes(definitions: list[dict[str, JSON]]) -> Figures:
    """Returns the size of the response to `tools/list` in each encoding."""
    response = {"jsonrpc": "2.0", "id": 1, "result": {"tools": definitions}}
    bodies = {name: codec.encode(response) for name, codec in CODECS.items()}
    return {name: {"plain": len(body), "gzip": len(gzip.compress(body, mtime=0))} for name, body in bodies.items()}


def table(report: Figures) -> str:
    """Formats a report for people."""
    server = report["server"]
    title = f"{server['name']} {server['version']}, {server['protocol']}, {report['tools']} tools"
    rows = [visible_line(title), ""]
    rows += align(
        [
            ("latency, ms", "median", "least", "most", "times"),
            *(
                (
                    visible_line(name),
                    *(f"{figures[key]:,.2f}" for key in ("median", "least", "most")),
                    str(figures["times"]),
                )
                for name, figures in report["latency_ms"].items()
            ),
        ]
    )
    if report["called"] is None:
        rows.append("no tool says that it only reads and needs no arguments: name one by --tool NAME")
    counted = {name: figures for name, figures in report["tokens"].items() if isinstance(figures, dict)}
    rows += ["", *_count_table("tokens", ("up front", "one tool used"), counted)]
    rows += ["", *_count_table("bytes of tools/list", ("plain", "gzip"), report["bytes"])]
    return "\n".join(rows)


def _count_table(title: str, keys: tuple[str, ...], figures: Figures) -> list[str]:
    return align([(title, *keys), *((name, *(f"{counts[key]:,}" for key in keys)) for name, counts in figures.items())])


def align(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lays cells out in columns, two spaces apart; the columns numbered in `left` are left-aligned, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
