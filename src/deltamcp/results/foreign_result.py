"""Reads results of other servers as values: unknown content blocks and members stay as the server sent them."""

from typing import Any, TypeAlias, cast

import msgspec

from deltamcp.values import (
    JSON,
    SERVER_KEY,
    Annotations,
    Audio,
    BlobResource,
    Content,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc

_FlatContent: TypeAlias = Text | Image | Audio | ResourceLink


def parse_tool_result(fields: dict[str, JSON]) -> ToolResult:
    """Reads a result of `tools/call`."""
    raw_meta, structured = fields.get("_meta"), fields.get("structuredContent", msgspec.UNSET)
    # The server's identity must not reach a client of another server that passes this result on.
    meta = {key: raw_meta[key] for key in raw_meta if key != SERVER_KEY} if isinstance(raw_meta, dict) else {}
    blocks = fields.get("content")
    content = list(map(_parse_content, blocks)) if isinstance(blocks, list) else []
    return ToolResult(content, structured, fields.get("isError") is True, meta or None)


def _parse_content(item: Any) -> Content:
    """Converts a content block if the conversion loses nothing; else returns the object as the server sent it."""
    if not isinstance(item, dict):
        return Text(jsonrpc.encode(item).decode())
    if len(item) == 2 and item.get("type") == "text" and isinstance(item.get("text"), str):  # as most blocks are
        return Text(item["text"])
    try:
        content = _parse_embedded(item) if item.get("type") == "resource" else msgspec.convert(item, _FlatContent)
    except (msgspec.ValidationError, KeyError, TypeError):
        return cast(Content, item)
    return content if msgspec.to_builtins(content) == item else cast(Content, item)


def _parse_embedded(item: dict[str, JSON]) -> EmbeddedResource:
    resource = item["resource"]
    return EmbeddedResource(
        msgspec.convert(resource, BlobResource) if "blob" in resource else msgspec.convert(resource, TextResource),
        msgspec.convert(item.get("annotations"), Annotations | None),
        item.get("_meta"),
    )
