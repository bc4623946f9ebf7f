"""A server with many tools, of which its clients need one.

delta-mcp serve examples/client_usage/server.py
"""

from typing import Annotated, Any

from pydantic import Field

from deltamcp import DeltaServer, ResultPolicy

server = DeltaServer("cities", version="1.0", results=ResultPolicy(max_tokens=2000, page_size=50))
CITIES: list[dict[str, Any]] = [
    {"id": number, "name": f"City {number}", "people": number * 7919 % 1_000_000} for number in range(1, 401)
]


@server.tool(annotations={"readOnlyHint": True})
async def list_cities(
    above: Annotated[int, Field(description="Only cities with more people than this", ge=0)] = 0,
) -> list[dict[str, Any]]:
    """List the cities."""
    return [city for city in CITIES if city["people"] > above]


@server.tool(annotations={"readOnlyHint": True})
async def distance(start: int, end: int) -> int:
    """Say how far it is from one city to another."""
    return abs(start - end) * 3


def _add_statistic(name: str) -> None:
    @server.tool(f"{name}_of_city", summary=f"The {name} of a city", annotations={"readOnlyHint": True})
    async def statistic(city: int) -> int:
        return city * len(name)


for _name in ("rain", "sun", "rent", "wage", "noise", "green", "crime", "trade"):
    _add_statistic(_name)
