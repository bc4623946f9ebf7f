"""The server whose promises are measured: `delta-mcp serve` and `delta-mcp worker` run it.

The environment variable `PROMISES_EFFECTS` names a file to which each call appends a line when it begins.
"""

import asyncio
import os
import time

from deltamcp import DeltaServer, Limits

REDELIVERY_SECONDS = 6.0

server = DeltaServer(
    "promises",
    "1",
    # All clients have one address. Workers count as dead sooner than by default, so that a run takes less time.
    limits=Limits(account_share=1, redelivery_seconds=REDELIVERY_SECONDS, promises_per_account=5_000),
    promise_concurrency=1_000,
)


@server.tool(promise="always", annotations={"readOnlyHint": True})
async def look_up(nonce: str, seconds: float) -> str:
    """Looks something up; it may be repeated."""
    _note(f"look_up {nonce}")
    await asyncio.sleep(seconds)
    return f"found {nonce}"


@server.tool(promise="always")
async def charge(nonce: str, seconds: float) -> str:
    """Charges a card; it must not be repeated."""
    _note(f"charge {nonce}")
    await asyncio.sleep(seconds)
    return f"charged {nonce}"


@server.tool(promise="always", annotations={"readOnlyHint": True})
async def finish_at(until: float) -> str:
    """Returns the time once it is as late as asked for."""
    await asyncio.sleep(until - time.time())
    return f"{time.time():.6f}"


@server.tool(promise="auto")
async def promised(value: int) -> int:
    """Returns its argument, by way of a promise."""
    return value


@server.tool
async def inline(value: int) -> int:
    """Returns its argument."""
    return value


def _note(line: str) -> None:
    descriptor = os.open(os.environ["PROMISES_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
