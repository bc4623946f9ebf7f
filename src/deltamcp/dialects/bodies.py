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
    Done,
    Page,
    PromptResult,
    ToolResult,
)
from deltamcp.wire import jsonrpc


def body(answer: Answer, version: str) -> dict[str, Any]:
    """A result's own fields, without what an era adds to every result."""
    value = answer.value
    match value:
        case ToolResult():
            return _tool(value, version)
        case Contents():
            return _with_meta({"contents": value.items}, value.meta)
        case PromptResult():
            described: dict[str, Any] = {"description": value.description} if value.description else {}
            return _with_meta(described | {"messages": value.messages}, value.meta)
        case Completion():
            inner: dict[str, JSON] = {"values": value.values}
            if value.total is not None:
                inner["total"] = value.total
            if value.has_more is not None:
                inner["hasMore"] = value.has_more
            return {"completion": inner}
        case Page():
            made: dict[str, Any] = {value.kind.value: Raw(_items(value, version))}
            return made if value.next_cursor is None else made | {"nextCursor": value.next_cursor}
        case About():
            about: dict[str, Any] = {"capabilities": value.capabilities}
            return about if value.instructions is None else about | {"instructions": value.instructions}
        case Done():
            return {}
        case _:
            assert_never(value)


def _tool(value: ToolResult, version: str) -> dict[str, Any]:
    made: dict[str, Any] = {"content": versions.fit_content(value.content, version)}
    structured = value.structured
    since = versions.STRUCTURED_SINCE if isinstance(structured, dict) else versions.ANY_STRUCTURED_SINCE
    if structured is not UNSET and version >= since:
        made["structuredContent"] = structured
    if value.is_error:
        made["isError"] = True
    return _with_meta(made, value.meta)


def _with_meta(made: dict[str, Any], meta: dict[str, JSON] | None) -> dict[str, Any]:
    return made if meta is None else made | {"_meta": meta}


def _items(page: Page, version: str) -> bytes:
    key = f"items {version}"
    encoded = page.encoded.get(key)
    if encoded is None:
        encoded = page.encoded[key] = jsonrpc.encode([versions.fit(item, version) for item in page.items])
    return encoded
