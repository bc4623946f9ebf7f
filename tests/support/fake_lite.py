"""An MCP-lite server on bare sockets, which answers calls with the results that it is given."""

import json
from typing import Any

from tests.support.fake_http import ANY, Fake, FakeConnection, FakeRequest

BASE = "/mcp-lite/v1"
TOKEN = "prom_0123456789abcdefghjkmnpqrs"
LITE_TOOLS: list[Any] = [
    {"name": "buy", "description": "Does something every time.", "inputSchema": ANY},
    {"name": "render", "inputSchema": ANY, "_meta": {"io.github.delta-mcp/promises": True}},
]


class FakeLite(Fake):
    """Its calls are answered by `results`, in their order; the last one again and again."""

    def __init__(self, *results: dict[str, Any], paths: tuple[str, ...] = ("tools", "rpc"), shape: str = "rpc") -> None:
        super().__init__(tools=LITE_TOOLS)
        self.results = list(results)
        self.paths = {f"{BASE}/{path}" for path in paths}
        self.shape = shape
        """How tools are listed: as JSON-RPC, as an `object` with tools, or as an `array`."""

    @property
    def lite_url(self) -> str:
        return "mcplite+" + self.url.removesuffix("/mcp")

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The parameters of the calls."""
        return [asked.params for asked in self.of("tools/call")]

    async def answer(self, asked: FakeRequest, wire: FakeConnection) -> None:
        if asked.path not in self.paths:
            await wire.answer(404)
        elif asked.method == "tools/list" and self.shape != "rpc":
            await wire.json(self.tools if self.shape == "array" else {"tools": self.tools})
        else:
            await wire.json({"jsonrpc": "2.0", "id": asked.id, **self.result(asked)})

    def result(self, asked: FakeRequest) -> dict[str, Any]:
        match asked.method:
            case "tools/list":
                return {"result": {"tools": self.tools}}
            case "tools/call":
                next_result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
                return {"result": next_result} if "content" in next_result else next_result
            case _:
                return {"error": {"code": -32601, "message": "There is no such method."}}


def lite_result(value: Any, kind: str | None = "answer", **meta: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]
    told = {"_meta": {"response_type": kind, **meta}} if kind is not None else {}
    return {"content": content, **({} if isinstance(value, str) else {"structuredContent": value}), **told}


def promise(status: str = "working", **more: Any) -> dict[str, Any]:
    meta = {"retry_after_ms": more.pop("retry_after_ms", 10)}
    body = {"token": TOKEN, "status": status, **more}
    return {**lite_result("Still working.", "promise", promise_token=TOKEN, **meta), "promise": body}
