"""Tools that list and read resources and prompts, for hosts that know only tools: `DeltaServer(as_tools=True)`."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation
from deltamcp.context import Context
from deltamcp.values import (
    JSON,
    Audio,
    BlobResource,
    EmbeddedResource,
    Image,
    Kind,
    PromptMessage,
    Text,
    TextResource,
)


async def list_resources(ctx: Context) -> list[dict[str, JSON]]:
    """List the resources that can be read; in a URI with {braces}, put a value in their place."""
    items = [*await ctx.list_resources(), *await ctx.list_resource_templates()]
    return [
        {"uri": item.get("uri", item.get("uriTemplate")), **_members(item, ("name", "description", "mimeType"))}
        for item in items
    ]


async def read_resource(
    uri: Annotated[str, "As list_resources or a result has it"], ctx: Context
) -> str | list[str | Image | Audio | EmbeddedResource]:
    """Read a resource by its URI."""
    blocks = [_block(one) for one in await ctx.read_resource(uri)]
    return blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else blocks


async def list_prompts(ctx: Context) -> list[dict[str, JSON]]:
    """List the prompts, with their arguments; those with ? are optional."""
    return [{**_members(item, ("name", "description")), **_arguments(item)} for item in await ctx.list_prompts()]


async def get_prompt(
    name: Annotated[str, "As list_prompts has it"], ctx: Context, arguments: dict[str, str] | None = None
) -> str | list[dict[str, JSON]]:
    """Get the messages of a prompt, filled in with arguments."""
    messages = (await ctx.get_prompt(name, arguments)).messages
    if len(messages) == 1 and isinstance(messages[0].content, Text):
        return messages[0].content.text
    return [{"role": message.role, "content": _message_content(message)} for message in messages]


TOOLS: Mapping[Kind, tuple[Any, ...]] = MappingProxyType(
    {
        Kind.RESOURCES: (list_resources, read_resource),
        Kind.TEMPLATES: (list_resources, read_resource),
        Kind.PROMPTS: (list_prompts, get_prompt),
    }
)
"""By the kind of an item, the functions of the tools that a server with such an item has."""
NAMES: frozenset[str] = frozenset(function.__name__ for functions in TOOLS.values() for function in functions)


def item_tools(kind: Kind, taken: Mapping[str, object]) -> Iterator[Operation]:
    """Yields the tools for items of a kind whose names are free; an author's own of that name stays."""
    for function in TOOLS.get(kind, ()):
        if function.__name__ not in taken:
            yield FunctionOperation(function, Context, annotations={"readOnlyHint": True})


def _members(item: Mapping[str, JSON], keys: tuple[str, ...]) -> dict[str, JSON]:
    return {key: item[key] for key in keys if item.get(key)}


def _arguments(item: Mapping[str, JSON]) -> dict[str, JSON]:
    found = [f"{one['name']}{'' if one.get('required') else '?'}" for one in item.get("arguments") or ()]
    return {"arguments": " ".join(found)} if found else {}


def _block(contents: TextResource | BlobResource) -> str | Image | Audio | EmbeddedResource:
    if isinstance(contents, TextResource):
        return contents.text
    kind, mime_type = (contents.mime_type or "").partition("/")[0], contents.mime_type or ""
    if kind == "image":
        return Image(contents.blob, mime_type)
    return Audio(contents.blob, mime_type) if kind == "audio" else EmbeddedResource(contents)


def _message_content(message: PromptMessage) -> JSON:
    content = message.content
    return content.text if isinstance(content, Text) else msgspec.to_builtins(content)
