"""What `execute` adds to a call, in process: the same operation called by its flat name and through the meta-tool.

One server of 2,500 operations behind meta-tools, one connection, both ways of calling in turn inside every round.
"""

import asyncio
import statistics
import time

from deltamcp import DeltaServer, connect
from deltamcp.bench.speed import report
from deltamcp.bench.speed.report import Report, Table
from deltamcp.values import JSON

OPERATIONS = 2_500
CALLS = 200
ROUNDS = 30


def measure() -> Report:
    rounds = asyncio.run(_rounds())
    flat, executed, found = (statistics.median(column) for column in zip(*rounds, strict=True))
    added = statistics.median(one - other for other, one, _ in rounds)
    rows: list[tuple[str, list[float | None]]] = [
        ("flat name", [flat]),
        ("execute", [executed]),
        ("discover, one query", [found]),
    ]
    how = f"{OPERATIONS:,} operations, {CALLS} calls a round, {ROUNDS} rounds; the median of a call, in process."
    table = Table("Calls through meta-tools", how, ["µs"], rows)
    return Report([table], [report.at_most("execute adds to a flat call", added, 100, " µs")])


def server() -> DeltaServer:
    made = DeltaServer("bench", disclosure="meta")
    for number in range(OPERATIONS):

        async def operation(query: str, limit: int = 10) -> str:
            return query

        operation.__doc__ = f"Search shelf {number} for a word."
        made.tool(name=f"search_{number}", category=f"shelf-{number // 50}")(operation)
    return made


async def _rounds() -> list[tuple[float, float, float]]:
    middle = OPERATIONS // 2
    arguments: dict[str, JSON] = {"query": "x"}
    executed: dict[str, JSON] = {"operation": f"shelf-{middle // 50}.search_{middle}", "params": arguments}
    async with connect(server(), speak="handshake", validate=False, listen=False) as client:

        async def timed(tool: str, arguments: dict[str, JSON]) -> float:
            times: list[float] = []
            for _ in range(CALLS):
                began = time.perf_counter()
                reply = await client.call_tool(tool, arguments)
                times.append(time.perf_counter() - began)
                if reply.is_error:
                    raise RuntimeError(f"{tool} answers {reply.text[:300]!r}")
            return statistics.median(times) * 1e6

        await timed("discover", {"query": "search"})  # builds the index
        return [
            (
                await timed(f"search_{middle}", {**arguments}),
                await timed("execute", {**executed}),
                await timed("discover", {"query": f"search shelf {middle}"}),
            )
            for _ in range(ROUNDS)
        ]
