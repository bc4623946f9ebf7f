"""Weather stations whose readings are counted exactly, also where they pass through protobuf's doubles.

delta-mcp serve examples/mcp_lite_grpc/server.py --http 127.0.0.1:8000 --grpc 127.0.0.1:8001
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

from deltamcp import DeltaServer, ToolFailure

server = DeltaServer("weather", "1.0")
STATIONS = {"Bergen": 11, "Cairo": 34, "Lima": 19}


@server.tool(type="query", annotations={"readOnlyHint": True})
async def list_stations() -> list[dict[str, Any]]:
    """List the stations with their temperature in degrees Celsius."""
    return [{"station": name, "celsius": degrees} for name, degrees in STATIONS.items()]


@server.tool(type="query", annotations={"readOnlyHint": True})
async def watch_station(station: str, readings: int = 5) -> AsyncIterator[dict[str, Any]]:
    """Send readings of a station as they come."""
    if station not in STATIONS:
        raise ToolFailure("NO_SUCH_STATION", f"There is no station at {station}.", details={"stations": list(STATIONS)})
    for number, change in zip(range(1, readings + 1), itertools.cycle((0, 1, 0, -1)), strict=False):
        yield {"reading": number, "celsius": STATIONS[station] + change}
        await asyncio.sleep(0.1)


@server.tool(type="report")
async def count_nanoseconds(years: int) -> dict[str, int]:
    """Count the nanoseconds of some years.

    They are more than a double can count.
    """
    return {"years": years, "nanoseconds": years * 365 * 86_400 * 1_000_000_000 + 1}
