"""A client under attack, a program: `python -m bench.hostile.client_program LIBRARY TARGET ACTION`.

TARGET is the JSON of a URL, or of a list of words that start a server over stdio. ACTION is `list` or `call`. It prints
`ready` once it has imported everything, and at the end one line of JSON: {"seconds", "outcome", "longest_gap"}. The gap
is that of a task that wakes every 5 ms beside the action.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

_PAUSE = 0.005

Action = Callable[[Any, str], Awaitable[str]]


async def run_ours(target: Any, action: str) -> str:
    async with connect(target) as client:
        if action == "list":
            return f"{len(await client.tools())} tools"
        return str((await client.call_tool("x", {"value": "x"})).text)[:100]


async def run_sdk(target: Any, action: str) -> str:
    if isinstance(target, str):
        transport: Any = target
    else:
        transport = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with Client(transport) as client:
        if action == "list":
            listed, cursor = 0, None
            while True:
                page = await client.list_tools(cursor=cursor)
                listed, cursor = listed + len(page.tools), page.next_cursor
                if cursor is None:
                    return f"{listed} tools"
        await client.list_tools()
        return str(await client.call_tool("x", {"value": "x"}))[:100]


async def run_fastmcp(target: Any, action: str) -> str:
    transport = target if isinstance(target, str) else StdioTransport(target[0], target[1:])
    async with FastClient(transport) as client:
        if action == "list":
            return f"{len(await client.list_tools())} tools"
        await client.list_tools()
        return str(await client.call_tool("x", {"value": "x"}))[:100]


class Ticker:
    """Measures how long the event loop does nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.perf_counter()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE)
            self.look()

    def look(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._last - _PAUSE)
        self._last = now


async def main(run: Action, target: Any, action: str) -> None:
    ticker = Ticker()
    ticking = asyncio.create_task(ticker.run())
    began = time.perf_counter()
    try:
        outcome = await run(target, action)
    except BaseException as error:
        outcome = _describe(error)
    ticker.look()
    ticking.cancel()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "outcome": outcome[:200], "longest_gap": ticker.longest}), flush=True)


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    library, given, action = sys.argv[1:4]
    if library == "ours":
        from deltamcp import connect

        chosen: Action = run_ours
    elif library == "sdk":
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        chosen = run_sdk
    else:
        from fastmcp import Client as FastClient
        from fastmcp.client.transports import StdioTransport

        chosen = run_fastmcp
    print("ready", flush=True)
    asyncio.run(main(chosen, json.loads(given), action))
