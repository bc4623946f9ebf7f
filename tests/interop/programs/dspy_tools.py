"""The tools of DSPy: what its agents get of a call, and pass to their model."""

import asyncio

import dspy
from conversation import COMMAND, WORDS, content_parts, next_call, show
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    async with (
        stdio_client(StdioServerParameters(command=COMMAND, args=WORDS)) as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        tools = {tool.name: dspy.Tool.from_mcp_tool(session, tool) for tool in (await session.list_tools()).tools}
        while (call := await next_call()) is not None:
            result = await tools[call["tool"]].acall(**call["arguments"])
            show(content_parts(result) if isinstance(result, str) else result)


asyncio.run(main())
