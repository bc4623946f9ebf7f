"""The tools of mcp-use, which sends null for every optional argument: what its agent passes to its chat model."""

import asyncio

from conversation import COMMAND, WORDS, content_parts, next_call, show
from mcp_use import MCPClient
from mcp_use.agents.adapters.langchain_adapter import LangChainAdapter


async def main() -> None:
    client = MCPClient({"mcpServers": {"server": {"command": COMMAND, "args": WORDS}}})
    try:
        tools = {tool.name: tool for tool in await LangChainAdapter().create_tools(client)}
        while (call := await next_call()) is not None:
            request = {"type": "tool_call", "id": "1", "name": call["tool"], "args": call["arguments"]}
            message = await tools[call["tool"]].ainvoke(request)
            show(content_parts(message.content))
    finally:
        await client.close_all_sessions()


asyncio.run(main())
