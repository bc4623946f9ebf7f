"""An agent of openai-agents: what stands in the input that its model gets after a call."""

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStdio
from conversation import COMMAND, WORDS, content_parts, next_call, show
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class ScriptedModel(Model):
    calls = 0

    async def get_response(self, system_instructions: Any, input: Any, *others: Any, **options: Any) -> ModelResponse:
        last = None if isinstance(input, str) else input[-1]
        if last is not None and last.get("type") == "function_call_output":
            show(content_parts(last["output"]))
        call = await next_call()
        output: Any
        if call is None:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            output = ResponseOutputMessage(id="0", content=[text], role="assistant", status="completed", type="message")
        else:
            self.calls += 1
            output = ResponseFunctionToolCall(
                arguments=json.dumps(call["arguments"]),
                call_id=f"call {self.calls}",
                name=call["tool"],
                type="function_call",
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *parameters: Any, **options: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)
    async with MCPServerStdio({"command": COMMAND, "args": WORDS}) as server:
        agent = Agent("peer", model=ScriptedModel(), mcp_servers=[server])
        await Runner.run(agent, "go", max_turns=1000)


asyncio.run(main())
