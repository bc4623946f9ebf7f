"""A studio that renders films. Servers take the orders, workers do the work, and both know them from Redis.

delta-mcp serve examples/promises_worker/server.py --http 127.0.0.1:8000 --no-worker --store redis://127.0.0.1:6379/0
delta-mcp worker examples/promises_worker/server.py --store redis://127.0.0.1:6379/0
"""

import asyncio
import os
from typing import Any

from deltamcp import Context, DeltaServer

FRAME_SECONDS = 0.1

server = DeltaServer("studio", "1.0")


@server.tool(promise="auto", sync_seconds=0.5, annotations={"idempotentHint": True})
async def render(film: str, ctx: Context, frames: int = 50) -> dict[str, Any]:
    """Render a film, frame by frame.

    One of a few frames is returned at once, a longer one as a promise.
    """
    for number in range(1, frames + 1):
        await asyncio.sleep(FRAME_SECONDS)
        await ctx.report_progress(number, frames, f"frame {number}")
    return {"film": film, "frames": frames, "attempt": ctx.attempt, "worker": os.getpid()}
