"""gRPC: unary calls beside a bare echo, and values as Struct beside protobuf's `json_format`.

Both servers are loaded in turn, in a new order each round, and so are both conversions; ratios are taken inside each
round.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import uvloop
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from bench import report
from bench.machine import CPU_NOTES
from bench.options import BenchOptions
from bench.peers import OURS
from bench.ports import find_free_port
from bench.report import BenchReport, FigureTable, Verdict
from bench.server_process import ServerProcess
from deltamcp.transports.grpc.requests import lite_messages
from deltamcp.wire.protobuf import read_struct, write_struct

ECHO = "bare grpc.aio echo"
CONCURRENT = 32
WARMING = 200
CALLS_PER_SECOND = 2000
SHARE_OF_ECHO = 0.9
STRUCT_TARGET = 2.5
_EVERY_VALUE = 10**9

_HIT = {
    "document_id": "doc_123",
    "title": "MCP Protocol Overview",
    "excerpt": "The Model Context Protocol enables",
    "url": "https://example.com/documents/123",
    "score": 0.873,
    "rank": 3,
    "published": "2026-01-02",
    "cached": True,
}
_NESTED = {"id": 12345, "tags": ["a", "b"], "owner": {"name": "Ada", "teams": [1, 2]}, "parent": None, "open": True}
VALUES: dict[str, Any] = {
    "1 search hit": {"content": [_HIT]},
    "20 search hits": {"content": [_HIT] * 20},
    "500 search hits": {"content": [_HIT] * 500},
    "20 nested objects": {"content": [_NESTED] * 20},
}
JUDGED = "20 search hits"


class ServerLoad(NamedTuple):
    """One server under load once."""

    per_second: float
    p50_ms: float
    cpu_us: float
    """NaN where it is not known."""


def measure(options: BenchOptions) -> BenchReport:
    calls, verdict = _measure_calls(options)
    conversions, verdicts = _measure_conversions(options)
    return BenchReport([calls, conversions], [verdict, *verdicts])


# Calls


def _measure_calls(options: BenchOptions) -> tuple[FigureTable, Verdict]:
    ports = {OURS: find_free_port(), ECHO: find_free_port()}
    with (
        ServerProcess(OURS, f"grpc:{ports[OURS]}", "add", piped=False) as ours,
        ServerProcess("grpc_echo", str(ports[ECHO]), piped=False) as echo,
    ):
        servers = {OURS: ours, ECHO: echo}
        for name, server in servers.items():
            server.wait_for_port(ports[name])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            loads: dict[str, list[ServerLoad]] = {name: [] for name in servers}
            for _ in range(options.rounds):
                for name in random.sample(list(servers), len(servers)):
                    loads[name].append(runner.run(_load(servers[name], ports[name], name, options.seconds)))
    ratio = report.median_ratio(*([one.per_second for one in loads[name]] for name in (OURS, ECHO)))
    rows: list[tuple[str, list[float | None]]] = []
    for name, runs in loads.items():
        speed, p50, cpu = (statistics.median(figure) for figure in zip(*runs, strict=True))
        rows.append((name, [speed, p50, report.finite_or_none(cpu)]))
    table = FigureTable(
        f"CallTool of add(a, b) over gRPC, {CONCURRENT} at once on one connection",
        "Medians over rounds.",
        ["calls/s", "p50 ms", "CPU µs/call"],
        rows,
        ["grpc.aio is the client too, and takes as much time as the server", *CPU_NOTES],
    )
    speed = statistics.median(one.per_second for one in loads[OURS])
    if speed >= CALLS_PER_SECOND:
        return table, report.at_least("calls a second over gRPC", speed, CALLS_PER_SECOND)
    return table, report.at_least("gRPC / a bare grpc.aio echo, calls a second", ratio, SHARE_OF_ECHO)


async def _load(server: ServerProcess, port: int, name: str, seconds: float) -> ServerLoad:
    """
    Raises:
        RuntimeError: the server adds wrongly.
    """
    messages = lite_messages()
    request = messages.ToolRequest(name="add")
    write_struct({"a": 2, "b": 3}, request.arguments)
    data = request.SerializeToString()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/mcplite.MCPLite/CallTool")
        for _ in range(WARMING):
            reply = await call(data)
        if name == OURS:
            result = read_struct(messages.ToolResponse.FromString(reply).result, _EVERY_VALUE)
            if result["content"][0]["text"] != "5":
                raise RuntimeError(f"2 and 3 are added to {result}")
        durations: list[float] = []
        cpu, began = server.cpu_seconds(), time.perf_counter()

        async def call_in_a_row() -> None:
            while (start := time.perf_counter()) - began < seconds:
                await call(data)
                durations.append(time.perf_counter() - start)

        await asyncio.gather(*(call_in_a_row() for _ in range(CONCURRENT)))
        elapsed, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
    return ServerLoad(len(durations) / elapsed, statistics.median(durations) * 1e3, cpu / len(durations) * 1e6)


# Conversions


def _measure_conversions(options: BenchOptions) -> tuple[FigureTable, list[Verdict]]:
    rows: list[tuple[str, list[float | None]]] = []
    verdicts = []
    for name, value in VALUES.items():
        struct = Struct()
        write_struct(value, struct)
        if read_struct(struct, _EVERY_VALUE) != value or json_format.ParseDict(value, Struct()) != struct:
            raise RuntimeError(f"{name} is converted wrongly")
        write, write_ratio = _compare(
            _writing(write_struct, value), _writing(json_format.ParseDict, value), options.rounds
        )
        read, read_ratio = _compare(_reading(struct), lambda: json_format.MessageToDict(struct), options.rounds)  # noqa: B023 - it is called here
        rows.append((name, [write * 1e6, write_ratio, read * 1e6, read_ratio]))
        if name == JUDGED:
            verdicts = [
                report.at_least("dict to Struct, times as fast as json_format", write_ratio, STRUCT_TARGET),
                report.at_least("Struct to dict, times as fast as json_format", read_ratio, STRUCT_TARGET),
            ]
    table = FigureTable(
        "dict to Struct and back",
        "CPU time, and how many times that of json_format is.",
        ["to Struct µs", "json_format, times", "to dict µs", "json_format, times"],
        rows,
    )
    return table, verdicts


def _writing(convert: Callable[[Any, Any], object], value: Any) -> Callable[[], object]:
    return lambda: convert(value, Struct())


def _reading(struct: Any) -> Callable[[], object]:
    return lambda: read_struct(struct, _EVERY_VALUE)


def _compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Returns the CPU time of ours, and the median of the ratios of theirs to it."""
    began = time.process_time()
    ours()
    repeats = max(3, round(0.02 / max(time.process_time() - began, 1e-6)))
    mine: list[float] = []
    others: list[float] = []
    for _ in range(rounds * 5):
        for function, times in random.sample([(ours, mine), (theirs, others)], 2):
            began = time.process_time()
            for _ in range(repeats):
                function()
            times.append((time.process_time() - began) / repeats)
    return statistics.median(mine), report.median_ratio(others, mine)
