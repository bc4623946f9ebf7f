"""Structured content of what is no object: `{"result": ...}`, within one budget with the text."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from deltamcp import ConfigurationError, DeltaServer, Disclosure, ResultPolicy, Text, ToolResult, connect, count_tokens


class Book(BaseModel):
    title: str
    year: int


def _server(**options: Any) -> DeltaServer:
    server = DeltaServer("books", **options)

    @server.tool(output_schema=True)
    def years(count: int = 3) -> list[int]:
        """List years."""
        return [1800 + number for number in range(count)]

    @server.tool(output_schema=True)
    def books(count: int = 2) -> list[Book]:
        """List books."""
        return [Book(title=f"Volume {number}", year=1800 + number) for number in range(count)]

    @server.tool(output_schema=True)
    def count() -> int:
        """Count books."""
        return 7

    @server.tool(output_schema=True)
    def title(length: int = 4) -> str:
        """Return a title."""
        return "Emma" * (length // 4)

    @server.tool(output_schema=True)
    def maybe() -> Book | None:
        """Return no book."""
        return None

    @server.tool(output_schema=True)
    def shelf() -> dict[str, int]:
        """Return an object, which needs no wrapper."""
        return {"a": 1}

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    def raw() -> list[int]:
        """List what a schema describes."""
        return [1, 2]

    @server.tool
    def plain() -> list[int]:
        """List numbers, once."""
        return [1, 2]

    return server


EXPECTED = {
    "years": ("[1800,1801,1802]", {"result": [1800, 1801, 1802]}),
    "books": (
        '[{"title":"Volume 0","year":1800},{"title":"Volume 1","year":1801}]',
        {"result": [{"title": "Volume 0", "year": 1800}, {"title": "Volume 1", "year": 1801}]},
    ),
    "count": ("7", {"result": 7}),
    "title": ("Emma", {"result": "Emma"}),
    "maybe": ("null", {"result": None}),
    "shelf": ('{"a":1}', {"a": 1}),
    "raw": ("[1,2]", {"result": [1, 2]}),
}


@pytest.mark.parametrize("policy", [None, ResultPolicy(max_tokens=500)])
@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_text_and_structured_content_say_the_same_and_fit_the_schema(era, policy):
    async with connect(_server(results=policy), speak=era) as client:
        definitions = {tool["name"]: tool for tool in await client.list_tools()}
        for name, (text, structured) in EXPECTED.items():
            reply = await client.call_tool(name)
            assert (reply.raw["content"][0]["text"], reply.raw["structuredContent"]) == (text, structured)
            jsonschema.Draft202012Validator(definitions[name]["outputSchema"]).validate(structured)
        assert "outputSchema" not in definitions["plain"]
        assert "structuredContent" not in (await client.call_tool("plain")).raw


@pytest.mark.parametrize("budget", [60, 100, 300, 1000])
@pytest.mark.parametrize("tool", ["years", "books", "title"])
async def test_both_channels_of_a_result_that_is_cut_are_within_one_budget_and_fit_the_schema(tool, budget):
    async with connect(_server(results=ResultPolicy(max_tokens=budget)), deltas=False) as client:
        (definition,) = await client.describe(tool)
        argument = "length" if tool == "title" else "count"
        reply = await client.call_tool(tool, {argument: 8000})
        assert not reply.is_error and reply.handle
        structured = reply.raw["structuredContent"]
        jsonschema.Draft202012Validator(definition["outputSchema"]).validate(structured)
        assert structured["result"]
        texts = [block["text"] for block in reply.raw["content"] if block["type"] == "text"]
        assert sum(map(count_tokens, [*texts, str(structured)])) <= budget * 1.25
        whole = await client.whole(reply)
        assert whole == ("Emma" * 2000 if tool == "title" else whole) and len(whole) == 8000


async def test_what_an_author_puts_into_a_result_is_wrapped_as_well():
    server = DeltaServer("own")

    @server.tool(output_schema={"type": "integer"})
    def seven() -> ToolResult:
        """Return seven."""
        return ToolResult([Text("seven")], structured=7)

    @server.tool(output_schema={"type": "integer"})
    def wrong() -> str:
        """Return what does not fit."""
        return "seven"

    async with connect(server) as client:
        assert (await client.call_tool("seven")).raw["structuredContent"] == {"result": 7}
        assert (await client.call_tool("wrong")).is_error


async def test_behind_meta_tools_the_text_is_sent_alone():
    async with connect(_server(disclosure=Disclosure("meta"))) as client:
        reply = await client.call_tool("execute", {"operation": "years"})
        assert "structuredContent" not in reply.raw and "1802" in reply.text


def test_a_type_that_is_missing_or_has_no_schema_is_refused():
    server = DeltaServer("refused")
    with pytest.raises(ConfigurationError, match="output_schema=True needs the type"):

        @server.tool(output_schema=True)
        def untyped():
            """Return something."""

    with pytest.raises(ConfigurationError, match=r"refer to a part of its \$defs"):

        @server.tool(output_schema={"type": "array", "prefixItems": [{}], "items": {"$ref": "#/prefixItems/0"}})
        def lost() -> list[int]:
            """Return something."""
            return []
