"""The server under `make soak`: a tool for each kind of work, and one that tells what the process holds."""

import asyncio
import gc
import itertools
import os
import sys
import time
from collections import Counter
from typing import Any

from deltamcp import Context, DeltaServer, Limits, ResultPolicy, ToolError
from deltamcp.stores.store import MemoryStore

LIFETIMES = Limits(
    session_idle_seconds=5,
    kept_seconds=3,
    kept_seconds_in_all=6,
    input_seconds=5,
    ping_seconds=1,
    handler_seconds=3,
    header_seconds=3,
    body_seconds=3,
    replay_events=16,
    replay_streams=4,
    sessions=500,
    stall_seconds=10,
)
"""So short that everything expires many times in ten minutes."""


def build(store: str, operations: str) -> DeltaServer:
    used = MemoryStore() if store == "memory://" else store
    server = DeltaServer("soak", "1", limits=LIFETIMES, results=ResultPolicy(max_tokens=400), store=used)
    counter = itertools.count()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def rows(count: int) -> list[dict[str, Any]]:
        return [{"id": at, "name": f"row {at}", "open": at % 7 > 0} for at in range(count)]

    @server.tool
    async def prices() -> list[dict[str, Any]]:
        now = next(counter)
        return [{"id": at, "price": at * 3 + (now if at == now % 50 else 0)} for at in range(50)]

    @server.tool(results=ResultPolicy(max_tokens=1_000_000, tables=False))
    async def text(chars: int) -> str:
        return "lorem ipsum " * (chars // 12)

    @server.tool
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    @server.tool
    def block(seconds: float, ctx: Context) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not ctx.cancelled:
            time.sleep(0.01)
        return "blocked"

    @server.tool
    async def report(steps: int, ctx: Context) -> str:
        for step in range(steps):
            await ctx.report_progress(step + 1, total=steps)
            await ctx.log("info", f"step {step}")
            await asyncio.sleep(0.01)
        return "reported"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("How many?", int, key="count")).action

    @server.tool(policy="confirm")
    async def delete(id: int) -> str:
        return f"deleted {id}"

    @server.tool
    async def fail(kind: str) -> str:
        if kind == "tool":
            raise ToolError("This tool fails.")
        raise ValueError("a fault in the function")

    @server.resource("soak://clock")
    async def clock() -> str:
        return str(time.time())

    @server.tool
    async def change() -> str:
        server.resource_updated("soak://clock")
        return "changed"

    @server.tool(results=ResultPolicy(max_tokens=1_000_000, tables=False))
    async def state(deep: bool) -> dict[str, Any]:
        """What the process holds: tasks, entries of a store in memory; instances of the library's classes if `deep`.

        To count instances delays every other call.
        """
        classes = None
        if deep:
            gc.collect()
            classes = Counter(type(held).__qualname__ for held in gc.get_objects() if _is_ours(held))
        entries = getattr(used, "_entries", {})
        now = time.monotonic()
        live = sum(entry.expires_at > now for entry in list(entries.values()))
        return {"tasks": len(asyncio.all_tasks()), "classes": classes, "stored": live}

    server.operations(operations)
    return server


def _is_ours(held: object) -> bool:
    return type(held).__module__.startswith("deltamcp.")


if __name__ == "__main__":
    transport, store, operations = sys.argv[1:4]
    os.environ.setdefault("SOAK_KEY", "a key for the service")
    built = build(store, operations)
    if transport == "stdio":
        built.run()
    else:
        built.run("http", port=int(transport))
