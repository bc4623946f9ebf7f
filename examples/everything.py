"""One of everything: the server the official conformance suite is run against.

    delta-mcp serve examples/everything.py --http 127.0.0.1:8000

The names and the texts that look arbitrary are the suite's.
"""

import asyncio
import struct
import zlib
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from deltamcp import (
    Annotations,
    Audio,
    BlobResource,
    Context,
    DeltaServer,
    EmbeddedResource,
    Icon,
    Image,
    Kind,
    PromptMessage,
    ResourceLink,
    Text,
    TextResource,
    ToolError,
    ToolResult,
    elicitation,
    roots,
    sampling,
)

server = DeltaServer(
    "everything",
    "1.0",
    title="One of everything",
    instructions="Every feature once; the tools answer with fixed texts.",
    icons=[Icon("https://example.com/icon.png", mime_type="image/png", sizes=["48x48"])],
)


def red_dot() -> bytes:
    """A PNG of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def silence() -> bytes:
    """A WAV file of one silent sample."""
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", 2) + b"\x00\x00"
    return b"RIFF" + struct.pack("<I", len(body)) + body


# Tools: content of every kind


@server.tool
async def test_simple_text() -> str:
    """Returns a plain text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Returns an image."""
    return Image(red_dot(), "image/png")


@server.tool
async def test_audio_content() -> Audio:
    """Returns a sound."""
    return Audio(silence(), "audio/wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Returns a resource inside the result."""
    return EmbeddedResource(
        TextResource("test://embedded-resource", "This is an embedded resource content.", "text/plain")
    )


@server.tool
async def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Returns text, an image and a resource together."""
    return [
        Text("Multiple content types test:"),
        Image(red_dot(), "image/png"),
        EmbeddedResource(
            TextResource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
        ),
    ]


@server.tool
async def test_resource_link() -> ResourceLink:
    """Returns a link to a resource instead of the resource."""
    return ResourceLink("test://static-text", "static-text", mime_type="text/plain")


@server.tool
async def test_annotated_content() -> ToolResult:
    """Returns content for the user, with metadata on the result."""
    note = Text("For the user's eyes.", annotations=Annotations(audience=["user"], priority=0.5))
    return ToolResult([note], meta={"example.org/origin": "everything"})


@server.tool
async def test_error_handling() -> str:
    """Fails in a way the model is told of."""
    raise ToolError("This tool intentionally returns an error for testing")


# Tools: arguments and results with types


class Weather(BaseModel):
    """Conditions at a place."""

    city: str
    celsius: float
    sky: Literal["clear", "cloudy", "rain"] = "clear"


@dataclass
class Place:
    """Somewhere on a map."""

    city: str
    country: str = "CH"


@server.tool(title="Weather", annotations={"readOnlyHint": True, "openWorldHint": False})
async def test_structured_output(
    place: Place, days: Annotated[int, Field(ge=1, le=7, description="How far ahead")] = 1
) -> Weather:
    """Returns an object with a schema."""
    return Weather(city=place.city, celsius=20.0 + days)


@server.tool
def test_plain_function(text: str, times: int = 2) -> list[str]:
    """Runs in a thread, for it is not async."""
    return [text] * times


@server.tool(meta={"example.org/group": "headers"}, icons=[Icon("https://example.com/header.png")])
async def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
) -> str:
    """Has its argument mirrored into an HTTP header."""
    return f"region={region}"


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(arguments: dict[str, object]) -> str:
    """Takes arguments under a hand-written JSON Schema."""
    return f"{len(arguments)} arguments"


# Tools: while a call runs


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Sends log messages while it works."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", message)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs, for those who asked."""
    await ctx.log("info", "A message for those who asked")
    return "logged"


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress while it works."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"{done} of 100")
        await asyncio.sleep(0.05)
    return str(ctx.meta.get("progressToken"))


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets the client go and answers when it comes back."""
    await ctx.detach()
    await asyncio.sleep(0.2)
    return "Delivered after reconnecting"


@server.tool(timeout=0.2)
async def test_timeout() -> str:
    """Takes longer than it may."""
    await asyncio.sleep(60)
    return "never"


@server.tool
async def test_trigger_tool_change() -> str:
    """Announces a change of the tool list."""
    server.list_changed(Kind.TOOLS)
    return "announced"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Announces a change of the prompt list."""
    server.list_changed(Kind.PROMPTS)
    return "announced"


@server.tool
async def test_touch_watched_resource() -> str:
    """Announces a change of the watched resource."""
    server.resource_updated("test://watched-resource")
    return "announced"


# Tools: questions to the client


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Has the client's model answer."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer['content'].get('text')}"


class Contact(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user to fill in a form."""
    answer = await ctx.elicit(message, Contact)
    return f"User response: action={answer.action}, content={answer.content}"


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with defaults of every primitive type."""
    answer = await ctx.elicit("Please confirm", Defaults)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with choices of every form."""

    def titled(word: str) -> list[dict[str, str]]:
        names = ("First", "Second", "Third")
        return [{"const": f"value{n}", "title": f"{name} {word}"} for n, name in enumerate(names, 1)]

    options = ["option1", "option2", "option3"]
    answer = await ctx.elicit(
        "Please choose",
        {
            "type": "object",
            "properties": {
                "untitledSingle": {"type": "string", "enum": options},
                "titledSingle": {"type": "string", "oneOf": titled("Option")},
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
            },
        },
    )
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@server.tool
async def test_roots(ctx: Context) -> list[str]:
    """Asks where the client lets us work."""
    return [root["uri"] for root in await ctx.roots()]


# Tools: the same questions, asked the modern era's way


class Name(BaseModel):
    name: str


class Colour(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Needs a name from the user."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.content.name}!" if answer.accepted else "Hello, stranger!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Needs an answer from the client's model."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return str(answer["content"].get("text"))


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Needs the client's roots."""
    return f"{len(await ctx.roots(key='client_roots'))} roots"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Needs a confirmation, and remembers that it asked."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {answer.action}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Needs a confirmation, and notices a tampered memory."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Needs three things at once."""
    answers = await ctx.ask(
        user_name=elicitation("What is your name?", Name),
        greeting=sampling("Generate a greeting", 50),
        client_roots=roots(),
    )
    return f"{len(answers)} answers"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Needs two things, one after the other."""
    first = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    second = await ctx.elicit("Step 2: What is your favorite color?", Colour, key="step2")
    return f"{first.content.name} likes {second.content.color}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only what the client can be asked."""
    questions = {}
    if ctx.can("elicitation"):
        questions["name"] = elicitation("What is your name?", Name)
    if ctx.can("sampling"):
        questions["greeting"] = sampling("Generate a greeting", 50)
    return f"{len(await ctx.ask(**questions))} answers"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Asks a question as part of its answer."""
    answer = await ctx.elicit("Shall I go on?", Confirmation)
    return f"User said {answer.action}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Cannot do without the client's model."""
    answer = await ctx.sample("Hello", max_tokens=10)
    return str(answer["content"].get("text"))


# Resources


@server.resource("test://static-text", name="static-text", mime_type="text/plain", cache_seconds=60)
async def static_text() -> str:
    """A fixed text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A fixed image."""
    return red_dot()


@server.resource(
    "test://watched-resource", name="watched-resource", mime_type="text/plain", annotations=Annotations(priority=1.0)
)
async def watched_resource() -> str:
    """A text that can be watched for changes."""
    return "Watched resource content"


@server.resource("test://parts", name="parts")
async def parts() -> list[TextResource | BlobResource]:
    """Two pieces at one address."""
    return [TextResource("test://parts/1", "one", "text/plain"), BlobResource("test://parts/2", b"two")]


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
async def template(id: str) -> dict[str, object]:
    """Data by id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt(title="With arguments")
async def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="The first")], arg2: Annotated[str, Field(description="The second")]
) -> str:
    """A prompt that is filled in."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
async def test_prompt_with_embedded_resource(
    resource_uri: Annotated[str, Field(alias="resourceUri")],
) -> list[PromptMessage | str]:
    """A prompt that carries a resource."""
    carried = EmbeddedResource(TextResource(resource_uri, "Embedded resource content for testing.", "text/plain"))
    return [PromptMessage("user", carried), "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> list[Image | str]:
    """A prompt that shows an image."""
    return [Image(red_dot(), "image/png"), "Please analyze the image above."]


class Background(BaseModel):
    context: str


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that needs something from the user first."""
    answer = await ctx.elicit("What context should the prompt use?", Background, key="user_context")
    return f"Use this context: {answer.content.context if answer.accepted else 'none'}"


# Completions


@server.completion(prompt="test_prompt_with_arguments", argument="arg1")
async def complete_first(value: str) -> list[str]:
    return [word for word in ("testing", "tested", "paris", "park") if word.startswith(value)]


@server.completion(template="test://template/{id}/data", argument="id")
def complete_id(value: str, arguments: dict[str, str]) -> list[str]:
    return [str(number) for number in range(100, 400) if str(number).startswith(value)]


if __name__ == "__main__":
    server.run()
