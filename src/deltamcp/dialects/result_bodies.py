"""Values to the bodies of results: the part of writing both eras share."""

from typing import Any, assert_never

from msgspec import UNSET, Raw

from deltamcp.dialects import versions
from deltamcp.values import (
    JSON,
    About,
    Answer,
    Completion,
    Contents,
    Definitions,
    Done,
    Manifest,
    Page,
    PromptResult,
    SubscriptionEnd,
    ToolResult,
)
from deltamcp.wire import jsonrpc


def body(answer: Answer, version: str, made: dict[str, Any]) -> dict[str, Any]:
    """A result's own fields, added to those that an era gives every result."""
    value = answer.value
    match value:
        case ToolResult():
            tool(value, version, made)
        case Page():
            made[value.kind.value] = Raw(_items(value, version))
            if value.next_cursor is not None:
                made["nextCursor"] = value.next_cursor
        case Definitions():
            tools = [versions.fit_item(item, version) for item in value.tools]
            made |= tools[0] if value.alone else {"tools": tools}
        case Manifest():
            made["entries"] = value.entries
            if value.next_cursor is not None:
                made["nextCursor"] = value.next_cursor
            _meta(value.meta, made)
        case Contents():
            made["contents"] = value.items
            _meta(value.meta, made)
        case PromptResult():
            if value.description:
                made["description"] = value.description
            made["messages"] = value.messages
            _meta(value.meta, made)
        case Completion():
            inner = made["completion"] = {"values": value.values}
            if value.total is not None:
                inner["total"] = value.total
            if value.has_more is not None:
                inner["hasMore"] = value.has_more
        case About():
            made["capabilities"] = value.capabilities
            if value.instructions is not None:
                made["instructions"] = value.instructions
        case Done() | SubscriptionEnd():
            pass
        case _:
            assert_never(value)
    return made


def tool(value: ToolResult, version: str, made: dict[str, Any]) -> None:
    """The same for what nearly every answer is."""
    made["content"] = (
        value.content if version >= versions.STRUCTURED_SINCE else versions.fit_content(value.content, version)
    )
    structured = value.structured
    if structured is not UNSET:
        since = versions.STRUCTURED_SINCE if isinstance(structured, dict) else versions.ANY_STRUCTURED_SINCE
        if version >= since:
            made["structuredContent"] = structured
    if value.is_error:
        made["isError"] = True
    if value.meta is not None:
        made["_meta"] = value.meta


def _meta(meta: dict[str, JSON] | None, made: dict[str, Any]) -> None:
    if meta is not None:
        made["_meta"] = meta


def _items(page: Page, version: str) -> bytes:
    key = f"items {version}"
    encoded = page.encoded.get(key)
    if encoded is None:
        encoded = page.encoded[key] = jsonrpc.encode([versions.fit_item(item, version) for item in page.items])
    return encoded
