"""A server of this library behind a gateway: it lists meta-tools, cuts its results and sends changes of them.

It runs on stdio as a program, with a disclosure: `python -m tests.support.shop_server meta`.
"""

import sys
from typing import Any

from deltamcp import DeltaServer, ResultPolicy

Row = dict[str, int | str]


def order_rows(count: int) -> list[Row]:
    return [{"id": number, "title": f"Order {number}"} for number in range(count)]


def shop_server(disclosure: Any = "meta") -> DeltaServer:
    server = DeltaServer(
        "shop", disclosure=disclosure, results=ResultPolicy(max_tokens=300, deltas=True), conversation="process"
    )

    @server.tool("orders_list", category="orders", action="list", annotations={"readOnlyHint": True})
    async def list_orders(count: int = 3) -> list[Row]:
        """Return orders."""
        return order_rows(count)

    @server.tool("orders_cancel", category="orders", action="cancel")
    async def cancel_order(id: int) -> str:
        """Cancel an order."""
        return f"order {id} is cancelled"

    for number in range(30):

        @server.tool(f"stock_{number}", category="stock", action=f"count_{number}")
        async def count_stock(shelf: str) -> str:
            """Count what is on a shelf."""
            return shelf

    @server.resource("shop://hours")
    async def hours() -> str:
        """When it is open."""
        return "9 to 5"

    @server.prompt
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name}."

    return server


if __name__ == "__main__":
    shop_server(sys.argv[1]).run()
