"""The tools of langchain-mcp-adapters: what stands in the `ToolMessage` that an agent passes to its chat model."""

import asyncio

from conversation import COMMAND, WORDS, content_parts, next_call, show
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def main() -> None:
    client = MultiServerMCPClient({"server": {"transport": "stdio", "command": COMMAND, "args": WORDS}})
    async with client.session("server") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        while (call := await next_call()) is not None:
            request = {"type": "tool_call", "id": "1", "name": call["tool"], "args": call["arguments"]}
            message = await tools[call["tool"]].ainvoke(request)
            show(content_parts(message.content))


asyncio.run(main())
