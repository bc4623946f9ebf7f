"""A client that calls tools in either era, and what it reads from a result."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from deltamcp import DeltaServer
from deltamcp.tokens import count
from tests.support.raw_client import META, RawClient, raw_client

RESULT_KEY = "io.github.delta-mcp/result"
ERAS = ["handshake", "modern"]
Result = dict[str, Any]


# Talking to a server, and reading what it says


@dataclass
class EraClient:
    raw: RawClient
    era: str = "modern"

    async def ask(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        about = {**(META if self.era == "modern" else {}), **(meta or {})}
        return await self.raw.call(method, **({"_meta": about} if about else {}), **params)

    async def use(self, tool: str, wish: dict[str, Any] | None = None, **arguments: Any) -> Result:
        """A tool's result; a JSON-RPC error fails the test."""
        meta = None if wish is None else {RESULT_KEY: wish}
        answer = await self.ask("tools/call", meta, name=tool, arguments=arguments)
        assert "result" in answer, answer
        found: Result = answer["result"]
        return found

    async def result_of(self, tool: str, wish: dict[str, Any] | None = None, **arguments: Any) -> Result:
        result = await self.use(tool, wish, **arguments)
        assert not result.get("isError"), result
        return result

    async def refusal_of(self, tool: str, **arguments: Any) -> str:
        """The text of a failure that the model is told of."""
        result = await self.use(tool, **arguments)
        assert result.get("isError") is True, result
        return first_text(result)

    async def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in (await self.ask("tools/list"))["result"]["tools"]}

    async def read(self, uri: str) -> Any:
        answer = await self.ask("resources/read", uri=uri)
        assert "result" in answer, answer
        [content] = answer["result"]["contents"]
        assert content["uri"] == uri
        return json.loads(content["text"]) if content["mimeType"] == "application/json" else content["text"]


@contextlib.asynccontextmanager
async def era_client(server: DeltaServer, era: str = "modern") -> AsyncIterator[EraClient]:
    async with raw_client(server) as raw:
        if era == "handshake":
            await raw.handshake(elicitation={})
        yield EraClient(raw, era)


def texts(result: Result) -> list[str]:
    """The texts of a result; the notes below a text are told apart by `_meta`."""
    found = [block["text"] for block in result["content"] if block["type"] == "text"]
    lengths = result_meta(result).get("lengths")
    if lengths is None:
        return found
    rest, *others = found
    parts = []
    for length in lengths:
        parts.append(rest[:length])
        rest = rest[length + 1 :] if length else rest
    assert rest == "" and "\n".join(filter(None, parts)) == found[0]
    return [*parts, *others]


def first_text(result: Result) -> str:
    return texts(result)[0]


def result_meta(result: Result) -> dict[str, Any]:
    """What a program is told."""
    found: dict[str, Any] = result.get("_meta", {}).get(RESULT_KEY, {})
    return found


def compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def token_cost(result: Result) -> int:
    """The tokens of a reply as the model sees it."""
    seen = []
    for block in result["content"]:
        if block["type"] == "text":
            seen.append(block["text"])
        elif block["type"] == "resource_link":
            seen.append(compact_json(block))
        elif block["type"] == "resource" and "text" in block["resource"]:
            seen.append(block["resource"]["text"])
    if "structuredContent" in result:
        seen.append(compact_json(result["structuredContent"]))
    return count("\n".join(seen))
