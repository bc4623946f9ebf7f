"""The official Python SDK's client against the example server: three ways to connect in three modes."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import PromptsListChanged, ResourceUpdated, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from deltamcp import DeltaServer
from tests.support.sdk_host import CALLS, Peer, connect_peer, shown
from tests.support.sdk_streams import sdk_streams

pytestmark = pytest.mark.diagonal("target", "mode")

SECONDS = 120
"""Bounds every test; what takes so long hangs."""

RETRY_SECONDS = 0.25
"""How long an announcement may take before it is made again."""

VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"}
MODERN = [mode for mode, version in VERSIONS.items() if version == "2026-07-28"]

WATCHED = "test://watched-resource"

RED_DOT = b"\x89PNG\r\n\x1a\n"

READS: dict[str, list[tuple[str, str | None, str | bytes]]] = {
    "test://static-text": [
        ("test://static-text", "text/plain", "This is the content of the static text resource."),
    ],
    "test://static-binary": [("test://static-binary", "image/png", RED_DOT)],
    "test://watched-resource": [("test://watched-resource", "text/plain", "Watched resource content")],
    "test://parts": [("test://parts/1", "text/plain", "one"), ("test://parts/2", None, b"two")],
}
"""What stands at each address; bytes need only begin so."""

TEMPLATE = "test://template/{id}/data"
TEMPLATE_READ = ("test://template/42/data", {"id": "42", "templateTest": True, "data": "Data for ID: 42"})

GETS: dict[str, tuple[dict[str, str], list[tuple[str, str | None]]]] = {
    "test_simple_prompt": ({}, [("text", "This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        {"arg1": "tea", "arg2": "milk"},
        [("text", "Prompt with arguments: arg1='tea', arg2='milk'")],
    ),
    "test_prompt_with_embedded_resource": (
        {"resourceUri": "test://example"},
        [("resource", None), ("text", "Please process the embedded resource above.")],
    ),
    "test_prompt_with_image": ({}, [("image", None), ("text", "Please analyze the image above.")]),
    "test_input_required_result_prompt": ({}, [("text", "Use this context: tea")]),
}

UNKNOWN_RESOURCE = {"legacy": -32002, "auto": -32602, "2026-07-28": -32602}
"""MCP 2026-07-28 retires -32002."""


@pytest.fixture(params=["stdio", "http", "memory"])
def target(request: pytest.FixtureRequest, command: list[str], server: DeltaServer) -> Any:
    """Where the client connects to."""
    if request.param == "stdio":
        return StdioServerParameters(command=command[0], args=command[1:])
    return request.getfixturevalue("everything") if request.param == "http" else sdk_streams(server)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture(params=list(VERSIONS))
def mode(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def connect(target: Any, mode: str, peer: Peer) -> Callable[..., Client]:
    """A client that can be asked everything, not yet connected."""

    def make(**options: Any) -> Client:
        return connect_peer(target, mode, peer, **options)

    return make


def only_in(*modes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mode", modes, indirect=True)


async def test_a_connection_agrees_on_the_newest_version_of_its_mode(connect, mode):
    async with asyncio.timeout(SECONDS), connect() as client:
        assert client.protocol_version == VERSIONS[mode]


@only_in("legacy", "auto")
async def test_the_server_introduces_itself(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        assert (client.server_info.name, client.server_info.version) == ("everything", "1.0")
        assert client.server_info.title == "One of everything"
        assert [icon.src for icon in client.server_info.icons] == ["https://example.com/icon.png"]
        assert client.instructions == "Every feature once; the tools answer with fixed texts."
        offered = client.server_capabilities
        assert offered.tools.list_changed and offered.prompts.list_changed and offered.resources.list_changed
        assert offered.resources.subscribe and offered.completions is not None and offered.logging is not None


async def test_the_lists_hold_what_the_catalog_holds(connect, server):
    catalog = server.engine.catalog
    async with asyncio.timeout(SECONDS), connect() as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        templates = await client.list_resource_templates()
        prompts = await client.list_prompts()
    assert [tool.name for tool in tools.tools] == list(catalog.operations)
    assert [resource.uri for resource in resources.resources] == list(catalog.resources)
    assert [template.uri_template for template in templates.resource_templates] == list(catalog.templates)
    assert [prompt.name for prompt in prompts.prompts] == list(catalog.prompts)
    assert {result.next_cursor for result in (tools, resources, templates, prompts)} == {None}


def test_the_tables_name_everything_the_catalog_holds(server):
    catalog = server.engine.catalog
    assert list(CALLS) == list(catalog.operations)
    assert list(READS) == list(catalog.resources)
    assert list(catalog.templates) == [TEMPLATE]
    assert list(GETS) == list(catalog.prompts)


async def test_every_tool_answers(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        answers = {name: shown(await client.call_tool(name, call.arguments)) for name, call in CALLS.items()}
    assert answers == {name: (call.is_error, call.kinds, call.text) for name, call in CALLS.items()}


async def test_structured_output_comes_as_an_object_that_fits_its_schema(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "test_structured_output"]
        result = await client.call_tool(tool.name, {"place": {"city": "Bern"}, "days": 2})
    assert tool.title == "Weather"
    assert tool.annotations.read_only_hint is True and tool.annotations.open_world_hint is False
    assert set(tool.output_schema["properties"]) == {"city", "celsius", "sky"}
    assert result.structured_content == {"city": "Bern", "celsius": 22.0, "sky": "clear"}
    assert json.loads(result.content[0].text) == result.structured_content


async def test_content_arrives_whole(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        [image] = (await client.call_tool("test_image_content")).content
        [sound] = (await client.call_tool("test_audio_content")).content
        [embedded] = (await client.call_tool("test_embedded_resource")).content
        [link] = (await client.call_tool("test_resource_link")).content
        annotated = await client.call_tool("test_annotated_content")
    assert (image.mime_type, base64.b64decode(image.data)[:8]) == ("image/png", RED_DOT)
    assert (sound.mime_type, base64.b64decode(sound.data)[:4]) == ("audio/wav", b"RIFF")
    assert (embedded.resource.uri, embedded.resource.text) == (
        "test://embedded-resource",
        "This is an embedded resource content.",
    )
    assert (link.uri, link.name, link.mime_type) == ("test://static-text", "static-text", "text/plain")
    assert (annotated.content[0].annotations.audience, annotated.content[0].annotations.priority) == (["user"], 0.5)
    assert annotated.meta["example.org/origin"] == "everything"


async def test_every_resource_can_be_read(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        read = {uri: (await client.read_resource(uri)).contents for uri in READS}
        [templated] = (await client.read_resource(TEMPLATE_READ[0])).contents
    for uri, expected in READS.items():
        assert len(read[uri]) == len(expected)
        for item, (address, mime_type, content) in zip(read[uri], expected, strict=True):
            assert (item.uri, item.mime_type) == (address, mime_type)
            if isinstance(content, str):
                assert item.text == content
            else:
                assert base64.b64decode(item.blob).startswith(content)
    assert (templated.uri, templated.mime_type) == (TEMPLATE_READ[0], "application/json")
    assert json.loads(templated.text) == TEMPLATE_READ[1]


async def test_every_prompt_can_be_had(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        for name, (arguments, expected) in GETS.items():
            messages = (await client.get_prompt(name, arguments)).messages
            assert {message.role for message in messages} == {"user"}
            assert [(item.content.type, getattr(item.content, "text", None)) for item in messages] == expected


async def test_arguments_of_prompts_and_templates_complete(connect):
    prompt = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    template = types.ResourceTemplateReference(type="ref/resource", uri=TEMPLATE)
    async with asyncio.timeout(SECONDS), connect() as client:
        words = (await client.complete(prompt, {"name": "arg1", "value": "par"})).completion
        none = (await client.complete(prompt, {"name": "arg2", "value": "par"})).completion
        numbers = (await client.complete(template, {"name": "id", "value": "39"})).completion
        many = (await client.complete(template, {"name": "id", "value": ""})).completion
    assert words.values == ["paris", "park"]
    assert none.values == []
    assert numbers.values == [str(number) for number in range(390, 400)]
    assert (len(many.values), many.total, many.has_more) == (100, 300, True)


async def test_progress_arrives(connect, peer):
    async with asyncio.timeout(SECONDS), connect() as client:
        await client.call_tool("test_tool_with_progress", progress_callback=peer.progress)
        told = [await peer.progressed.get() for _ in range(3)]
    assert told == [(0, 100, "0 of 100"), (50, 100, "50 of 100"), (100, 100, "100 of 100")]


async def test_log_messages_arrive(connect, peer):
    async with asyncio.timeout(SECONDS), connect(log_level="info") as client:
        await client.call_tool("test_tool_with_logging")
        told = [await peer.logged.get() for _ in range(3)]
    assert told == ["Tool execution started", "Tool processing data", "Tool execution completed"]


@only_in("legacy")
async def test_the_level_that_is_set_holds_back_lesser_messages(connect, peer):
    async with asyncio.timeout(SECONDS), connect() as client:
        for level in ("error", "debug"):
            with pytest.warns(MCPDeprecationWarning):
                await client.set_logging_level(level)
            await client.call_tool("test_tool_with_logging" if level == "error" else "test_logging_tool")
        assert await peer.logged.get() == "A message for those who asked"
    assert peer.logged.empty()


@only_in(*MODERN)
async def test_nobody_is_sent_log_messages_who_did_not_ask(connect, peer):
    async with asyncio.timeout(SECONDS), connect() as client:
        await client.call_tool("test_logging_tool")
        asked = {"io.modelcontextprotocol/logLevel": "info"}
        await client.call_tool("test_tool_with_logging", meta=asked)
        assert await peer.logged.get() == "Tool execution started"


@only_in("legacy")
async def test_a_ping_is_answered(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        with pytest.warns(MCPDeprecationWarning):
            assert (await client.send_ping()).model_dump(exclude_none=True) == {}


@only_in("legacy")
async def test_a_session_hears_of_changes(connect, peer):
    async with asyncio.timeout(SECONDS), connect() as client:
        await _until_heard(client, peer)
        await client.call_tool("test_trigger_prompt_change")
        await peer.hears(types.PromptListChangedNotification)

        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(WATCHED)
        await client.call_tool("test_touch_watched_resource")
        assert (await peer.hears(types.ResourceUpdatedNotification))[-1].params.uri == WATCHED

        with pytest.warns(MCPDeprecationWarning):
            await client.unsubscribe_resource(WATCHED)
        await client.call_tool("test_touch_watched_resource")
        await client.call_tool("test_trigger_prompt_change")
        told = await peer.hears(types.PromptListChangedNotification)
        assert not [message for message in told if isinstance(message, types.ResourceUpdatedNotification)]


async def _until_heard(client: Client, peer: Peer) -> None:
    """Announces a change until it is heard: over HTTP the client may still be opening its stream."""
    while True:
        await client.call_tool("test_trigger_tool_change")
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await peer.hears(types.ToolListChangedNotification)
                return
        except TimeoutError:
            continue


CHANGES: dict[str, ServerEvent] = {
    "test_trigger_tool_change": ToolsListChanged(),
    "test_trigger_prompt_change": PromptsListChanged(),
    "test_touch_watched_resource": ResourceUpdated(uri=WATCHED),
}


@only_in(*MODERN)
async def test_a_subscription_hears_of_changes(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=[WATCHED]
        ) as subscription:
            assert subscription.honored.tools_list_changed and subscription.honored.prompts_list_changed
            assert subscription.honored.resource_subscriptions == [WATCHED]
            for tool, change in CHANGES.items():
                await client.call_tool(tool)
                assert await anext(subscription) == change


@only_in(*MODERN)
async def test_a_subscription_is_sent_only_what_it_named(connect, peer):
    """Looks at what came over the wire, for the SDK's own iterator filters too."""
    async with asyncio.timeout(SECONDS), connect() as client:
        async with client.listen(prompts_list_changed=True):
            for tool in ("test_trigger_tool_change", "test_touch_watched_resource", "test_trigger_prompt_change"):
                await client.call_tool(tool)
            told = await peer.hears(types.PromptListChangedNotification)
    assert [message.method for message in told] == ["notifications/prompts/list_changed"]


async def test_an_unknown_tool_is_an_error_that_names_the_nearest(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("test_simple_txt")
    assert caught.value.code == types.INVALID_PARAMS
    assert "test_simple_text" in str(caught.value)


async def test_an_unknown_resource_is_an_error_that_names_it(connect, mode):
    async with asyncio.timeout(SECONDS), connect() as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("test://nowhere")
    assert (caught.value.code, caught.value.error.data) == (UNKNOWN_RESOURCE[mode], {"uri": "test://nowhere"})


async def test_an_unknown_prompt_and_missing_arguments_are_errors(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        for name in ("test_nothing", "test_prompt_with_arguments"):
            with pytest.raises(MCPError) as caught:
                await client.get_prompt(name)
            assert caught.value.code == types.INVALID_PARAMS


async def test_wrong_arguments_are_told_to_the_model(connect):
    async with asyncio.timeout(SECONDS), connect() as client:
        result = await client.call_tool("test_plain_function", {"text": "ab", "tmies": 3})
    is_error, _, text = shown(result)
    assert is_error and "tmies" in str(text)


async def test_a_client_that_cannot_be_asked_is_told_so(target, mode):
    async with asyncio.timeout(SECONDS), Client(target, mode=mode) as client:
        if mode in MODERN:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("test_missing_capability")
            assert caught.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert caught.value.error.data == {"requiredCapabilities": {"sampling": {}}}
        else:
            result = await client.call_tool("test_missing_capability")
            assert shown(result) == (True, ("text",), "The client does not support sampling.")
