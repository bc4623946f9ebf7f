"""A server behind a gateway, run as a program, that cuts its results by a policy of its own."""

from deltamcp import DeltaServer, ResultPolicy

server = DeltaServer("budget", results=ResultPolicy(max_tokens=300, page_size=100))


@server.tool
async def orders(count: int) -> list[dict[str, int | str]]:
    """Return rows."""
    return [{"id": number, "title": f"Order {number}"} for number in range(count)]


if __name__ == "__main__":
    server.run()
