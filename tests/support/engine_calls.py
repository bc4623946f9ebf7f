"""Calls of a server's engine by any caller, without a transport."""

from dataclasses import dataclass
from typing import Any, ClassVar

from deltamcp.values import Caller, CallTool, Era, Terms, ToolResult


@dataclass
class SilentChannel:
    """The way back to a client, as a transport has it."""

    fairness_key = "x"
    headers: ClassVar[dict[bytes, bytes]] = {}
    takes_every_progress = False


async def call_as(
    server: Any, caller: Caller, tool: str, meta: dict[str, Any] | None = None, **arguments: Any
) -> ToolResult:
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, meta or {}, caller=caller)
    result: ToolResult = (await server.engine.perform(CallTool(tool, arguments), terms, SilentChannel(), 1)).value
    return result
