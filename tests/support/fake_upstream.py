"""A gateway in this process over scripted servers (`fake_stdio.py`), and clients of both eras in front of it."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support import fake_stdio
from tests.support.era_client import EraClient
from tests.support.raw_client import META, RawClient, raw_client

ANY: dict[str, Any] = {"type": "object"}
NAMES = ("echo", "raw", "ask", "progress", "log", "hang", "late", "release", "withdraw")
TOOLS = [{"name": name, "inputSchema": ANY} for name in NAMES]
DISCOVER = {"handshake": -32601, "modern": "answer"}
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
}
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


def upstream_config(era: str, name: str = "fake", log: Path | None = None, **script: Any) -> UpstreamConfig:
    """A scripted upstream of an era."""
    script = {"tools": TOOLS, "discover": DISCOVER[era], "capabilities": {"tools": {}, "logging": {}}, **script}
    if log is not None:
        script["log"] = str(log)
    command, *args = fake_stdio.command(**script)
    return UpstreamConfig(name=name, entry={"command": command, "args": args})


def fake_gateway(era: str, log: Path | None = None, **script: Any) -> Gateway:
    """A gateway over one scripted upstream of an era; its tools have their own names."""
    return Gateway(GatewayConfig(upstreams=[upstream_config(era, log=log, **script)], disclosure="full"))


class FrontClient(EraClient):
    """A client of either era that answers what it is asked."""

    def __init__(self, raw: RawClient, era: str, capabilities: dict[str, Any]) -> None:
        super().__init__(raw, era)
        self.capabilities = capabilities
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def call(self, tool: str, arguments: dict[str, Any], answer: Answer | None = None) -> dict[str, Any]:
        """The whole response to a call; what the server asks meanwhile is answered."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.era == "handshake":
            self.raw.send(id=(id_ := f"call {len(self.asked)}"), method="tools/call", params=params)
            while (message := await self.raw.receive()).get("id") != id_:
                if "id" in message:
                    self.answer_request(message, answer)
                else:
                    self.raw.heard.append(message)
            return message
        meta = {**META, CAPABILITIES_KEY: self.capabilities}
        response = await self.raw.call("tools/call", **params, _meta=meta)
        while response.get("result", {}).get("resultType") == "input_required":
            answers = self.answers_to(response["result"], answer)
            response = await self.raw.call("tools/call", **params, _meta=meta, **answers)
        return response

    def answer_request(self, request: dict[str, Any], answer: Answer | None) -> None:
        self.asked.append((request["method"], request.get("params", {})))
        assert answer is not None, f"nothing answers {request}"
        self.raw.send(id=request["id"], result=answer(*self.asked[-1]))

    def answers_to(self, result: dict[str, Any], answer: Answer | None) -> dict[str, Any]:
        """What is sent with the next round of a request that asks for input."""
        assert answer is not None, f"nothing answers {result}"
        responses = {}
        for key, request in result["inputRequests"].items():
            self.asked.append((request["method"], request.get("params", {})))
            responses[key] = answer(*self.asked[-1])
        return {"inputResponses": responses, "requestState": result["requestState"]}

    async def begin(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The response to the first round of a call in the modern era."""
        meta = {**META, CAPABILITIES_KEY: self.capabilities}
        return await self.raw.call("tools/call", name=tool, arguments=arguments, _meta=meta)

    async def resume(self, tool: str, arguments: dict[str, Any], **inputs: Any) -> dict[str, Any]:
        """The response to a further round."""
        meta = {**META, CAPABILITIES_KEY: self.capabilities}
        return await self.raw.call("tools/call", name=tool, arguments=arguments, _meta=meta, **inputs)


@contextlib.asynccontextmanager
async def front_client(
    gateway: Gateway, era: str, capabilities: dict[str, Any] | None = None
) -> AsyncIterator[FrontClient]:
    """A client of a gateway in this process."""
    capabilities = CAPABILITIES if capabilities is None else capabilities
    async with raw_client(gateway.server) as raw:
        if era == "handshake":
            await raw.handshake(**capabilities)
        yield FrontClient(raw, era, capabilities)


@contextlib.asynccontextmanager
async def fronted(
    front: str, behind: str, log: Path | None = None, capabilities: dict[str, Any] | None = None, **script: Any
) -> AsyncIterator[FrontClient]:
    """A client of one era in front of a gateway with an upstream of another."""
    async with front_client(fake_gateway(behind, log, **script), front, capabilities) as client:
        yield client
