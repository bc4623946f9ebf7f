"""Results of four kinds that do not fit: a text, rows, an object, and a service that says 429.

delta-mcp serve examples/result_handler/server.py
"""

from typing import Any

import httpx2

from deltamcp import DeltaServer, ResultPolicy

server = DeltaServer("results", version="1.0", results=ResultPolicy(max_tokens=300, page_size=20))


@server.tool(annotations={"readOnlyHint": True})
async def read_log() -> str:
    """Read a long log."""
    return "".join(
        f"{minute // 60:02}:{minute % 60:02} request {minute} took {minute % 90} ms\n" for minute in range(1440)
    )


@server.tool(annotations={"readOnlyHint": True})
async def list_orders() -> list[dict[str, Any]]:
    """List the orders."""
    return [{"id": number, "total": number * 37 % 1000, "paid": number % 4 != 0} for number in range(1, 501)]


@server.tool(annotations={"readOnlyHint": True})
async def settings() -> dict[str, Any]:
    """Show all settings."""
    names = ("mail", "disk", "login", "search", "backup", "payment", "report", "cache", "queue", "theme")
    return {name: {f"{name}_{key}": f"{name} {key} " * 20 for key in ("mode", "owner", "path")} for name in names}


@server.tool(annotations={"readOnlyHint": True})
async def exchange_rate(currency: str) -> float:
    """Ask a service for a rate; it is busy."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(_busy), base_url="http://rates.example") as service:
        response = await service.get(f"/{currency}")
        response.raise_for_status()
        return float(response.text)


def _busy(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(429, headers={"retry-after": "17"})
