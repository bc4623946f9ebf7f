"""The tools of AutoGen, which makes a model of pydantic from each schema: what an agent passes to its model."""

import asyncio

from autogen_core import CancellationToken
from autogen_ext.tools.mcp import StdioServerParams, create_mcp_server_session, mcp_server_tools
from conversation import COMMAND, WORDS, next_call, show


async def main() -> None:
    parameters = StdioServerParams(command=COMMAND, args=WORDS)
    async with create_mcp_server_session(parameters) as session:
        await session.initialize()
        tools = {tool.name: tool for tool in await mcp_server_tools(parameters, session)}
        while (call := await next_call()) is not None:
            blocks = await tools[call["tool"]].run_json(call["arguments"], CancellationToken())
            show([block.text if block.type == "text" else block for block in blocks])


asyncio.run(main())
