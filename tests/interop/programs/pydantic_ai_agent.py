"""An agent of pydantic-ai, 1.x or 2.x: what stands in the messages that its model gets after a call."""

import asyncio
from typing import Any

from conversation import COMMAND, WORDS, next_call, show
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

try:
    from pydantic_ai.mcp import MCPServerStdio

    SERVER: Any = MCPServerStdio(COMMAND, WORDS)
except ImportError:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    SERVER = MCPToolset(StdioTransport(COMMAND, WORDS))


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) > 1:
        show([part.model_response_str() if isinstance(part, ToolReturnPart) else part for part in messages[-1].parts])
    call = await next_call()
    return ModelResponse([TextPart("done") if call is None else ToolCallPart(call["tool"], call["arguments"])])


async def main() -> None:
    agent = Agent(FunctionModel(model), toolsets=[SERVER])
    async with agent:
        await agent.run("go")


asyncio.run(main())
