"""The client of FastMCP: the content and structured content of a result, which programs pass to their model."""

import asyncio

from conversation import COMMAND, WORDS, content_parts, next_call, show
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main() -> None:
    async with Client(StdioTransport(COMMAND, WORDS)) as client:
        while (call := await next_call()) is not None:
            result = await client.call_tool(call["tool"], call["arguments"])
            blocks = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
            structured = [] if result.structured_content is None else [result.structured_content]
            show([*content_parts(blocks), *structured])


asyncio.run(main())
