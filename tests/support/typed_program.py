# pyright: strict
# mypy: disallow-untyped-defs, disallow-incomplete-defs, disallow-untyped-calls, disallow-untyped-decorators
"""A program that uses what people of other frameworks look for. `make check` has mypy and pyright read it strictly."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from deltamcp import (
    CallFailedError,
    CallNext,
    Context,
    DeltaServer,
    Depends,
    Elicited,
    FunctionCall,
    Gateway,
    GatewayConfig,
    Image,
    NoConversationError,
    PromptMessage,
    PromptResult,
    Reply,
    ResultPolicy,
    Text,
    TextResource,
    ToolError,
    ToolResult,
    UpstreamConfig,
    connect,
)
from deltamcp.middleware import cache_calls, log_calls, retry_calls, time_calls


class Note(BaseModel):
    name: str
    text: str
    stars: int = 0


class Wish(BaseModel):
    text: str
    urgent: bool = False


Notes = dict[str, Note]
seconds: list[float] = []


@asynccontextmanager
async def open_notes(server: DeltaServer) -> AsyncGenerator[Notes]:
    yield {"first": Note(name="first", text="one")}


async def refuse_secrets(call: FunctionCall, call_next: CallNext) -> Any:
    if call.arguments.get("name") == "secret":
        raise ToolError("Secrets are not kept here.")
    return await call_next(call)


def record(call: FunctionCall, taken: float) -> None:
    seconds.append(taken)


server = DeltaServer(
    "notes",
    "1.0",
    lifespan=open_notes,
    middleware=[
        time_calls(record),
        log_calls(logging.getLogger("notes"), logging.DEBUG),
        retry_calls(2),
        cache_calls(60.0),
        refuse_secrets,
    ],
    results=ResultPolicy(max_tokens=2_000),
    as_tools=True,
)


def notes_of(ctx: Context) -> Notes:
    notes: Notes = ctx.lifespan
    return notes


KnownNotes = Annotated[Notes, Depends(notes_of)]


@server.tool(annotations={"readOnlyHint": True}, tags=["read"], output_schema=True)
def find_notes(query: str, notes: KnownNotes, limit: Annotated[int, Field(ge=1)] = 10) -> list[Note]:
    """Find notes.

    Args:
        query: A part of the text.
        limit: How many at most.
    """
    return [note for note in notes.values() if query in note.text][:limit]


@server.tool("write_note", tags={"write"}, timeout=5.0)
async def write(name: str, text: str, ctx: Context) -> Note:
    """Write a note."""
    await ctx.debug("begun")
    await ctx.info({"name": name})
    await ctx.report_progress(1, total=2, message=name)
    notes_of(ctx)[name] = note = Note(name=name, text=text)
    count: int = await ctx.state.update("written", lambda number: number + 1, 0)
    await ctx.warning(f"{count} notes are written")
    await ctx.error("none is lost")
    return note


@server.tool(tags=["read"])
async def summarize(ctx: Context) -> str:
    """Say what there is."""
    (contents,) = await ctx.read_resource("note://first")
    assert isinstance(contents, TextResource)
    prompt: PromptResult = await ctx.get_prompt("polish", {"name": "first"})
    content = prompt.messages[0].content
    assert isinstance(content, Text)
    names = [*await ctx.list_resources(), *await ctx.list_resource_templates(), *await ctx.list_prompts()]
    return f"{contents.text}, {content.text}, {len(names)}"


@server.tool(tags=["write"])
async def wish(ctx: Context) -> str:
    """Ask the user for a wish."""
    answer: Elicited = await ctx.elicit("What do you wish?", Wish)
    if not answer.accepted:
        return "nothing"
    wanted: Wish = answer.content
    colour = await ctx.elicit("Which colour?", ["red", "blue"])
    return f"{wanted.text} in {colour.content}"


@server.tool(policy="confirm", tags=["admin"])
def burn(notes: KnownNotes) -> str:
    """Delete all notes."""
    notes.clear()
    return "gone"


@server.tool(tags=["read"])
def draw(kind: Literal["dot", "line"]) -> list[str | Image]:
    """Draw something."""
    return [kind, Image(b"\x89PNG", "image/png")]


@server.tool
def price() -> ToolResult:
    """Tell the price."""
    return ToolResult([Text("5 euros")], structured={"euros": 5}, meta={"source": "list"})


@server.resource("note://{name}", mime_type="text/plain", tags=["read"])
def read_note(name: str, notes: KnownNotes) -> str:
    """A note."""
    return notes[name].text


@server.prompt(tags=["read"])
def polish(name: str, tone: str = "kind") -> list[PromptMessage]:
    """Polish a note."""
    return [PromptMessage("user", Text(f"Polish {name}, {tone}."))]


@server.completion(prompt="polish", argument="name")
def complete_name(value: str) -> list[str]:
    return [name for name in ("first", "second") if name.startswith(value)]


def make_outer(entry: dict[str, Any]) -> DeltaServer:
    """Returns a server that has the one above, and one elsewhere: by its client and by a gateway."""
    config = GatewayConfig(
        upstreams=[UpstreamConfig(name="behind", entry=entry, read_only=True, timeout=20.0, promise="never")],
        disclosure="full",
    )
    outer = DeltaServer("outer")
    outer.mount(server, "notes")
    outer.mount(connect(entry, timeout=20.0), prefix="there")
    outer.mount(Gateway(config).server, prefix="reviewed")
    outer.disable(tags=["admin"])
    return outer


async def main(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    progress: list[float] = []

    def answer(question: dict[str, Any]) -> dict[str, Any] | None:
        return {"text": "peace"} if "wish" in question["message"] else {"value": "blue"}

    def hear(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with connect(make_outer(entry), on_elicitation=answer) as client:
        await client.ping()
        found["templates"] = [one["uriTemplate"] for one in await client.list_resource_templates()]
        found["resources"] = len(await client.list_resources())
        found["prompts"] = [one["name"] for one in await client.list_prompts()]
        found["found"] = await client.call("notes_find_notes", query="one")
        reply: Reply = await client.call_tool("notes_write_note", {"name": "a", "text": "b"}, progress=hear)
        found["written"], found["progress"] = reply.value, progress
        found["summary"] = await client.call("notes_summarize")
        found["wish"] = await client.call("notes_wish")
        found["read"] = (await client.read_resource("note://notes/a"))[0]["text"]
        found["prompt"] = (await client.get_prompt("notes_polish", {"name": "a"}))["messages"][0]["content"]["text"]
        reference: dict[str, Any] = {"type": "ref/prompt", "name": "notes_polish"}
        found["completed"] = await client.complete(reference, "name", "f")
        found["as tools"] = await client.call("notes_read_resource", uri="note://first")
        found["there"] = await client.call("there_echo", text="hello")
        found["reviewed"] = await client.call("reviewed_echo", text="hello")
        found["tools"] = [tool["name"] for tool in await client.list_tools()]
        try:
            await client.call("notes_write_note", name="secret", text="x")
        except (CallFailedError, NoConversationError) as error:
            found["refused"] = str(error)
    return found


if __name__ == "__main__":
    print(asyncio.run(main({"command": "delta-mcp", "args": ["serve", "echo.py"]})))
