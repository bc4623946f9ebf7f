"""A client of the API through a gateway: it finds an operation, reads several pages at once, and creates a ticket.

python -m examples.openapi.client http://127.0.0.1:8000
"""

import asyncio
import os
import sys

from deltamcp import connect
from examples.openapi.server import TOKEN

GATEWAY = (
    "delta-mcp gateway --openapi examples/openapi/openapi.yaml --base-url {address} "
    "--header 'Authorization: Bearer ${{TICKETS_TOKEN}}'"
)


async def main(address: str) -> None:
    os.environ["TICKETS_TOKEN"] = TOKEN
    async with connect(GATEWAY.format(address=address), progressive=False) as client:
        found = str(await client.call("discover", query=["create a ticket"]))
        operation = next(word for word in found.split() if word.partition("(")[0].endswith("createTicket"))
        print("found:", operation)
        prefix = operation.partition("createTicket")[0]

        listed = {"operation": f"{prefix}listTickets", "params": {"state": "open"}}
        first = await client.call_tool("query", listed)
        print("first page:", first.text.splitlines()[-1])
        assert "Next page" in first.text

        reply = await client.call_tool("query", {**listed, "pages": 5, "fields": "length(tickets)"})
        print("open tickets:", reply.value)
        assert reply.value == 17, reply.text

        created = await client.call_tool(
            "execute", {"operation": operation.partition("(")[0], "params": {"title": "Tea"}}
        )
        print("created:", created.value)
        assert not created.is_error and created.value["title"] == "Tea", created.text

        missing = await client.call_tool("query", {"operation": f"{prefix}readTicket", "params": {"number": 99}})
        print("missing:", missing.text.splitlines()[0])
        assert missing.is_error and "answered 404: there is no ticket 99" in missing.text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
