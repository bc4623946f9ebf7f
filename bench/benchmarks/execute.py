"""What `execute` adds to a call, in process: the same operation called by its flat name and through the meta-tool.

One server of 2,500 operations behind meta-tools, one client, both ways of calling in turn inside every round.
"""

import asyncio
import statistics
import time

from bench import report
from bench.options import BenchOptions
from bench.report import BenchReport, FigureTable
from deltamcp import DeltaServer, connect
from deltamcp.values import JSON

OPERATIONS = 2_500
CALLS = 200
ROUNDS = 30


def measure(options: BenchOptions) -> BenchReport:
    rounds = asyncio.run(_measure_rounds())
    flat, executed, found = (statistics.median(column) for column in zip(*rounds, strict=True))
    added = statistics.median(one - other for other, one, _ in rounds)
    rows: list[tuple[str, list[float | None]]] = [
        ("flat name", [flat]),
        ("execute", [executed]),
        ("discover, one query", [found]),
    ]
    how = f"{OPERATIONS:,} operations, {CALLS} calls a round, {ROUNDS} rounds; in process, client included."
    table = FigureTable("Calls through meta-tools", how, ["µs"], rows)
    return BenchReport([table], [report.at_most("execute adds to a flat call", added, 100, " µs")])


def _make_server() -> DeltaServer:
    made = DeltaServer("bench", disclosure="meta")
    for number in range(OPERATIONS):

        async def operation(query: str, limit: int = 10) -> str:
            return query

        operation.__doc__ = f"Search shelf {number} for a word."
        made.tool(name=f"search_{number}", category=f"shelf-{number // 50}")(operation)
    return made


async def _measure_rounds() -> list[tuple[float, float, float]]:
    """Microseconds of a flat call, of one through `execute` and of a search, by round."""
    middle = OPERATIONS // 2
    arguments: dict[str, JSON] = {"query": "x"}
    executed: dict[str, JSON] = {"operation": f"shelf-{middle // 50}.search_{middle}", "params": arguments}
    async with connect(_make_server()) as client:

        async def measure_calls(tool: str, arguments: dict[str, JSON]) -> float:
            times: list[float] = []
            for _ in range(CALLS):
                began = time.perf_counter()
                result = await client.request("tools/call", {"name": tool, "arguments": arguments})
                times.append(time.perf_counter() - began)
                if result.get("isError"):
                    raise RuntimeError(f"{tool} answers {result}")
            return statistics.median(times) * 1e6

        await measure_calls("discover", {"query": "search"})  # builds the index
        return [
            (
                await measure_calls(f"search_{middle}", arguments),
                await measure_calls("execute", executed),
                await measure_calls("discover", {"query": f"search shelf {middle}"}),
            )
            for _ in range(ROUNDS)
        ]
