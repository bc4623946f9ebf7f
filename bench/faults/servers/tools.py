"""What every server that faults are tried on offers: the same functions in each, most of which misbehave."""

import asyncio
import ctypes
import gc
import sys
import time
from typing import Any

SECRET = "hunter2-db-password"
LARGE_ROWS = 600_000
"""Rows of `list_many`: 50 MB of JSON."""
counts = {"started": 0, "cancelled": 0, "finished": 0}
"""What befell the calls of `wait`."""


async def add(a: int, b: int) -> int:
    """Adds two whole numbers."""
    return a + b


async def echo(value: Any) -> Any:
    """Returns its argument."""
    return {"value": value}


async def wait(seconds: float) -> str:
    """Waits, and counts how that ended."""
    counts["started"] += 1
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        counts["cancelled"] += 1
        raise
    counts["finished"] += 1
    return "waited"


def sleep(seconds: float) -> str:
    """Sleeps in a thread."""
    time.sleep(seconds)
    return "slept"


async def block(seconds: float) -> str:
    """Holds the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is the fault
    return "blocked"


async def fail() -> str:
    """Fails with a secret in the text of the error."""
    raise RuntimeError(f"cannot log in with {SECRET}")


async def exit_async() -> str:
    """Ends the program, or so it thinks."""
    raise SystemExit(3)


def exit_plain() -> str:
    """Ends the program from a thread, or so it thinks."""
    raise SystemExit(3)


async def give_nan() -> Any:
    """Returns a number that JSON does not have."""
    return {"value": float("nan")}


async def give_surrogate() -> str:
    """Returns what is no Unicode text."""
    return "\ud800"


async def list_many() -> Any:
    """Lists many rows."""
    return [
        {"id": n, "name": f"user {n * 7919 % 10**6}", "email": f"u{n}@example.com", "open": n % 7 > 0} for n in _MANY
    ]


_MANY = range(LARGE_ROWS)


async def state() -> dict[str, int]:
    """Tells how many tasks there are and what befell the calls of `wait`, once unused memory is returned."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return {"tasks": len(asyncio.all_tasks()), **counts}


TOOLS = (add, echo, wait, sleep, block, fail, exit_async, exit_plain, give_nan, give_surrogate, list_many, state)
