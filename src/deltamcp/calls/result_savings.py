"""What a result would have cost a model and does cost it, told in the `_meta` of the result to those who ask."""

import asyncio
from typing import Any

from msgspec.structs import replace

from deltamcp.results import content
from deltamcp.results.result_tokens import count_result
from deltamcp.values import JSON, RawResult, ToolResult
from deltamcp.wire import jsonrpc

SAVINGS_KEY = "io.github.delta-mcp/savings"
"""The key of `_meta`: in a request it asks for the figures of its result, in a result it has them."""


async def add_savings(value: Any, result: ToolResult | RawResult) -> ToolResult | RawResult:
    """Returns a result with the tokens of what the function returned, and of the result itself.

    A thread counts them, so that other requests do not wait.
    """
    figures = await asyncio.to_thread(_count, value, result)
    if isinstance(result, ToolResult):
        return replace(result, meta={**(result.meta or {}), SAVINGS_KEY: figures})
    meta = result.fields.get("_meta")
    fields = {**result.fields, "_meta": {**(meta if isinstance(meta, dict) else {}), SAVINGS_KEY: figures}}
    return RawResult(jsonrpc.encode(fields), fields)


def _count(value: Any, result: ToolResult | RawResult) -> dict[str, JSON]:
    after = count_result(result)
    if value is result:
        return {"before": after, "after": after}
    try:
        whole = value if isinstance(value, RawResult) else content.tool_result(value, None)
        return {"before": count_result(whole), "after": after}
    except ValueError:  # a value that cannot be sent
        return {"before": after, "after": after}
