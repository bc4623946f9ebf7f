"""A host made with the official SDK: it answers what a server asks; and what the tools of the example server answer."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.session import IncomingMessage
from pydantic import FileUrl

FORM: dict[str, Any] = {
    "username": "ada",
    "email": "ada@example.org",
    "name": "Ada",
    "age": 36,
    "score": 99.5,
    "status": "pending",
    "verified": False,
    "untitledSingle": "option2",
    "titledSingle": "value2",
    "legacyEnum": "opt2",
    "untitledMulti": ["option1", "option3"],
    "titledMulti": ["value1"],
    "color": "green",
    "ok": True,
    "context": "tea",
}
"""What the user types into a field, whichever form it is in."""

CHOICES = {key: FORM[key] for key in ("untitledSingle", "titledSingle", "legacyEnum", "untitledMulti", "titledMulti")}


@dataclass(frozen=True)
class Call:
    """A tool's arguments and what comes of them."""

    text: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("text",)
    is_error: bool = False


CALLS = {
    "test_simple_text": Call("This is a simple text response for testing."),
    "test_image_content": Call(kinds=("image",)),
    "test_audio_content": Call(kinds=("audio",)),
    "test_embedded_resource": Call(kinds=("resource",)),
    "test_multiple_content_types": Call("Multiple content types test:", kinds=("text", "image", "resource")),
    "test_resource_link": Call(kinds=("resource_link",)),
    "test_annotated_content": Call("For the user's eyes."),
    "test_error_handling": Call("This tool intentionally returns an error for testing", is_error=True),
    "test_structured_output": Call(
        '{"city":"Bern","celsius":22.0,"sky":"clear"}', {"place": {"city": "Bern"}, "days": 2}
    ),
    "test_plain_function": Call('["ab","ab","ab"]', {"text": "ab", "times": 3}),
    "test_x_mcp_header": Call("region=Zürich", {"region": "Zürich"}),
    "json_schema_2020_12_tool": Call("2 arguments", {"name": "Ada", "email": "ada@example.org"}),
    "test_tool_with_logging": Call("Tool with logging executed successfully"),
    "test_logging_tool": Call("logged"),
    "test_tool_with_progress": Call("None"),
    "test_reconnection": Call("Delivered after reconnecting"),
    "test_timeout": Call("test_timeout was stopped: it took too long.", is_error=True),
    "test_trigger_tool_change": Call("announced"),
    "test_trigger_prompt_change": Call("announced"),
    "test_touch_watched_resource": Call("announced"),
    "test_sampling": Call("LLM response: Paris", {"prompt": "What is the capital of France?"}),
    "test_elicitation": Call(
        "User response: action=accept, content=username='ada' email='ada@example.org'", {"message": "Who are you?"}
    ),
    "test_elicitation_sep1034_defaults": Call(
        "Elicitation completed: action=accept, content=name='Ada' age=36 score=99.5 status='pending' verified=False"
    ),
    "test_elicitation_sep1330_enums": Call(f"Elicitation completed: action=accept, content={CHOICES}"),
    "test_roots": Call('["file:///work"]'),
    "test_input_required_result_elicitation": Call("Hello, Ada!"),
    "test_input_required_result_sampling": Call("Paris"),
    "test_input_required_result_list_roots": Call("1 roots"),
    "test_input_required_result_request_state": Call("state-ok: accept"),
    "test_input_required_result_tampered_state": Call("state-ok: accept"),
    "test_input_required_result_multiple_inputs": Call("3 answers"),
    "test_input_required_result_multi_round": Call("Ada likes green"),
    "test_input_required_result_capabilities": Call("2 answers"),
    "test_streaming_elicitation": Call("User said accept"),
    "test_missing_capability": Call("Paris"),
}


class Peer:
    """A host: it answers what the server asks and keeps what the server tells."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[types.ServerNotification] = asyncio.Queue()
        self.logged: asyncio.Queue[Any] = asyncio.Queue()
        self.progressed: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text="Paris"), model="a-model"
        )

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        fields = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={name: FORM[name] for name in fields})

    async def roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///work"), name="work")])

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.put_nowait(params.data)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progressed.put_nowait((progress, total, message))

    async def hear(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            raise message
        self.heard.put_nowait(message)

    async def hears(self, wanted: type[types.ServerNotification]) -> list[types.ServerNotification]:
        """Everything up to the first notification of a kind."""
        told = [await self.heard.get()]
        while not isinstance(told[-1], wanted):
            told.append(await self.heard.get())
        return told


def connect_peer(target: Any, mode: str, peer: Peer, **options: Any) -> Client:
    """A client that can be asked everything, not yet connected."""
    return Client(
        target,
        mode=mode,
        sampling_callback=peer.sample,
        elicitation_callback=peer.elicit,
        list_roots_callback=peer.roots,
        logging_callback=peer.log,
        message_handler=peer.hear,
        **options,
    )


def shown(result: types.CallToolResult) -> tuple[bool, tuple[str, ...], str | None]:
    texts = [item.text for item in result.content if isinstance(item, types.TextContent)]
    return bool(result.is_error), tuple(item.type for item in result.content), texts[0] if texts else None
