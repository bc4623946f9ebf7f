"""A server of long results, and a client that reads on by handle."""

import json
from typing import Any

from deltamcp import DeltaServer, ResultPolicy
from tests.support.raw_client import META, RawClient

KEY = "io.github.delta-mcp/result"
ROWS = [{"id": n, "name": f"name {n}"} for n in range(300)]


def office_server(**policy: Any) -> Any:
    server: Any = DeltaServer("office", results=ResultPolicy(**{"max_tokens": 300, **policy}))
    server.ran = []

    @server.tool
    async def rows() -> Any:
        server.ran.append("rows")
        return ROWS

    @server.tool
    async def log() -> str:
        return "".join(f"line {n}{' ' * 400}\n" for n in range(50)) + "Straße İstanbul timeout\n" * 50

    @server.tool
    async def take(v: Any) -> str:
        server.ran.append("take")
        return str(len(json.dumps(v)))

    return server


async def call(raw: RawClient, tool: str, wish: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    meta = {**META, KEY: wish} if wish is not None else META
    answer = await raw.call("tools/call", _meta=meta, name=tool, arguments=arguments)
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def result_text(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", json.dumps(block, separators=(",", ":"))) for block in result["content"])


async def handle_of(raw: RawClient, tool: str) -> str:
    name: str = (await call(raw, tool))["_meta"][KEY]["handle"]
    return name
