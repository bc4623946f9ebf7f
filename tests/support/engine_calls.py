"""Calls of a server's engine by any caller, without a transport."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from deltamcp.context import Channel
from deltamcp.values import Caller, CallTool, Era, Terms, ToolResult


class SilentChannel(Channel):
    """The way back to a client that is sent nothing."""

    fairness_key = "x"
    headers: Mapping[bytes, bytes] = MappingProxyType({})


async def call_as(
    server: Any, caller: Caller, tool: str, meta: dict[str, Any] | None = None, **arguments: Any
) -> ToolResult:
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, meta or {}, caller=caller)
    result: ToolResult = (await server.engine.perform(CallTool(tool, arguments), terms, SilentChannel(), 1)).value
    return result
