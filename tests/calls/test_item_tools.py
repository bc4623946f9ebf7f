"""Resources and prompts for hosts that know only tools, and for functions of the server."""

from typing import Any

import pytest

from deltamcp import (
    CallFailedError,
    ConfigurationError,
    Context,
    DeltaServer,
    Disclosure,
    Gateway,
    GatewayConfig,
    Principal,
    PromptMessage,
    Text,
    ToolError,
    UpstreamConfig,
    connect,
)
from tests.support.era_client import ERAS
from tests.support.gateway_entries import module_entry

PIXEL = b"\x89PNG"


def library(name: str = "library", **options: Any) -> DeltaServer:
    server = DeltaServer(name, **options)

    @server.resource("book://all", name="books", mime_type="text/plain")
    def all_books() -> str:
        """Every book."""
        return "Emma, Faust"

    @server.resource("book://{title}/cover", mime_type="image/png")
    def cover(title: str) -> bytes:
        """The cover of a book."""
        return PIXEL

    @server.prompt
    def review(title: str, tone: str = "kind") -> list[str | PromptMessage]:
        """Review a book."""
        return [f"Review {title}, {tone}.", PromptMessage("assistant", Text("I have read it."))]

    @server.prompt
    def summarise(title: str) -> str:
        """Summarise a book."""
        return f"Summarise {title}."

    @server.tool
    async def count_items(ctx: Context) -> list[int]:
        """Count what there is."""
        return [
            len(await ctx.list_resources()),
            len(await ctx.list_resource_templates()),
            len(await ctx.list_prompts()),
        ]

    @server.tool
    async def ask(prompt: str, ctx: Context, title: str = "Emma") -> str:
        """Fill in a prompt."""
        content = (await ctx.get_prompt(prompt, {"title": title})).messages[0].content
        assert isinstance(content, Text)
        return content.text

    return server


@pytest.mark.parametrize("speak", ERAS)
async def test_tools_reach_resources_and_prompts(speak):
    async with connect(library(as_tools=True), speak=speak) as client:
        names = {tool["name"] for tool in await client.list_tools()}
        assert names == {"count_items", "ask", "list_resources", "read_resource", "list_prompts", "get_prompt"}
        assert await client.call("list_resources") == [
            {"uri": "book://all", "name": "books", "description": "Every book.", "mimeType": "text/plain"},
            {
                "uri": "book://{title}/cover",
                "name": "cover",
                "description": "The cover of a book.",
                "mimeType": "image/png",
            },
        ]
        assert await client.call("read_resource", uri="book://all") == "Emma, Faust"
        (image,) = (await client.call_tool("read_resource", {"uri": "book://Emma/cover"})).raw["content"]
        assert (image["type"], image["mimeType"]) == ("image", "image/png")
        assert await client.call("list_prompts") == [
            {"name": "review", "description": "Review a book.", "arguments": "title tone?"},
            {"name": "summarise", "description": "Summarise a book.", "arguments": "title"},
        ]
        assert await client.call("get_prompt", name="summarise", arguments={"title": "Emma"}) == "Summarise Emma."
        assert await client.call("get_prompt", name="review", arguments={"title": "Emma"}) == [
            {"role": "user", "content": "Review Emma, kind."},
            {"role": "assistant", "content": "I have read it."},
        ]


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("read_resource", {"uri": "book://none/at/all"}, "There is no resource at book://none/at/all"),
        ("get_prompt", {"name": "praise"}, "There is no prompt 'praise'"),
        ("get_prompt", {"name": "review"}, "title"),
    ],
)
async def test_what_is_not_there_is_told(tool, arguments, sentence):
    async with connect(library(as_tools=True)) as client:
        with pytest.raises(CallFailedError, match=sentence):
            await client.call(tool, **arguments)


async def test_there_are_no_tools_for_what_there_is_not():
    server = DeltaServer("empty", as_tools=True)
    async with connect(server) as client:
        assert await client.list_tools() == []
    server.prompt(lambda: "Hello.", name="hello")
    async with connect(server) as client:
        assert {tool["name"] for tool in await client.list_tools()} == {"list_prompts", "get_prompt"}


async def test_an_own_tool_of_that_name_stays():
    server = DeltaServer("own", as_tools=True)
    server.tool(lambda: "mine", name="read_resource")

    @server.resource("note://1")
    def one() -> str:
        return "one"

    async with connect(server) as client:
        assert await client.call("read_resource") == "mine"
    with pytest.raises(ConfigurationError, match="'list_resources' is registered already"):
        server.tool(lambda: "late", name="list_resources")


async def test_what_is_hidden_is_not_reached():
    server = library(as_tools=True)
    server.disable(names=["book://all", "review"])
    async with connect(server) as client:
        assert [one["name"] for one in await client.call("list_resources")] == ["cover"]
        with pytest.raises(CallFailedError, match="There is no resource"):
            await client.call("read_resource", uri="book://all")
        with pytest.raises(CallFailedError, match="There is no prompt 'review'"):
            await client.call("get_prompt", name="review", arguments={"title": "Emma"})
        server.disable(names=["summarise"], principal=Principal("somebody else"))
        assert [one["name"] for one in await client.call("list_prompts")] == ["summarise"]


async def test_a_mounted_server_is_reached_by_its_own_tools_and_by_those_around_it():
    inner, outer = library("inner", as_tools=True), library("outer", as_tools=True)
    outer.mount(inner, "in")
    async with connect(outer) as client:
        assert [one["uri"] for one in await client.call("list_resources")] == [
            "book://all",
            "book://in/all",
            "book://{title}/cover",
            "book://in/{title}/cover",
        ]
        assert [one["uri"] for one in await client.call("in_list_resources")] == ["book://all", "book://{title}/cover"]
        assert await client.call("in_read_resource", uri="book://all") == "Emma, Faust"
        assert await client.call("get_prompt", name="in_summarise", arguments={"title": "x"}) == "Summarise x."
        assert await client.call("in_ask", prompt="summarise") == "Summarise Emma."
        assert (await client.call("count_items"), await client.call("in_count_items")) == ([2, 2, 4], [1, 1, 2])
        with pytest.raises(CallFailedError, match="There is no prompt 'in_summarise'"):
            await client.call("in_ask", prompt="in_summarise")


async def test_behind_meta_tools_they_are_operations():
    async with connect(library(as_tools=True, disclosure=Disclosure("meta"))) as client:
        assert await client.call("read_resource", uri="book://all") == "Emma, Faust"


@pytest.mark.parametrize("disclosure", ["full", "meta"])
async def test_a_gateway_reaches_those_of_the_servers_behind_it(disclosure, tmp_path, monkeypatch):
    for purpose in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path))
    upstream = UpstreamConfig(name="notes", entry=module_entry("tests.support.notes_server"), promise="never")
    gateway = Gateway(GatewayConfig(upstreams=[upstream], disclosure=disclosure, as_tools=True))
    async with connect(gateway.server) as client:
        assert {"uri": "note://{name}", "name": "read"}.items() <= (await client.call("list_resources"))[-1].items()
        assert await client.call("read_resource", uri="note://first") == "one"
        assert await client.call("get_prompt", name="summarise", arguments={"name": "first"}) == "Summarise: one"


async def test_a_prompt_that_fails_is_told_of():
    server = DeltaServer("failing", as_tools=True)

    @server.prompt
    def broken() -> str:
        raise ToolError("The shelf is closed.")

    async with connect(server) as client:
        with pytest.raises(CallFailedError, match=r"The shelf is closed\."):
            await client.call("get_prompt", name="broken")
